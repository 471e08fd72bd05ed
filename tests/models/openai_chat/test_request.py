from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import completion_create_params as params
from pydantic import TypeAdapter

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
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.models.openai_chat.facts import PROFILES, profile_for

PNG = ImagePart("image/png", b"\x89PNG")
ADD = ToolSchema(
    name="add",
    description="Add.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
    },
)
STREAMING: TypeAdapter[Any] = TypeAdapter(params.CompletionCreateParamsStreaming)
WHOLE: TypeAdapter[Any] = TypeAdapter(params.CompletionCreateParamsNonStreaming)


def body(
    *messages: Message,
    profile: str = "openai",
    model: str = "m",
    provider: str = "acme",
    stream: bool = False,
    system: str | None = None,
    tools: tuple[ToolSchema, ...] = (),
    **options: Any,
) -> dict[str, Any]:
    client = OpenAIChatClient(model, profile=profile, provider=provider)
    request = ModelRequest(
        messages=messages, system=system, tools=tools, options=RequestOptions(**options)
    )
    encoded: dict[str, Any] = json.loads(client.encode(request, stream=stream).body)
    return encoded


def sent(*messages: Message, **rest: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(*messages, **rest)["messages"]
    return found


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


CALLED = Message.assistant(ToolCallPart("c1", "add", {"a": 1}), ToolCallPart("c2", "look", {}))
ANSWERED = Message.user(
    ToolResultPart("c1", "add", "1"), ToolResultPart("c2", "look", "seen"), "and then?"
)


@pytest.mark.parametrize("profile", PROFILES)
def test_results_of_a_batch_come_first_then_what_the_user_says(profile: str) -> None:
    """MOD-20, C1: one tool message for each result, in order, nothing in between."""
    messages = sent(Message.user("q"), CALLED, ANSWERED, profile=profile)
    assert roles(messages)[:4] == ["user", "assistant", "tool", "tool"]
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in messages[2:4]] == ids
    assert messages[-1] == {"role": "user", "content": "and then?"}


def test_a_user_never_follows_a_tool_result_at_mistral() -> None:
    """C4: Unexpected role 'user' after role 'tool'."""
    messages = sent(Message.user("q"), CALLED, ANSWERED, profile="mistral")
    assert roles(messages)[-3:] == ["tool", "assistant", "user"]


def test_arguments_are_replayed_to_the_letter() -> None:
    """MOD-1: the model's own text keeps the prompt cache; broken text is sent as an object."""
    own = '{ "a" :1}'
    message = Message.assistant(ToolCallPart("c1", "add", own), ToolCallPart("c2", "add", "[1"))
    first, second = sent(Message.user("q"), message)[1]["tool_calls"]
    assert first["function"]["arguments"] == own
    assert second["function"]["arguments"] == "{}"


def test_images_of_results_follow_in_a_user_message() -> None:
    """MOD-20: a tool message takes text only; OpenRouter takes images too."""
    result = ToolResultPart("c1", "add", (TextPart("see"), PNG))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    call = Message.assistant(ToolCallPart("c1", "add", {}))
    messages = sent(Message.user("q"), call, Message.user(result, "go on"))
    assert messages[2]["content"] == "see"
    assert messages[3]["content"][1:] == [image, {"type": "text", "text": "go on"}]
    messages = sent(Message.user("q"), call, Message.user(result), profile="openrouter")
    assert messages[2]["content"] == [{"type": "text", "text": "see"}, image]
    assert len(messages) == 3


def test_nothing_empty_is_sent() -> None:
    """C2: blank texts go, an empty result gets a word, an empty turn is left out."""
    messages = sent(
        Message.user("q", " \n"),
        Message.assistant(),
        Message.assistant("  ", ToolCallPart("c1", "add", {})),
        Message.user(ToolResultPart("c1", "add", " ")),
        Message.user("\n"),
        Message.system(""),
    )
    assert roles(messages) == ["user", "assistant", "tool"]
    assert messages[0]["content"] == "q"
    assert messages[1]["content"] is None
    assert messages[2]["content"] == "(no output)"


