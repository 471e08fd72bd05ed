from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.messages import (
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.models.client import ModelRequest, ToolSchema
from loopctl.models.gemini import GeminiClient
from loopctl.models.gemini.facts import MODELS, SKIP_SIGNATURE, facts_for, generation
from loopctl.models.gemini.messages import EMPTY, OF_CALL, OF_TEXT, THOUGHT, VERBATIM
from loopctl.models.gemini.request import counting_body

PNG = ImagePart("image/png", b"\x89PNG")
GIF = ImagePart("image/gif", b"GIF89a")
BLOB = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
ADD = ToolSchema(
    name="add",
    description="Add.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
    },
)
NEW, OLD = "gemini-4-argon", "gemini-2.5-flash"


def body(
    *messages: Message,
    model: str = NEW,
    system: str | None = None,
    tools: tuple[ToolSchema, ...] = (),
    **options: Any,
) -> dict[str, Any]:
    request = ModelRequest(
        messages=messages, system=system, tools=tools, options=RequestOptions(**options)
    )
    encoded: dict[str, Any] = json.loads(GeminiClient(model).encode(request).body)
    return encoded


def sent(*messages: Message, **rest: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(*messages, **rest)["contents"]
    return found


def validate(made: dict[str, Any]) -> None:
    """Check a body against the SDK's own types, which take no field that they do not know."""
    known = dict(made)
    types.GenerationConfig.model_validate(known.pop("generationConfig", {}))
    types.ToolConfig.model_validate(known.pop("toolConfig", {}))
    for tool in known.pop("tools", []):
        types.Tool.model_validate(tool)
    types.Content.model_validate(known.pop("systemInstruction", {}))
    for content in known.pop("contents"):
        types.Content.model_validate(signed_for_the_sdk(content))
    assert known == {}


def signed_for_the_sdk(content: dict[str, Any]) -> dict[str, Any]:
    """The SDK decodes signatures from base64; the documented dummy is none."""
    dummy = base64.b64encode(SKIP_SIGNATURE.encode()).decode()
    text = json.dumps(content).replace(SKIP_SIGNATURE, dummy)
    fixed: dict[str, Any] = json.loads(text)
    return fixed


def text(content: str) -> dict[str, str]:
    return {"text": content}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def called(id: str, name: str, signature: str | None = None, **args: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"functionCall": {"id": id, "name": name, "args": args}}
    return made if signature is None else {**made, "thoughtSignature": signature}


def answered(id: str, name: str, output: str, key: str = "output") -> dict[str, Any]:
    return {"functionResponse": {"id": id, "name": name, "response": {key: output}}}


def thinking(kind: str, signature: str | None = "S", said: str = "", **rest: Any) -> ThinkingPart:
    given = {"provider": "gemini", "model": NEW, **rest}
    return ThinkingPart(said, signature=signature, kind=kind, **given)


Q = Message.user("q")
CALLED = Message.assistant(ToolCallPart("c1", "add", {"a": 1}), ToolCallPart("c2", "look", {}))
R1, R2 = ToolResultPart("c1", "add", "1"), ToolResultPart("c2", "look", "seen")


def test_a_tool_round_is_as_the_api_wants_it() -> None:
    """MOD-20, C1: responses in a content of their own, in order; then what the user says."""
    made = body(Q, CALLED, Message.user(R1, R2, "and then?"), system="s", tools=(ADD,))
    assert made["systemInstruction"] == {"parts": [text("s")]}
    assert made["contents"] == [
        user(text("q")),
        {
            "role": "model",
            "parts": [called("c1", "add", SKIP_SIGNATURE, a=1), called("c2", "look")],
        },
        user(answered("c1", "add", "1"), answered("c2", "look", "seen")),
        user(text("and then?")),
    ]
    (tool,) = made["tools"][0]["functionDeclarations"]
    assert (tool["name"], tool["description"]) == ("add", "Add.")
    assert tool["parametersJsonSchema"]["required"] == ["a"]
    assert "parameters" not in tool
    validate(made)


MIXED = {
    "text first": [Message.user("and", R1, R2)],
    "split": [Message.user(R1), Message.user(R2, "and")],
    "a note in between": [Message.system("and"), Message.user(R1, R2)],
    "another order": [Message.user(R2, R1, "and")],
    "one too many": [Message.user(R1, R2, ToolResultPart("c9", "x", "?"), "and")],
    "another name": [Message.user(ToolResultPart("c1", "nope", "1"), R2, "and")],
    "a blank message in between": [Message.user(" "), Message.user(R1, R2, "and")],
}


@pytest.mark.parametrize("name", MIXED)
def test_there_are_as_many_responses_as_calls_in_their_order(name: str) -> None:
    """MOD-20, A1, A3: whatever the conversation holds; what answers nothing is left out."""
    contents = sent(Q, CALLED, *MIXED[name])
    assert [content["role"] for content in contents] == ["user", "model", "user", "user"]
    assert contents[2] == user(answered("c1", "add", "1"), answered("c2", "look", "seen"))
    assert contents[3]["parts"][-1]["text"].endswith("and")


def test_calls_without_results_are_answered() -> None:
    """A2: at the end, before more of the model's, and one of two."""
    missing = answered("c2", "look", "(there is no result)", "error")
    contents = sent(Q, CALLED, Message.user(R1), Message.assistant("x"), Message.user("y"))
    assert contents[2] == user(answered("c1", "add", "1"), missing)
    assert [content["role"] for content in contents] == ["user", "model", "user", "model", "user"]
    contents = sent(Q, CALLED, Message.assistant("x"), Message.user("y"))
    assert [content["role"] for content in contents] == ["user", "model", "user", "model", "user"]
    contents = sent(Q, CALLED)
    assert contents[-1]["parts"][1] == missing
    contents = sent(Q, Message.assistant("x"), CALLED, Message.user(R1, R2))
    assert [len(content["parts"]) for content in contents] == [1, 3, 2]


def test_results_of_equal_ids_go_to_their_calls_in_turn() -> None:
    """B18: an id may come again in a later message, or twice in one."""
    twice = Message.assistant(ToolCallPart("c", "add", {}), ToolCallPart("c", "add", {"a": 2}))
    first, second = ToolResultPart("c", "add", "1"), ToolResultPart("c", "add", "2")
    again = Message.assistant(ToolCallPart("c", "add", {}))
    contents = sent(Q, twice, Message.user(first, second), again, Message.user(first))
    assert contents[2] == user(answered("c", "add", "1"), answered("c", "add", "2"))
    contents = sent(Q, twice, Message.user(first), Message.user(second))
    assert contents[2] == user(answered("c", "add", "1"), answered("c", "add", "2"))


def test_signatures_ride_on_the_part_that_they_came_with() -> None:
    """MOD-20, A13, C7: byte-exact; unsigned stays unsigned; an empty text with one is sent."""
    said = Message.assistant(
        thinking(THOUGHT, None, "hm"),
        thinking(THOUGHT, "S0", "hm"),
        "plain",
        thinking(OF_TEXT, "S+/1="),
        "signed",
        thinking(OF_CALL, "S2"),
        ToolCallPart("c1", "add", {}),
        ToolCallPart("c2", "look", {}),
    )
    done = Message.assistant("x", thinking(EMPTY, "S3"))
    contents = sent(Q, said, Message.user(R1, R2), done, Message.user("y"))
    assert contents[1]["parts"] == [
        {"text": "hm", "thought": True},
        {"text": "hm", "thought": True, "thoughtSignature": "S0"},
        text("plain"),
        {"text": "signed", "thoughtSignature": "S+/1="},
        called("c1", "add", "S2"),
        called("c2", "look"),
    ]
    assert contents[3]["parts"] == [text("x"), {"text": "", "thoughtSignature": "S3"}]
    blank = Message.assistant(thinking(OF_TEXT, "S4"), " ", "x")
    parts = sent(Q, blank, Message.user("y"))[1]["parts"]
    assert parts == [{"text": " ", "thoughtSignature": "S4"}, text("x")]


def test_a_signature_never_moves_to_another_part() -> None:
    """C7: what it was in front of may be gone."""
    said = Message.assistant(
        thinking(OF_CALL, "S1"),
        "x",
        ToolCallPart("c1", "add", {}),
        thinking(OF_TEXT, "S2"),
        ToolCallPart("c2", "look", {}),
    )
    assert sent(Q, said, Message.user(R1, R2))[1]["parts"] == [
        text("x"),
        called("c1", "add", SKIP_SIGNATURE),
        called("c2", "look"),
    ]


@pytest.mark.parametrize(
    ("origin", "own"),
    [
        ({}, True),
        ({"model": "gemini-flash-latest"}, True),
        ({"model": None}, True),
        ({"provider": "anthropic"}, False),
        ({"model": OLD}, False),
    ],
)
def test_reasoning_goes_back_to_its_provider_and_generation_only(
    origin: dict[str, Any], own: bool
) -> None:
    """MOD-20, C7: calls of others get the documented dummy, on the first of each step."""
    part = thinking(OF_CALL, "S1", **origin)
    said = Message.assistant(
        thinking(THOUGHT, "T", "hm", **origin), part, ToolCallPart("c1", "add", {})
    )
    made = sent(Q, said, Message.user(R1))[1]["parts"]
    assert made[-1]["thoughtSignature"] == ("S1" if own else SKIP_SIGNATURE)
    assert len(made) == (2 if own else 1)


def test_models_before_gemini_3_want_no_dummy() -> None:
    """MOD-27: they sign nothing that must come back."""
    assert "thoughtSignature" not in sent(Q, CALLED, Message.user(R1, R2), model=OLD)[1]["parts"][0]


def test_a_part_without_a_name_of_ours_goes_back_as_it_came() -> None:
    """MOD-20: such as code that the API ran itself, with its signature."""
    part = {"executableCode": {"code": "1+1", "language": "PYTHON"}, "thoughtSignature": "S"}
    said = Message.assistant(thinking(VERBATIM, json.dumps(part)), "2")
    assert sent(Q, said, Message.user("y"))[1]["parts"] == [part, text("2")]


def test_ids_of_ours_are_sent_on_neither_side() -> None:
    """MOD-9, MOD-20: older models give none; the others' go back on both sides."""
    own = "call_" + "0af9" * 6
    call, result = ToolCallPart(own, "add", {}), ToolResultPart(own, "add", "1")
    contents = sent(Q, Message.assistant(call), Message.user(result))
    assert "id" not in contents[1]["parts"][0]["functionCall"]
    assert "id" not in contents[2]["parts"][0]["functionResponse"]


def test_images_of_results_ride_inside_where_the_model_takes_them() -> None:
    """MOD-20: Gemini 3 and later, and only these types; else in a content behind the results."""
    result = ToolResultPart("c1", "add", (TextPart("see"), PNG, GIF))
    call = Message.assistant(ToolCallPart("c1", "add", {}))
    contents = sent(Q, call, Message.user(result, "go on"))
    assert contents[2]["parts"][0]["functionResponse"]["parts"] == [BLOB]
    assert contents[3]["parts"][0] == text("Images from the result of add:")
    assert contents[3]["parts"][1]["inlineData"]["mimeType"] == "image/gif"
    assert contents[3]["parts"][2] == text("go on")
    contents = sent(Q, call, Message.user(ToolResultPart("c1", "add", (PNG,))), model=OLD)
    assert contents[2] == user(answered("c1", "add", "(an image)"))
    assert contents[3]["parts"][1] == BLOB
    assert sent(Message.user("see", PNG)) == [user(text("see"), BLOB)]


def test_nothing_empty_is_sent() -> None:
    """C2: blank texts go, an empty result gets a word, an empty turn is left out."""
    contents = sent(
        Message.user("q", " \n"),
        Message.assistant(),
        Message.assistant("  ", thinking(THOUGHT, None, "hm")),
        Message.assistant("  ", ToolCallPart("c1", "add", {})),
        Message.user(ToolResultPart("c1", "add", " ")),
        Message.user("\n"),
        Message.system(""),
    )
    assert contents == [
        user(text("q")),
        {"role": "model", "parts": [called("c1", "add", SKIP_SIGNATURE)]},
        user(answered("c1", "add", "(no output)")),
    ]


def test_a_failed_result_stands_under_error() -> None:
    """MOD-20: the API's own convention."""
    failed = ToolResultPart("c1", "add", "no such file", is_error=True)
    contents = sent(Q, CALLED, Message.user(failed, R2))
    assert contents[2]["parts"][0] == answered("c1", "add", "no such file", "error")


def test_system_text_stands_in_its_field_or_is_labelled() -> None:
    """C3, CTX-8: notes at the head are parts of their own; there is no role in the middle."""
    made = body(Message.system("head"), Q, Message.system("tail"), system="s")
    assert made["systemInstruction"] == {"parts": [text("s"), text("head")]}
    assert made["contents"] == [user(text("q")), user(text("[system note]\ntail"))]


def test_the_user_begins_and_ends() -> None:
    """C4, MOD-20: the model never does; two of its messages in a row are one content."""
    contents = sent(Message.assistant("hi"), Message.assistant("there"))
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[1]["parts"] == [text("hi"), text("there")]
    assert [content["role"] for content in sent(Message.system("s"))] == ["user"]
    blank = Message.user(" ")
    contents = sent(Q, Message.assistant("hi"), blank, Message.assistant("there"), Q)
    assert contents[1]["parts"] == [text("hi"), text("there")]


def test_what_is_in_order_behind_a_stretch_that_is_not_stays_as_it_is() -> None:
    """MOD-23: only the stretch is mended, from the model's word to its next."""
    swapped = Message.user(R2, R1)
    again = Message.assistant("look", ToolCallPart("c1", "add", {}))
    answer, later = Message.user(R1), (Message.assistant("x"), Message.user("y"))
    contents = sent(Q, CALLED, swapped, again, answer, *later)
    in_order = sent(Q, CALLED, Message.user(R1, R2), again, answer, *later)
    assert contents == in_order


def test_names_that_gemini_does_not_take_are_replayed_safely() -> None:
    """B19: what the model invented must not poison the next request."""
    for name, made in {"a b.c": "a_b_c", "": "unnamed", "1x": "_1x", "x" * 99: "x" * 64}.items():
        call = Message.assistant(ToolCallPart("c1", name, {}))
        contents = sent(Q, call, Message.user(ToolResultPart("c1", name, "1")))
        assert contents[1]["parts"][0]["functionCall"]["name"] == made
        assert contents[2]["parts"][0]["functionResponse"]["name"] == made


def test_unusable_arguments_are_sent_as_an_object() -> None:
    """B20: `args` is always an object."""
    call = Message.assistant(ToolCallPart("c1", "add", "[1"))
    assert sent(Q, call, Message.user(R1))[1]["parts"][0]["functionCall"]["args"] == {}


def test_options_have_the_names_of_the_api() -> None:
    """MOD-3: each is there, none is dropped; extra fields go where they belong."""
    made = body(
        Q,
        model="gemini-3.8-flash",
        tools=(ADD,),
        max_output_tokens=50,
        temperature=0,
        stop=("END",),
        tool_choice="add",
        thinking_effort="low",
        response_schema={"type": "object", "properties": {"a": {"const": "x"}}, "title": "A"},
        extra_body={"generationConfig": {"seed": 7}, "serviceTier": "flex"},
    )
    assert made["generationConfig"] == {
        "maxOutputTokens": 50,
        "temperature": 0,
        "stopSequences": ["END"],
        "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True},
        "responseMimeType": "application/json",
        "responseJsonSchema": {
            "type": "object",
            "properties": {"a": {"enum": ["x"], "type": "string"}},
        },
        "seed": 7,
    }
    assert made["serviceTier"] == "flex"
    del made["serviceTier"]
    validate(made)


@pytest.mark.parametrize(
    ("options", "calling"),
    [
        ({}, None),
        ({"strict_tools": True}, {"mode": "VALIDATED"}),
        ({"tool_choice": "auto"}, {"mode": "AUTO"}),
        ({"tool_choice": "none", "strict_tools": True}, {"mode": "NONE"}),
        ({"tool_choice": "required"}, {"mode": "ANY"}),
        ({"tool_choice": "add"}, {"mode": "ANY", "allowedFunctionNames": ["add"]}),
    ],
)
def test_how_tools_are_called(options: dict[str, Any], calling: dict[str, Any] | None) -> None:
    """MOD-3, MOD-21: VALIDATED is the strict mode; a forced call is always validated."""
    made = body(Q, tools=(ADD,), **options)
    assert made.get("toolConfig") == (calling and {"functionCallingConfig": calling})
    validate(made)
    if options.get("tool_choice") not in ("add", "required"):
        assert "toolConfig" not in body(Q, **options)


def test_efforts_are_levels_or_budgets() -> None:
    """MOD-27: never both; what a model cannot do is refused."""
    for model, effort, config in (
        ("gemini-3.1-flash-lite", "minimal", {"thinkingLevel": "MINIMAL"}),
        ("gemini-5-nobody-knows", "high", {"thinkingLevel": "HIGH"}),
        ("gemini-2.5-pro-preview-06-05", "high", {"thinkingBudget": 24_576}),
    ):
        made = body(Q, model=model, thinking_effort=effort)["generationConfig"]["thinkingConfig"]
        assert made == {**config, "includeThoughts": True}
    made = body(Q, model=OLD, thinking_effort="none")["generationConfig"]["thinkingConfig"]
    assert made == {"thinkingBudget": 0}


@pytest.mark.parametrize(
    ("model", "options", "name"),
    [
        (NEW, {"temperature": 0.5}, "temperature"),
        (NEW, {"thinking_effort": "none"}, "thinking_effort"),
        (NEW, {"thinking_effort": "minimal"}, "thinking_effort"),
        ("gemini-3.8-flash", {"thinking_effort": "xhigh"}, "thinking_effort"),
        ("gemini-2.5-pro", {"thinking_effort": "none"}, "thinking_effort"),
        ("gemini-2.0-flash", {"thinking_effort": "low"}, "thinking_effort"),
        (OLD, {"response_schema": {"type": "object"}}, "response_schema"),
        (NEW, {"response_schema": {"$ref": "https://x"}}, "response_schema"),
        (NEW, {"stop": tuple("abcdef")}, "stop"),
        (NEW, {"tool_choice": "unknown_tool"}, "tool_choice"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_named(
    model: str, options: dict[str, Any], name: str
) -> None:
    """MOD-3, MOD-27: before any byte is sent."""
    with pytest.raises(ConfigError, match=rf"RequestOptions\.{name}="):
        body(Q, model=model, tools=(ADD,), **options)
    if name == "tool_choice":
        with pytest.raises(ConfigError, match="no tools"):
            body(Q, model=model, **options)


def test_tool_names_that_cannot_be_sent_are_refused() -> None:
    """MOD-20: a name must come back as it went."""
    for name in ("1a", "a b", "x" * 129):
        with pytest.raises(ConfigError, match=name):
            body(Q, tools=(ToolSchema(name=name, description="", input_schema={}),))


def test_one_tool_that_cannot_be_said_does_not_cost_the_others() -> None:
    """MOD-21, F9: it is left out with a warning, once, and cannot be forced."""
    bad = ToolSchema(name="bad", description="", input_schema={"$ref": "#/$defs/gone"})
    with pytest.warns(UserWarning, match="'bad' is not offered"):
        made = body(Q, tools=(bad, ADD))
    assert [tool["name"] for tool in made["tools"][0]["functionDeclarations"]] == ["add"]
    assert "tools" not in body(Q, tools=(bad,))
    text = ToolSchema(name="text", description="", input_schema={"type": "string"})
    with pytest.warns(UserWarning, match="'text' is not offered"):
        assert "tools" not in body(Q, tools=(text,))
    with pytest.raises(ConfigError, match="tool_choice"):
        body(Q, tools=(bad, ADD), tool_choice="bad")


def test_a_tool_without_parameters_says_none() -> None:
    """MOD-21: an empty object is refused by older versions."""
    now = ToolSchema(name="now", description=" ", input_schema={"type": "object", "properties": {}})
    assert body(Q, tools=(now,))["tools"] == [{"functionDeclarations": [{"name": "now"}]}]


def test_a_message_is_turned_into_bytes_once() -> None:
    """MOD-23: the fragment is kept with the message, for each kind of model and provider."""
    message = Message.user("q")
    first = sent(message)
    kept = dict(message.memo)
    assert sent(message) == first
    assert [message.memo[key] is kept[key] for key in message.memo] == [True] * len(kept)
    sent(message, model=OLD)
    assert len(message.memo) == 2 * len(kept)
    sent(message, model="gemini-4-carbon")  # is talked to in the same way
    assert len(message.memo) == 2 * len(kept)
    assert sent(Message.user("a"), message, Message.user("b"), message)[3] == first[0]


def test_the_same_request_is_the_same_bytes() -> None:
    """I1, CTX-20: and a longer conversation begins with them."""
    client = GeminiClient(NEW)
    short = client.encode(ModelRequest(messages=(Q,), system="s", tools=(ADD,))).body
    more = (Q, Message.assistant("x"), Message.user("y"))
    long = client.encode(ModelRequest(messages=more, system="s", tools=(ADD,))).body
    assert long.startswith(short[:-2])


def test_lone_surrogates_never_reach_the_wire() -> None:
    """MOD-2: they are replaced in texts, names and arguments."""
    call = ToolCallPart("c1\ud83d", "add\ud83d", '{"a": "\\ud83d"}')
    result = ToolResultPart("c1\ud83d", "add\ud83d", "\ud83d")
    contents = sent(Message.user("x\ud83d"), Message.assistant(call), Message.user(result))
    assert contents[0]["parts"] == [text("x\N{REPLACEMENT CHARACTER}")]
    assert contents[1]["parts"][0]["functionCall"]["args"] == {"a": "\N{REPLACEMENT CHARACTER}"}


def test_what_is_counted_is_the_whole_request() -> None:
    """MOD-19: the API counts system text and tools only inside a request that names its model."""
    encoded = GeminiClient(NEW).encode(ModelRequest(messages=(Q,), system="s"))
    counted = json.loads(counting_body(encoded.body, model_path="models/m"))
    assert counted == {"generateContentRequest": {"model": "models/m", **json.loads(encoded.body)}}


def test_facts_are_found_by_the_beginning_of_a_name() -> None:
    """MOD-27: previews and dates count as their model, an unknown one as the newest."""
    assert facts_for("models/gemini-3.1-pro-preview-customtools") is MODELS["gemini-3.1-pro"]
    assert facts_for("gemini-2.5-flash-preview-09-2025") is MODELS["gemini-2.5-flash"]
    assert facts_for("gemini-flash-latest").signatures
    assert [generation(name) for name in (NEW, OLD, "gemini-pro", None)] == ["4", "2", None, None]


texts = st.sampled_from(["hello", " ", "", "a\ud83d", "ü\u2028"])
signatures = st.sampled_from(["c2ln", "YS9i", None])
images = st.sampled_from([PNG, GIF])
ids = st.sampled_from(["c1", "c2", "call_" + "0" * 24, ""])
results = st.builds(
    ToolResultPart,
    ids,
    st.sampled_from(["add", "look"]),
    texts | st.lists(st.builds(TextPart, texts) | images, max_size=2).map(tuple),
    st.booleans(),
)
tool_calls = st.builds(ToolCallPart, ids, st.sampled_from(["add", "?"]), texts)
thoughts = st.builds(
    ThinkingPart,
    texts,
    signature=signatures,
    provider=st.sampled_from(["gemini", "anthropic"]),
    model=st.sampled_from([NEW, OLD, None]),
    kind=st.sampled_from([THOUGHT, OF_TEXT, OF_CALL, EMPTY, "thinking"]),
)


def some(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Part]]:
    return st.lists(st.one_of(*kinds), max_size=3)


conversations = st.lists(
    some(st.builds(TextPart, texts), images, results).map(lambda made: Message("user", made))
    | some(st.builds(TextPart, texts), tool_calls, thoughts, images).map(
        lambda made: Message("assistant", made)
    )
    | some(st.builds(TextPart, texts)).map(lambda made: Message("system", made)),
    max_size=6,
)


@given(conversations, st.sampled_from([NEW, OLD, "gemini-flash-latest"]))
def test_every_body_is_one_of_the_official_sdk(conversation: list[Message], model: str) -> None:
    """MOD-24: whatever the conversation holds; the API's own rules for calls hold too (MOD-20)."""
    made = body(*conversation, model=model, system="s", tools=(ADD,), tool_choice="auto")
    validate(made)
    contents = made["contents"]
    roles = [content["role"] for content in contents]
    assert roles[0] == roles[-1] == "user"
    for number, content in enumerate(contents):
        assert content["parts"]
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        answers = [p["functionResponse"] for p in content["parts"] if "functionResponse" in p]
        if content["role"] == "model":
            assert roles[number - 1] == "user"
        if answers:
            assert len(answers) == len(content["parts"])
            assert roles[number - 1] == "model"
        if calls:
            following = contents[number + 1]["parts"]
            replies = [part["functionResponse"] for part in following]
            assert [r["name"] for r in replies] == [c["name"] for c in calls]
            assert [r.get("id") for r in replies] == [c.get("id") for c in calls]
            first = next(part for part in content["parts"] if "functionCall" in part)
            assert model == OLD or "thoughtSignature" in first


@given(conversations, st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))
def test_what_was_found_in_order_before_changes_nothing(
    conversation: list[Message], head: int, tail: int, other: int
) -> None:
    """MOD-23: a turn after a turn, with other transients around it, is as if it were the first."""
    head = min(head, len(conversation))
    tail = min(tail, len(conversation) - head)
    client = GeminiClient(NEW)

    def encoded(messages: list[Message], head: int, tail: int) -> bytes:
        return client.encode(ModelRequest(messages=tuple(messages), head=head, tail=tail)).body

    for end in range(head, len(conversation) - tail + 1):
        encoded([*conversation[:end], *conversation[end : end + other % 3]], head, other % 3)
    fresh = [Message(message.role, message.parts) for message in conversation]
    assert encoded(conversation, head, tail) == encoded(fresh, 0, 0)
    without = [*fresh[:head], *fresh[head + 1 :]]
    assert encoded(without, 0, 0) == encoded(
        [*conversation[:head], *conversation[head + 1 :]], 0, 0
    )


def test_the_next_turn_looks_only_at_what_is_new() -> None:
    """MOD-23: what was in order is joined as it was; another beginning is looked at afresh."""
    question = Message.user("q")
    conversation = [question]
    for number in range(3):
        call = ToolCallPart(f"c{number}", "add", {})
        conversation += [Message.assistant(call), Message.user(ToolResultPart(call.id, "add", "1"))]
    first = sent(*conversation[:5])
    known = [value for value in question.memo.values() if hasattr(value, "rest")]
    assert known[-1].rest == tuple(conversation[1:5])
    assert sent(*conversation)[:5] == first
    swapped = [question, *conversation[3:5], *conversation[1:3]]
    names = [content["parts"][0].get("functionCall", {}).get("id") for content in sent(*swapped)]
    assert names == [None, "c1", None, "c0", None]
    assert [value.rest for value in question.memo.values() if hasattr(value, "rest")][-1] == tuple(
        swapped[1:]
    )
