from __future__ import annotations

import itertools
import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ollama import _types as sdk

from loopctl import _json
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
from loopctl.models.ollama import OllamaClient

PNG = ImagePart("image/png", b"\x89PNG")
PNG_TEXT = b64encode(b"\x89PNG").decode()
ADD = ToolSchema(
    name="add",
    description="Add.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
    },
)


def body(
    *messages: Message,
    system: str | None = None,
    tools: tuple[ToolSchema, ...] = (),
    stream: bool = False,
    model: str = "qwen3:8b",
    client: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    made = OllamaClient(model, provider="acme", **(client or {}))
    request = ModelRequest(
        messages=messages, system=system, tools=tools, options=RequestOptions(**options)
    )
    encoded: dict[str, Any] = json.loads(made.encode(request, stream=stream).body)
    return encoded


def sent(*messages: Message, **rest: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(*messages, **rest)["messages"]
    return found


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


USER = Message.user("q")
CALLED = Message.assistant(ToolCallPart("c1", "add", {"a": 1}), ToolCallPart("c2", "look", {}))
ANSWERED = Message.user(
    ToolResultPart("c1", "add", "1"), ToolResultPart("c2", "look", "seen"), "and then?"
)


def test_the_window_is_asked_for_on_every_request_and_nothing_is_cut_in_silence() -> None:
    """MOD-20: a server left to itself takes 4,096 tokens and drops the oldest messages."""
    found = body(USER)
    assert found["options"]["num_ctx"] == 32_768
    assert (found["truncate"], found["shift"], found["stream"]) == (False, False, False)
    found = body(USER, client={"context_window": 8_192}, temperature=0.5)
    assert found["options"] == {"num_ctx": 8_192, "temperature": 0.5}


@pytest.mark.parametrize(
    ("model", "address"),
    [("gpt-oss:120b-cloud", "http://localhost:11434"), ("m", "https://ollama.com")],
)
def test_a_model_in_the_cloud_keeps_its_own_window(model: str, address: str) -> None:
    """MOD-27: its maximum already; yet no request is cut to it."""
    client = {"base_url": address}
    assert OllamaClient(model, base_url=address).context_window is None
    assert "options" not in body(USER, model=model, client=client)
    assert body(USER, model=model, client=client)["truncate"] is False
    given = {**client, "context_window": 9_000}
    assert body(USER, model=model, client=given)["options"] == {"num_ctx": 9_000}


def test_another_model_for_one_request_is_asked_for_its_window_too() -> None:
    """MOD-3: the override, from the cloud to this machine."""
    client = OllamaClient("gpt-oss:20b-cloud")
    request = ModelRequest(messages=(USER,), options=RequestOptions(model="qwen3:8b"))
    encoded = json.loads(client.encode(request).body)
    assert (encoded["model"], encoded["options"]) == ("qwen3:8b", {"num_ctx": 32_768})


def test_results_of_a_batch_come_first_then_what_the_user_says() -> None:
    """MOD-20, C1: in the order of the calls, with the tool's name; arguments are objects."""
    messages = sent(USER, CALLED, ANSWERED)
    assert messages == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}},
                {"id": "c2", "function": {"name": "look", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_name": "add", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_name": "look", "tool_call_id": "c2", "content": "seen"},
        {"role": "user", "content": "and then?"},
    ]


def test_images_are_bare_base64_and_those_of_results_follow_them() -> None:
    """MOD-20: a result holds text alone, so a user message shows its images."""
    result = ToolResultPart("c1", "add", (TextPart("see"), PNG))
    bare = ToolResultPart("c2", "look", (PNG,))
    messages = sent(Message.user("look:", PNG), CALLED, Message.user(result, bare))
    assert messages[0] == {"role": "user", "content": "look:", "images": [PNG_TEXT]}
    assert [m["content"] for m in messages[2:4]] == ["see", "(an image)"]
    assert messages[4]["images"] == [PNG_TEXT, PNG_TEXT]
    assert "result of add" in messages[4]["content"]


def test_empty_results_and_failed_ones_say_so() -> None:
    """C2: no empty content; there is no error flag, so the text says it."""
    results = Message.user(
        ToolResultPart("c1", "add", " "), ToolResultPart("c2", "look", "no file", is_error=True)
    )
    texts = [message["content"] for message in sent(USER, CALLED, results)[2:]]
    assert texts == ["(no output)", "Error: no file"]


def test_blank_text_is_left_out() -> None:
    """C2: empty messages of either side, blank text beside calls."""
    messages = sent(
        USER,
        Message.assistant(" \n"),
        Message.user(" ", "x"),
        Message.assistant("  ", CALLED.calls[0]),
    )
    assert roles(messages) == ["user", "assistant", "user"]
    assert (messages[0]["content"], messages[1]["content"]) == ("q\n\nx", "")


def test_system_text_stands_in_front_and_later_notes_are_labelled() -> None:
    """C3, C4, CTX-8: one leading system message; neighbours of the user are merged."""
    messages = sent(
        Message.system("b"), USER, Message.system("note"), Message.user("r"), system="a"
    )
    assert messages == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "q\n\n[system note]\nnote\n\nr"},
    ]