def test_a_failed_result_says_that_it_is_an_error() -> None:
    """MOD-20: there is no flag; the text says it, once."""
    message = Message.user(
        ToolResultPart("c1", "add", "no such file", is_error=True),
        ToolResultPart("c2", "look", "Error: not there", is_error=True),
    )
    messages = sent(Message.user("q"), CALLED, message)
    assert [m["content"] for m in messages[2:]] == ["Error: no such file", "Error: not there"]


def test_openai_takes_system_text_where_it_stands() -> None:
    """C3: its own role, its own message, after the system prompt and in the middle."""
    conversation = Message.system("head"), Message.user("q"), Message.system("tail")
    messages = sent(*conversation, system="s")
    assert [(m["role"], m["content"]) for m in messages] == [
        ("developer", "s"),
        ("developer", "head"),
        ("user", "q"),
        ("developer", "tail"),
    ]


def test_other_servers_get_one_leading_system_message() -> None:
    """C3, CTX-8: head notes join it; later ones are labelled user text near the tail."""
    conversation = Message.system("head"), Message.user("q"), Message.system("tail")
    messages = sent(*conversation, system="s", profile="deepseek")
    assert [(m["role"], m["content"]) for m in messages] == [
        ("system", "s\n\nhead"),
        ("user", "q"),
        ("user", "[system note]\ntail"),
    ]
    messages = sent(*conversation, system="s", profile="compatible")
    assert [(m["role"], m["content"]) for m in messages] == [
        ("system", "s\n\nhead"),
        ("user", "q\n\n[system note]\ntail"),
    ]


def test_picky_servers_get_alternating_roles_that_begin_and_end_with_the_user() -> None:
    """C4, CTX-21, MOD-20: merged on the outgoing copy, opened, never ending on the assistant."""
    conversation = Message.assistant("hi"), Message.user("a"), Message.user("b", PNG)
    messages = sent(*conversation, Message.assistant("done"), profile="vllm")
    assert roles(messages) == ["user", "assistant", "user", "assistant", "user"]
    assert [part["type"] for part in messages[2]["content"]] == ["text", "text", "image_url"]
    assert roles(sent(*conversation)) == ["assistant", "user", "user"]


@pytest.mark.parametrize(
    ("profile", "id", "expected"),
    [
        ("openai", "call_1", "call_1"),
        ("openai", "functions.add:0", r"call_[0-9a-f]{24}"),
        ("openai", "x" * 41, r"call_[0-9a-f]{24}"),
        ("moonshot", "functions.add:0", r"functions\.add:0"),
        ("mistral", "abcDEF123", "abcDEF123"),
        ("mistral", "call_1", r"[0-9a-f]{9}"),
    ],
)
def test_ids_fit_the_alphabet_of_the_server(profile: str, id: str, expected: str) -> None:
    """MOD-20: mapped by a hash, the same for a call and its result."""
    call = Message.assistant(ToolCallPart(id, "add", {}))
    result = Message.user(ToolResultPart(id, "add", "1"))
    messages = sent(Message.user("q"), call, result, profile=profile)
    made = messages[1]["tool_calls"][0]["id"]
    assert made == messages[2]["tool_call_id"]
    assert re.fullmatch(expected, made)


def test_names_that_no_server_takes_are_replayed_safely() -> None:
    """B19: a name that the model invented must not poison the next request."""
    call = Message.assistant(ToolCallPart("c1", "a b.c", {}), ToolCallPart("c2", "", {}))
    made = sent(Message.user("q"), call)[1]["tool_calls"]
    assert [each["function"]["name"] for each in made] == ["a_b_c", "unnamed"]


def thought(kind: str, provider: str = "acme", **fields: Any) -> ThinkingPart:
    return ThinkingPart("hm", provider=provider, model="m", kind=kind, **fields)


def test_reasoning_goes_back_only_to_its_provider_in_its_form() -> None:
    """MOD-20, B: dropped elsewhere; required, even empty, where the server says so."""
    call = ToolCallPart("c1", "add", {})
    own = Message.assistant(thought("reasoning_content"), call)
    foreign = Message.assistant(thought("reasoning_content", "other"), call)
    question = Message.user("q")
    for profile in ("deepseek", "moonshot"):
        assert sent(question, own, profile=profile)[1]["reasoning_content"] == "hm"
        assert sent(question, foreign, profile=profile)[1]["reasoning_content"] == ""
    assert sent(question, own, profile="groq")[1]["reasoning"] == "hm"
    for profile in ("openai", "compatible", "llama.cpp"):
        assert not sent(question, own, profile=profile)[1].keys() & {"reasoning_content"}


def test_sealed_reasoning_goes_back_whole() -> None:
    """A13: OpenRouter's details verbatim, Mistral's chunks in the content."""
    details = [{"type": "reasoning.encrypted", "data": "B", "index": 0}]
    part = thought("reasoning_details", signature=json.dumps(details))
    message = Message.assistant(part, "x")
    assert sent(Message.user("q"), message, profile="openrouter")[1]["reasoning_details"] == details
    message = Message.assistant(thought("thinking", signature="S"), "x")
    assert sent(Message.user("q"), message, Message.user("y"), profile="mistral")[1]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "signature": "S"},
        {"type": "text", "text": "x"},
    ]


def test_options_have_the_names_of_their_server() -> None:
    """MOD-3: each is there, none is dropped."""
    given = body(
        Message.user("q"),
        model="gpt-4.1",
        stream=True,
        tools=(ADD,),
        max_output_tokens=50,
        temperature=0,
        stop=("END",),
        tool_choice="add",
        response_schema={"type": "object", "properties": {}, "title": "My Answer!"},
        extra_body={"seed": 7, "model": "other"},
    )
    assert given["max_completion_tokens"] == 50
    assert (given["temperature"], given["stop"]) == (0, ["END"])
    assert given["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert given["response_format"]["json_schema"]["name"] == "My_Answer_"
    assert given["response_format"]["json_schema"]["strict"] is True
    assert (given["seed"], given["model"]) == (7, "other")
    assert given["stream_options"] == {"include_usage": True}
    given = body(Message.user("q"), profile="mistral", stream=True, max_output_tokens=50)
    assert given["max_tokens"] == 50
    assert "stream_options" not in given
    assert body(Message.user("q"), model="m", extra_body={})["model"] == "m"
    assert body(Message.user("q"), model="a")["model"] == "a"


def test_the_request_may_name_another_model() -> None:
    """MOD-3: an override for one request."""
    client = OpenAIChatClient("a", profile="openai")
    request = ModelRequest(messages=(Message.user("q"),), options=RequestOptions(model="b"))
    assert json.loads(client.encode(request).body)["model"] == "b"


@pytest.mark.parametrize(
    ("profile", "model", "options", "name"),
    [
        ("compatible", "m", {"strict_tools": True}, "strict_tools"),
        ("deepseek", "m", {"response_schema": {"type": "object"}}, "response_schema"),
        ("deepseek", "m", {"tool_choice": "required"}, "tool_choice"),
        ("moonshot", "m", {"tool_choice": "add"}, "tool_choice"),
        ("moonshot", "m", {"temperature": 0.5}, "temperature"),
        ("openai", "m", {"tool_choice": "unknown_tool"}, "tool_choice"),
        ("openai", "m", {"stop": tuple("abcde")}, "stop"),
        ("openai", "m", {"thinking_effort": "max"}, "thinking_effort"),
        ("openai", "gpt-4.1", {"thinking_effort": "low"}, "thinking_effort"),
        ("openai", "gpt-5.5", {}, "thinking_effort"),
        ("openai", "gpt-5.4-2026-03-05", {"thinking_effort": "low"}, "thinking_effort"),
        ("openai", "gpt-5", {"temperature": 0}, "temperature"),
        ("openai", "gpt-5", {"stop": ("x",)}, "stop"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_named(
    profile: str, model: str, options: dict[str, Any], name: str
) -> None:
    """MOD-3, MOD-27: before any byte is sent."""
    with pytest.raises(ConfigError, match=rf"RequestOptions\.{name}="):
        body(Message.user("q"), profile=profile, model=model, tools=(ADD,), **options)


def test_forcing_a_tool_without_tools_is_refused() -> None:
    """MOD-3: nothing is dropped in silence."""
    with pytest.raises(ConfigError, match="tool_choice"):
        body(Message.user("q"), tool_choice="required")
    assert "tool_choice" not in body(Message.user("q"), tool_choice="auto")


def test_models_that_can_call_tools_without_thinking_do() -> None:
    """MOD-27: gpt-5.4 does not think unless asked; later ones must be told not to."""
    assert "reasoning_effort" not in body(Message.user("q"), model="gpt-5.4", tools=(ADD,))
    given = body(Message.user("q"), model="gpt-5.5", tools=(ADD,), thinking_effort="none")
    assert given["reasoning_effort"] == "none"


def test_efforts_are_the_words_of_the_server() -> None:
    """MOD-27: each vendor's own fields."""
    given = body(Message.user("q"), profile="deepseek", thinking_effort="none")
    assert given["thinking"] == {"type": "disabled"}
    given = body(Message.user("q"), profile="deepseek", thinking_effort="medium")
    assert given["reasoning_effort"] == "high"
    given = body(Message.user("q"), profile="openrouter", thinking_effort="low")
    assert given["reasoning"] == {"effort": "low"}


def test_tool_names_that_cannot_be_sent_are_refused() -> None:
    """MOD-20: a name must come back as it went."""
    tool = ToolSchema(name="a.b", description="", input_schema={})
    with pytest.raises(ConfigError, match=r"a\.b"):
        body(Message.user("q"), tools=(tool,))


def test_strict_tools_fall_back_one_by_one() -> None:
    """MOD-21: a schema that the subset cannot express stays as it is, the other is closed."""
    free = ToolSchema(
        name="free",
        description="",
        input_schema={"type": "object", "additionalProperties": {"type": "string"}},
    )
    first, second = body(Message.user("q"), tools=(ADD, free), strict_tools=True)["tools"]
    assert first["function"]["strict"] is True
    assert first["function"]["parameters"]["required"] == ["a", "b"]
    assert "strict" not in second["function"]
    assert second["function"]["parameters"]["additionalProperties"] == {"type": "string"}


def test_a_message_is_turned_into_bytes_once() -> None:
    """MOD-23: the fragment is kept with the message, for each kind of server and provider."""
    message = Message.user("q")
    first = sent(message)
    (key,) = message.memo  # the bytes
    kept = message.memo[key]
    assert sent(message) == first
    assert message.memo[key] is kept
    sent(message, profile="mistral")
    assert len(message.memo) == 2


def test_lone_surrogates_never_reach_the_wire() -> None:
    """MOD-2: they are replaced in texts, names and arguments."""
    call = ToolCallPart("c1", "add\ud83d", {"a": "\ud83d"})
    messages = sent(Message.user("x\ud83d"), Message.assistant(call))
    assert messages[0]["content"] == "x\N{REPLACEMENT CHARACTER}"


def test_the_profile_is_told_by_the_address() -> None:
    """MOD-27: hosts, regions, Ollama's port; anything else is treated with care."""
    found = {
        "https://api.openai.com/v1": "openai",
        "https://eu.api.openai.com/v1": "openai",
        "https://api.deepseek.com": "deepseek",
        "https://r.openai.azure.com/openai/v1": "azure",
        "https://api.x.ai/v1": "xai",
        "http://localhost:11434/v1": "ollama",
        "http://localhost:8000/v1": "compatible",
        "https://notapi.openai.com.example.org": "compatible",
    }
    assert {url: profile_for(url).name for url in found} == found


texts = st.sampled_from(["hello", " ", "", "a\ud83d", "ü\u2028"])
images = st.just(PNG)
results = st.builds(
    ToolResultPart,
    st.sampled_from(["c1", "functions.x:0", ""]),
    st.just("add"),
    texts | st.lists(st.builds(TextPart, texts) | images, max_size=2).map(tuple),
    st.booleans(),
)
tool_calls = st.builds(
    ToolCallPart, st.sampled_from(["c1", "x" * 50]), st.sampled_from(["add", "?"]), texts
)
thoughts = st.builds(
    ThinkingPart, texts, provider=st.sampled_from(["acme", None]), kind=st.just("reasoning")
)


def parts(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Part]]:
    return st.lists(st.one_of(*kinds), max_size=3)


conversations = st.lists(
    parts(st.builds(TextPart, texts), images, results).map(lambda made: Message("user", made))
    | parts(st.builds(TextPart, texts), tool_calls, thoughts).map(
        lambda made: Message("assistant", made)
    )
    | parts(st.builds(TextPart, texts)).map(lambda made: Message("system", made)),
    max_size=5,
)


@given(conversations, st.sampled_from(sorted(PROFILES)), st.booleans())
def test_every_body_is_one_of_the_official_sdk(
    conversation: list[Message], profile: str, stream: bool
) -> None:
    """MOD-24: whatever the conversation holds, for every kind of server (MOD-20)."""
    given_body = body(
        *conversation, profile=profile, stream=stream, system="s", tools=(ADD,), tool_choice="auto"
    )
    messages = given_body["messages"]
    for message in messages:
        extras = [name for name in message if name.startswith("reasoning")]
        for name in extras:
            assert PROFILES[profile].echo in (name, f"{name}_details")
            del message[name]
        if message["role"] == "tool" and not isinstance(message["content"], str):
            assert PROFILES[profile].result_images
            message["content"] = "see"
        assert message["content"] or message.get("tool_calls")
    if PROFILES[profile].one_system:
        assert roles(messages).count("system") == 1
    (STREAMING if stream else WHOLE).validate_python(given_body, strict=True)


OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "cap": {"max_output_tokens": 100},
    "temperature": {"temperature": 1},
    "stop": {"stop": ("a", "b")},
    "schema": {"response_schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
    "closed schema": {
        "response_schema": {
            "title": "The reply",
            "type": "object",
            "properties": {"a": {"enum": ["x"]}},
            "required": ["a"],
        }
    },
    "strict": {"strict_tools": True},
    **{f"choice {name}": {"tool_choice": name} for name in ("auto", "none", "required", "add")},
    **{
        f"effort {name}": {"thinking_effort": name}
        for name in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    },
    "all": {
        "max_output_tokens": 9,
        "temperature": 1,
        "stop": ("a",),
        "strict_tools": True,
        "tool_choice": "add",
        "response_schema": {"type": "object"},
    },
}
OWN_FIELDS = {"thinking", "reasoning"}
"""Fields of the body that other vendors added to the API."""


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("profile", PROFILES)
def test_every_option_is_one_of_the_official_sdk_or_refused(profile: str, stream: bool) -> None:
    """MOD-24, MOD-3: each option for every kind of server, and each of its known models."""
    models = ["m", *PROFILES[profile].models]
    sent_some = 0
    for model, (name, options) in itertools.product(models, OPTIONS.items()):
        tools = () if name == "schema" else (ADD,)
        try:
            made = body(
                Message.user("q", PNG),
                CALLED,
                ANSWERED,
                profile=profile,
                model=model,
                stream=stream,
                system="s",
                tools=tools,
                **options,
            )
        except ConfigError:
            continue
        for message in made["messages"]:
            for field in [name for name in message if name.startswith("reasoning")]:
                del message[field]
        unknown = [field for field in OWN_FIELDS if field in made]
        for field in unknown:
            del made[field]
        if made.get("reasoning_effort") == "max":
            made["reasoning_effort"] = "high"  # a word of other vendors
        (STREAMING if stream else WHOLE).validate_python(made, strict=True)
        sent_some += 1
    assert sent_some >= len(models)


def test_requests_that_begin_alike_share_a_cache_key() -> None:
    """MOD-22: by system text and tools, whatever the conversation; a user's own key wins."""
    key = body(Message.user("a"), system="s", tools=(ADD,))["prompt_cache_key"]
    assert re.fullmatch("loopctl-[0-9a-f]{32}", key)
    again = ToolSchema(name=ADD.name, description="Add.", input_schema=dict(ADD.input_schema))
    assert body(CALLED, ANSWERED, system="s", tools=(again,))["prompt_cache_key"] == key
    assert body(Message.user("a"), system="t", tools=(ADD,))["prompt_cache_key"] != key
    assert body(Message.user("a"), tools=(ADD,))["prompt_cache_key"] != key
    own = {"prompt_cache_key": "mine"}
    assert body(Message.user("a"), system="s", extra_body=own)["prompt_cache_key"] == "mine"


def test_a_cache_key_goes_only_where_it_is_known_and_means_something() -> None:
    """MOD-22: other servers refuse or ignore it; without a common beginning there is none."""
    known = [
        name
        for name in PROFILES
        if "prompt_cache_key" in body(Message.user("a"), profile=name, system="s")
    ]
    assert known == ["openai", "azure", "openrouter"]
    assert "prompt_cache_key" not in body(Message.user("a"), system=" ")