def test_the_user_begins_and_the_assistant_never_ends() -> None:
    """C4: else the reply would go on with the assistant's own words."""
    messages = sent(Message.assistant("Hi"))
    assert roles(messages) == ["user", "assistant", "user"]


def test_merged_messages_keep_their_images() -> None:
    """C4: in order."""
    other = ImagePart("image/png", b"other")
    (message,) = sent(Message.user("a", PNG), Message.user(other, "b"))
    assert message["content"] == "a\n\nb"
    assert message["images"] == [PNG_TEXT, b64encode(b"other").decode()]


def test_thinking_goes_back_with_its_calls_and_only_to_who_thought_it() -> None:
    """A13, MOD-20: no thinking parts of other providers."""
    own = ThinkingPart("Hm.", provider="acme", kind="thinking")
    foreign = ThinkingPart("Ha.", signature="s", provider="anthropic")
    messages = sent(USER, Message.assistant(own, foreign, CALLED.calls[0]), Message.user("r"))
    assert messages[1]["thinking"] == "Hm."
    assert "thinking" not in sent(USER, Message.assistant(own, "said"), Message.user("r"))[1]


def test_options_have_their_own_names() -> None:
    """MOD-3: each is honoured."""
    client = OllamaClient("m", keep_alive="10m")
    options = RequestOptions(
        max_output_tokens=100,
        temperature=0,
        stop=("a", "b", "c", "d", "e"),
        response_schema={"type": "object", "$defs": {}},
        thinking_effort="high",
        model="other",
    )
    encoded = json.loads(client.encode(ModelRequest(messages=(USER,), options=options)).body)
    del encoded["messages"]
    assert encoded == {
        "model": "other",
        "think": "high",
        "format": {"type": "object", "$defs": {}},
        "stream": False,
        "truncate": False,
        "shift": False,
        "keep_alive": "10m",
        "options": {
            "num_ctx": 32_768,
            "num_predict": 100,
            "temperature": 0,
            "stop": ["a", "b", "c", "d", "e"],
        },
    }


@pytest.mark.parametrize(
    ("model", "effort", "think"),
    [
        ("qwen3:8b", "none", False),
        ("qwen3:8b", "max", "max"),
        ("hf.co/org/unknown", "low", "low"),
        ("gpt-oss:20b", "low", "low"),
        ("library/gpt-oss", "high", "high"),
    ],
)
def test_thinking_is_asked_for_as_the_model_knows_it(model: str, effort: str, think: Any) -> None:
    """MOD-27: an unknown model is sent what the newest take; unasked nothing is sent."""
    assert body(USER, model=model, thinking_effort=effort)["think"] == think
    assert "think" not in body(USER, model=model)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("qwen3", {"strict_tools": True}, "strict_tools=True"),
        ("qwen3", {"tool_choice": "required"}, "tool_choice='required'"),
        ("qwen3", {"tool_choice": "add"}, "tool_choice='add'"),
        ("qwen3", {"thinking_effort": "xhigh"}, "takes: none, low, medium, high, max"),
        ("gpt-oss:20b", {"thinking_effort": "none"}, "takes: low, medium, high"),
        ("qwen3", {"response_schema": {"type": "object"}}, "no tools while its reply is bound"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    model: str, options: dict[str, Any], words: str
) -> None:
    """MOD-3: a ConfigError that names the option, before any byte."""
    with pytest.raises(ConfigError, match=words):
        body(USER, model=model, tools=(ADD,), **options)


def test_no_tool_may_be_called_when_none_is_offered() -> None:
    """MOD-3: what `tool_choice="none"` becomes; a schema for the reply then fits too."""
    assert "tools" in body(USER, tools=(ADD,), tool_choice="auto")
    found = body(USER, tools=(ADD,), tool_choice="none", response_schema={"type": "object"})
    assert "tools" not in found
    assert found["format"] == {"type": "object"}


def test_extra_settings_are_merged_last() -> None:
    """MOD-3: those of the server beside ours."""
    extra = {"options": {"top_k": 40, "num_ctx": 5}, "truncate": True, "logprobs": True}
    found = body(USER, extra_body=extra, temperature=1)
    assert found["options"] == {"num_ctx": 5, "temperature": 1, "top_k": 40}
    assert (found["truncate"], found["logprobs"]) == (True, True)


def test_a_tools_schema_holds_what_the_server_reads() -> None:
    """MOD-21, F9: references are inlined, endless ones end; no value has a type of its own."""
    schema = {
        "type": "object",
        "$defs": {
            "Node": {
                "type": "object",
                "description": "A node.",
                "properties": {"next": {"$ref": "#/$defs/Node"}, "kind": {"const": "n"}},
            },
            "a/b": {"type": "string"},
        },
        "properties": {
            "node": {"$ref": "#/$defs/Node"},
            "text": {"$ref": "#/$defs/a~1b", "description": "told here"},
            "one": {"oneOf": [{"type": "string"}, {"type": "null"}]},
            "all": {"allOf": [{"type": "integer", "description": "inner"}], "description": "outer"},
            "many": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}},
            "any": True,
            "lost": {"$ref": "#/$defs/nowhere", "description": "kept"},
        },
        "required": ["node"],
    }
    (tool,) = body(USER, tools=(ToolSchema(name="t", description=" ", input_schema=schema),))[
        "tools"
    ]
    assert "description" not in tool["function"]
    found = tool["function"]["parameters"]
    assert "$ref" not in json.dumps(found)
    assert found["required"] == ["node"]
    properties = found["properties"]
    assert properties["node"]["properties"] == {
        "next": {"type": "object", "description": "A node."},
        "kind": {"enum": ["n"]},
    }
    assert properties["text"] == {"type": "string", "description": "told here"}
    assert properties["one"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties["all"] == {"type": "integer", "description": "outer"}
    assert properties["many"] == {"type": "array", "items": {"type": "string"}}
    assert properties["any"] == {}
    assert properties["lost"] == {"description": "kept"}


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"properties": None, "required": "a"}, {"$ref": "#"}]
)
def test_a_tool_without_arguments_has_an_empty_object(schema: dict[str, Any]) -> None:
    """MOD-21: a wrong type would cost the whole request."""
    (tool,) = body(USER, tools=(ToolSchema(name="t", description="d", input_schema=schema),))[
        "tools"
    ]
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}


def test_text_that_utf8_cannot_encode_is_sent() -> None:
    """MOD-2: in texts, results and arguments."""
    broken = "a\ud83d"
    call = ToolCallPart("c", "add", {"a": broken})
    result = Message.user(ToolResultPart("c", "add", broken))
    texts = json.dumps(sent(Message.user(broken), Message.assistant(call), result, system=broken))
    assert texts.count("\\ufffd") == 4


PARTS_OF_USER: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, st.text(max_size=8)),
    st.just(PNG),
    st.builds(ToolResultPart, st.just("c1"), st.just("add"), st.text(max_size=8)),
    st.builds(ToolResultPart, st.just("c2"), st.just("add"), st.just((TextPart("t"), PNG))),
)
PARTS_OF_ASSISTANT: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, st.text(max_size=8)),
    st.builds(ThinkingPart, st.text(max_size=8), provider=st.sampled_from(["acme", "x"])),
    st.builds(ToolCallPart, st.sampled_from(["c1", "c2"]), st.just("add"), st.just({"a": 1})),
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda p: Message("user", p), st.lists(PARTS_OF_USER, max_size=3)),
        st.builds(lambda p: Message("assistant", p), st.lists(PARTS_OF_ASSISTANT, max_size=3)),
        st.builds(Message.system, st.text(max_size=8)),
    ),
    min_size=1,
    max_size=8,
)


@given(MESSAGES, st.booleans(), st.sampled_from([None, "none", "low"]))
def test_every_request_is_one_that_the_vendors_client_would_send(
    messages: list[Message], stream: bool, effort: str | None
) -> None:
    """MOD-24, MOD-20: the same fields and values after its types; users and models in turns."""
    found = body(
        *messages, tools=(ADD,), stream=stream, system="s", thinking_effort=effort, temperature=1
    )
    ours = {name: value for name, value in found.items() if name not in ("truncate", "shift")}
    theirs = sdk.ChatRequest.model_validate(ours).model_dump(exclude_none=True)
    theirs["messages"] = [
        sdk.Message.model_validate(
            {
                **message,
                "images": [sdk.Image(value=image) for image in message["images"]]
                if "images" in message
                else None,
            }
        ).model_dump(exclude_none=True)
        for message in ours["messages"]
    ]
    for message in ours["messages"]:
        message.pop("tool_call_id", None)  # newer servers read it; this client does not send it
        for call in message.get("tool_calls", ()):
            del call["id"]
    for tool in ours["tools"]:
        del tool["function"]["parameters"]["properties"]["b"]["default"]
    assert json.loads(json.dumps(theirs)) == ours
    said = [message for message in ours["messages"] if message["role"] != "system"]
    for before, after in itertools.pairwise(said):
        assert not before["role"] == after["role"] == "user"
    assert not said or (said[0]["role"] == "user" and said[-1]["role"] != "assistant")


def test_the_same_request_is_the_same_bytes_and_old_messages_are_not_encoded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-23, CTX-20: a message is encoded once, a tool too."""
    client = OllamaClient("m")
    old = (USER, CALLED, ANSWERED, Message.assistant("y"))
    request = ModelRequest(messages=(*old, Message.user("new")), tools=(ADD,), system="s")
    first = client.encode(request).body
    assert client.encode(request).body == first
    encoded: list[Any] = []
    wire = _json.wire

    def noted(value: Any) -> bytes:
        encoded.append(value)
        return wire(value)

    monkeypatch.setattr(_json, "wire", noted)
    assert client.encode(request).body == first
    texts = json.dumps(encoded)
    assert "and then?" not in texts
    assert "Add." not in texts
    fresh = [Message(message.role, message.parts) for message in request.messages]
    again = ModelRequest(messages=tuple(fresh), tools=(ADD,), system="s")
    assert client.encode(again).body == first
    assert "and then?" in json.dumps(encoded)
