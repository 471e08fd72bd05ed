from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import response_create_params as params
from openai.types.responses.input_token_count_params import InputTokenCountParams
from pydantic import TypeAdapter

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
from loopctl.models.binding import RunningDigest
from loopctl.models.client import HttpRequest, ModelRequest, ToolSchema
from loopctl.models.openai_responses import OpenAIResponsesClient
from loopctl.models.openai_responses.facts import PROFILES, profile_for
from loopctl.models.openai_responses.messages import ITEM, PHASE, REASONING
from loopctl.models.openai_responses.request import encode_body

PNG = ImagePart("image/png", b"\x89PNG")
IMAGE = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw=="}
ADD = ToolSchema(
    name="add",
    description="Add.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
    },
)
LOOK = ToolSchema(name="look", description="Look.", input_schema={"type": "object"})
STREAMING: TypeAdapter[Any] = TypeAdapter(params.ResponseCreateParamsStreaming)
WHOLE: TypeAdapter[Any] = TypeAdapter(params.ResponseCreateParamsNonStreaming)
COUNTED: TypeAdapter[Any] = TypeAdapter(InputTokenCountParams)
Q = Message.user("q")


def encoded(
    *messages: Message,
    profile: str = "openai",
    model: str = "m",
    provider: str = "openai",
    stream: bool = False,
    system: str | None = None,
    tools: tuple[ToolSchema, ...] = (),
    head: int = 0,
    tail: int = 0,
    **options: Any,
) -> HttpRequest:
    client = OpenAIResponsesClient(model, profile=profile, provider=provider)
    request = ModelRequest(
        messages=messages,
        system=system,
        tools=tools,
        options=RequestOptions(**options),
        head=head,
        tail=tail,
    )
    return client.encode(request, stream=stream)


def body(*messages: Message, **rest: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encoded(*messages, **rest).body)
    return found


def sent(*messages: Message, **rest: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(*messages, **rest)["input"]
    return found


def kinds(items: list[dict[str, Any]]) -> list[str]:
    return [item["role"] if "role" in item else item["type"] for item in items]


def reasoning(
    id: str = "rs_1", *, model: str = "m", prefix: str | None = None, **fields: Any
) -> ThinkingPart:
    item = {"type": "reasoning", "id": id, "summary": [], "encrypted_content": "S+/="} | fields
    return ThinkingPart(
        signature=_json.dumps(item),
        provider="openai",
        model=model,
        prefix=prefix,
        kind=REASONING,
    )


def bound_to(request: HttpRequest, *, model: str = "m") -> ThinkingPart:
    assert request.prefix is not None
    return reasoning(model=model, prefix=request.prefix)


def thoughts(*messages: Message, **rest: Any) -> list[int]:
    """For each item of the assistant's, whether reasoning stands in front of it."""
    items = kinds(sent(*messages, **rest))
    return [
        int(before == "reasoning")
        for before, item in itertools.pairwise(["", *items])
        if item == "assistant"
    ]


CALLED = Message.assistant(ToolCallPart("c1", "add", {"a": 1}), ToolCallPart("c2", "look", {}))
ANSWERED = Message.user(
    "and then?", ToolResultPart("c1", "add", "1"), ToolResultPart("c2", "look", "seen")
)


# -- what a conversation becomes --------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_a_conversation_is_a_list_of_items(profile: str) -> None:
    """MOD-20, C1: results in order and first, under the ids of their calls; no ids of items."""
    items = sent(Q, Message.assistant("Well.", *CALLED.parts), ANSWERED, profile=profile)
    assert items == [
        {"role": "user", "content": "q"},
        {"type": "message", "role": "assistant", "content": "Well."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "seen"},
        {"role": "user", "content": "and then?"},
    ]


def test_results_come_before_what_the_user_said_in_an_earlier_message() -> None:
    """C1, A2: nothing between a call and its result."""
    result = Message.user(ToolResultPart("c1", "add", "1"))
    call = Message.assistant(ToolCallPart("c1", "add", {}))
    items = sent(Q, call, Message.user("steering"), result)
    assert kinds(items) == ["user", "function_call", "function_call_output", "user"]


def test_nothing_is_stored_and_reasoning_is_asked_for_sealed() -> None:
    """MOD-19: also on hosts that give it on request only; not of models that have none."""
    made = body(Q, profile="xai")
    assert (made["store"], made["include"]) == (False, ["reasoning.encrypted_content"])
    made = body(Q, model="gpt-4.1")
    assert made["store"] is False
    assert "include" not in made
    made = body(Q, profile="compatible")
    assert made["store"] is False
    assert not made.keys() & {"include", "prompt_cache_key"}


def test_items_stay_in_their_order() -> None:
    """A13, MOD-20: what was said between two calls stays there; at picky servers calls are last."""
    said = Message.assistant(
        reasoning(), "one", ToolCallPart("c1", "add", {}), reasoning("rs_2"), "two", CALLED.calls[1]
    )
    order = ["reasoning", "assistant", "function_call", "reasoning", "assistant", "function_call"]
    assert kinds(sent(Q, said, ANSWERED))[1:7] == order
    order = sorted(order, key="function_call".__eq__)
    assert kinds(sent(Q, said, ANSWERED, profile="compatible"))[1:7] == order


def test_images_ride_in_messages_and_in_results() -> None:
    """MOD-20: as data; a server that is not known to take them in results gets them behind."""
    result = ToolResultPart("c1", "add", (TextPart("see"), PNG))
    call = Message.assistant(ToolCallPart("c1", "add", {}))
    items = sent(Message.user("q", PNG), call, Message.user(result, "go on"))
    assert items[0]["content"] == [{"type": "input_text", "text": "q"}, IMAGE]
    assert items[2]["output"] == [{"type": "input_text", "text": "see"}, IMAGE]
    assert items[3]["content"] == "go on"
    only = ToolResultPart("c1", "add", (PNG,))
    items = sent(Q, call, Message.user(only, "go on"), profile="compatible")
    assert items[2]["output"] == "(an image)"
    assert items[3]["content"][1:] == [IMAGE, {"type": "input_text", "text": "go on"}]


def test_nothing_empty_is_sent() -> None:
    """C2: blank texts go, an empty result gets a word, an empty turn is left out."""
    items = sent(
        Message.user("q", " \n"),
        Message.assistant(),
        Message.assistant("  ", ToolCallPart("c1", "add", {})),
        Message.user(ToolResultPart("c1", "add", " ")),
        Message.user("\n"),
        Message.system(""),
    )
    assert kinds(items) == ["user", "function_call", "function_call_output"]
    assert (items[0]["content"], items[2]["output"]) == ("q", "(no output)")


def test_there_is_always_something_to_answer() -> None:
    """MOD-20, C4: an empty input is refused; the assistant has neither first word nor last."""
    assert kinds(sent(system="s")) == ["user"]
    assert kinds(sent(Message.assistant("a"))) == ["user", "assistant", "user"]


def test_a_failed_result_says_that_it_is_an_error() -> None:
    """MOD-20: there is no flag; the text says it, once."""
    message = Message.user(
        ToolResultPart("c1", "add", "no such file", is_error=True),
        ToolResultPart("c2", "look", "Error: not there", is_error=True),
    )
    items = sent(Q, CALLED, message)
    assert [item["output"] for item in items[3:]] == ["Error: no such file", "Error: not there"]


def test_system_text_stands_where_it_was_said() -> None:
    """C3, CTX-8: the prompt in its own field, notes as the vendor's role for them."""
    conversation = Message.system("head"), Q, Message.system("tail")
    for profile, role in (("openai", "developer"), ("azure", "developer"), ("xai", "system")):
        made = body(*conversation, system="s", profile=profile)
        assert made["instructions"] == "s"
        assert [(item["role"], item["content"]) for item in made["input"]] == [
            (role, "head"),
            ("user", "q"),
            (role, "tail"),
        ]


def test_other_servers_get_one_system_text() -> None:
    """C3, CTX-8: head notes join it; later ones are labelled user text."""
    conversation = Message.system("head"), Q, Message.system("tail")
    made = body(*conversation, system="s", profile="compatible")
    assert made["instructions"] == "s\n\nhead"
    assert [(item["role"], item["content"]) for item in made["input"]] == [
        ("user", "q"),
        ("user", "[system note]\ntail"),
    ]


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("call_1", "call_1"),
        ("x" * 64, "x{64}"),
        ("f.add:0", "call_.{24}"),
        ("x" * 65, "call_.{24}"),
    ],
)
def test_ids_fit_the_alphabet(id: str, expected: str) -> None:
    """MOD-20: mapped by a hash, the same for a call and its result."""
    call = Message.assistant(ToolCallPart(id, "add", {}))
    _, made, result = sent(Q, call, Message.user(ToolResultPart(id, "add", "1")))
    assert made["call_id"] == result["call_id"]
    assert re.fullmatch(expected, made["call_id"])


def test_an_id_that_another_turn_had_is_made_unique() -> None:
    """B18: some hosts begin anew with each reply."""
    round_trip = (
        CALLED,
        Message.user(ToolResultPart("c1", "add", "1"), ToolResultPart("c2", "look", "2")),
    )
    items = sent(Q, *round_trip, *round_trip)
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert calls == results
    assert len(set(calls)) == 4


def test_names_that_no_server_takes_are_replayed_safely() -> None:
    """B19: a name that the model invented must not poison the next request."""
    call = Message.assistant(ToolCallPart("c1", "a b.c", {}), ToolCallPart("c2", "", {}))
    assert [item["name"] for item in sent(Q, call)[1:3]] == ["a_b_c", "unnamed"]


def test_arguments_are_replayed_to_the_letter() -> None:
    """MOD-1, B20: the model's own text keeps the prompt cache; broken text is sent as an object."""
    own = '{ "a" :1}'
    message = Message.assistant(ToolCallPart("c1", "add", own), ToolCallPart("c2", "add", "[1"))
    assert [item["arguments"] for item in sent(Q, message)[1:3]] == [own, "{}"]


# -- reasoning, phases and the server's own items ---------------------------------------------


def test_reasoning_goes_back_byte_for_byte() -> None:
    """A13, MOD-20: the item as it came, whatever its text looks like."""
    part = reasoning(summary=[{"type": "summary_text", "text": "hm 🙂  "}], extra=1.50)
    request = encoded(Q, Message.assistant(part, "a"), Q)
    assert str(part.signature).encode() in request.body
    assert thoughts(Q, Message.assistant(part, "a"), Q) == [1]


def test_reasoning_goes_back_only_to_the_model_that_it_is_of() -> None:
    """MOD-18, MOD-20: neither another provider's, nor another model's, nor an unsealed one."""
    for other in (
        ThinkingPart("hm", signature="sealed by openai", provider="openai", kind=REASONING),
        ThinkingPart("hm", provider="openai", model="m", kind=REASONING),
        ThinkingPart("hm", signature=str(reasoning().signature), provider="azure", kind=REASONING),
        reasoning(model="other"),
    ):
        assert thoughts(Q, Message.assistant(other, "a"), Q) == [0]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    """MOD-20: 400 "was provided without its required following item"."""
    assert kinds(sent(Q, Message.assistant(reasoning()), Message.user("go on"))) == ["user", "user"]
    message = Message.assistant(reasoning(), "a", reasoning("rs_2"), " ")
    assert kinds(sent(Q, message, Q)) == ["user", "reasoning", "assistant", "user"]


def test_the_phase_goes_back_with_its_text() -> None:
    """MOD-20: also to another model of the provider, and when the reasoning is gone."""
    comment = ThinkingPart(
        signature="commentary", provider="openai", model="other", prefix="gone", kind=PHASE
    )
    message = Message.assistant(reasoning(prefix="gone"), comment, "Let me see.", CALLED.calls[0])
    items = sent(Q, message, Message.user(ToolResultPart("c1", "add", "1")))
    said = {"type": "message", "role": "assistant", "content": "Let me see."}
    assert items[1] == {**said, "phase": "commentary"}
    message = Message.assistant(comment, "Let me see.", "There.")
    assert [item.get("phase") for item in sent(Q, message, Q)[1:3]] == ["commentary", None]
    foreign = ThinkingPart(signature="commentary", provider="azure", model="m", kind=PHASE)
    assert sent(Q, Message.assistant(foreign, "Let me see."), Q)[1] == said


def test_items_of_the_servers_own_tools_go_back_as_they_came() -> None:
    """MOD-20: those that it has answered itself; one that waits for an answer would be refused."""

    def made(kind: str) -> ThinkingPart:
        item = {"type": kind, "id": "x_1", "status": "completed"}
        sealed = json.dumps(item)
        return ThinkingPart("", sealed, redacted=True, provider="openai", model="m", kind=ITEM)

    message = Message.assistant(made("web_search_call"), made("computer_call"), "found")
    assert kinds(sent(Q, message, Q)) == ["user", "web_search_call", "assistant", "user"]


def test_bound_reasoning_goes_back_only_behind_what_it_answered() -> None:
    """MOD-26: system, tools, messages as sent, transients included; history keeps it."""
    common: dict[str, Any] = {"system": "s", "tools": (ADD,)}
    head = Message.system("steady")
    first = Message.assistant(bound_to(encoded(head, Q, head=1, **common)), "a")
    second = Message.user("b")
    later = Message.assistant(bound_to(encoded(head, Q, first, second, head=1, **common)), "c")
    whole = (head, Q, first, second, later, Q)
    assert thoughts(*whole, head=1, **common) == [1, 1]
    changed = Message.system("changed")
    assert thoughts(changed, *whole[1:], head=1, **common) == [0, 0]
    assert thoughts(*whole[1:], **common) == [0, 0]
    for other in ({"system": "t"}, {"tools": (ADD, LOOK)}, {"tools": ()}, {"model": "n"}):
        assert thoughts(*whole, head=1, **{**common, **other}) == [0, 0]
    assert thoughts(head, Q, first, Message.user("B"), later, Q, head=1, **common) == [1, 0]


def test_a_tail_transient_ends_reasoning_with_its_turn() -> None:
    """MOD-26: it is part of what was sent, and gone from the next request."""
    tailed = encoded(Q, Message.user("note"), tail=1)
    first = Message.assistant(bound_to(tailed), "a")
    assert thoughts(Q, first, Q, Message.user("note"), tail=1) == [0]
    then = encoded(Q, first, Q)
    assert thoughts(Q, first, Q, Message.assistant(bound_to(then), "b"), Q) == [0, 1]


def test_options_bind_nothing_and_some_servers_bind_nothing_at_all() -> None:
    """MOD-26: the digest is the same in any process, and there only where it is of use."""
    before = encoded(Q).prefix
    assert before == encoded(Message.user("q"), max_output_tokens=5, stream=True).prefix
    assert before != encoded(Q, extra_body={"input": []}).prefix
    assert before != encoded(Q, system="s").prefix
    for profile, bound in (("openai", 1), ("azure", 1), ("xai", 0), ("compatible", 0)):
        assert (encoded(Q, profile=profile).prefix is not None) is bool(bound)
        message = Message.assistant(reasoning(prefix=None), "a")
        assert thoughts(Q, message, Q, profile=profile) == [1]


# -- options ----------------------------------------------------------------------------------


def test_options_have_the_names_of_the_api() -> None:
    """MOD-3: each is there, flat, none is dropped; `strict` is always said."""
    schema = {"type": "object", "properties": {}, "title": "My Answer!"}
    made = body(
        Q,
        model="gpt-5.4",
        stream=True,
        tools=(ADD,),
        max_output_tokens=50,
        temperature=0,
        tool_choice="add",
        thinking_effort="none",
        response_schema=schema,
        extra_body={"metadata": {"a": "b"}, "store": True},
    )
    assert made["max_output_tokens"] == 50
    assert made["temperature"] == 0
    assert made["tool_choice"] == {"type": "function", "name": "add"}
    assert made["reasoning"] == {"effort": "none"}
    assert made["text"]["format"].pop("schema")["additionalProperties"] is False
    assert made["text"] == {"format": {"type": "json_schema", "name": "My_Answer_", "strict": True}}
    assert (made["metadata"], made["store"], made["stream"]) == ({"a": "b"}, True, True)
    (tool,) = made["tools"]
    assert (tool["type"], tool["name"], tool["strict"]) == ("function", "add", False)
    assert tool["parameters"] == ADD.input_schema


def test_the_request_may_name_another_model() -> None:
    """MOD-3: an override for one request; what was sealed for the other stays behind."""
    client = OpenAIResponsesClient("m")
    messages = Q, Message.assistant(reasoning(), "a"), Q
    request = ModelRequest(messages=messages, options=RequestOptions(model="gpt-4.1"))
    made = json.loads(client.encode(request).body)
    assert made["model"] == "gpt-4.1"
    assert kinds(made["input"]) == ["user", "assistant", "user"]
    assert "include" not in made


@pytest.mark.parametrize(
    ("profile", "model", "options", "name"),
    [
        ("openai", "m", {"stop": ("x",)}, "stop"),
        ("compatible", "m", {"stop": ("x",)}, "stop"),
        ("compatible", "m", {"strict_tools": True}, "strict_tools"),
        ("xai", "m", {"strict_tools": True}, "strict_tools"),
        ("openai", "m", {"tool_choice": "unknown_tool"}, "tool_choice"),
        ("openai", "gpt-7-nobody-knows", {"temperature": 0}, "temperature"),
        ("openai", "gpt-5.5", {"temperature": 0.5}, "temperature"),
        ("openai", "gpt-5.4", {"temperature": 0, "thinking_effort": "low"}, "temperature"),
        ("openai", "gpt-6-astra", {"thinking_effort": "none"}, "thinking_effort"),
        ("openai", "gpt-5.4-2026-03-05", {"thinking_effort": "max"}, "thinking_effort"),
        ("openai", "gpt-4.1", {"thinking_effort": "low"}, "thinking_effort"),
        ("xai", "grok-4.6", {"thinking_effort": "none"}, "thinking_effort"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_named(
    profile: str, model: str, options: dict[str, Any], name: str
) -> None:
    """MOD-3, MOD-27: before any byte is sent."""
    with pytest.raises(ConfigError, match=rf"RequestOptions\.{name}="):
        body(Q, profile=profile, model=model, tools=(ADD,), **options)


def test_forcing_a_tool_without_tools_is_refused() -> None:
    """MOD-3: nothing is dropped in silence."""
    with pytest.raises(ConfigError, match="tool_choice"):
        body(Q, tool_choice="required")
    assert "tool_choice" not in body(Q, tool_choice="auto")


def test_a_model_may_be_as_hot_as_it_is_unasked() -> None:
    """MOD-27: temperature 1 is what a thinking model does; others take any."""
    assert body(Q, model="gpt-5.5", temperature=1)["temperature"] == 1
    for model in ("gpt-5.4", "gpt-4.1"):
        assert body(Q, model=model, temperature=0)["temperature"] == 0
    for profile in ("azure", "xai", "compatible"):
        assert body(Q, profile=profile, temperature=0)["temperature"] == 0


def test_efforts_are_those_of_the_model() -> None:
    """MOD-27: `max` exists here; an unknown model is taken for the newest."""
    for model in ("gpt-6-sol", "gpt-9", "gpt-6.2-astra"):
        assert body(Q, model=model, thinking_effort="max")["reasoning"] == {"effort": "max"}
    assert "reasoning" not in body(Q, model="gpt-6-sol")


def test_tool_names_that_cannot_be_sent_are_refused() -> None:
    """MOD-20: a name must come back as it went."""
    tool = ToolSchema(name="a.b", description="", input_schema={})
    with pytest.raises(ConfigError, match=r"a\.b"):
        body(Q, tools=(tool,))


def test_strict_tools_fall_back_one_by_one() -> None:
    """MOD-21: a schema that the subset cannot express stays as it is, the other is closed."""
    free = ToolSchema(
        name="free",
        description="",
        input_schema={"type": "object", "additionalProperties": {"type": "string"}},
    )
    first, second = body(Q, tools=(ADD, free), strict_tools=True)["tools"]
    assert (first["strict"], second["strict"]) == (True, False)
    assert first["parameters"]["required"] == ["a", "b"]
    assert second["parameters"]["additionalProperties"] == {"type": "string"}
    loose = body(Q, response_schema=free.input_schema)["text"]["format"]
    assert (loose["strict"], loose["schema"]) == (False, free.input_schema)


def test_requests_that_begin_alike_share_a_cache_key() -> None:
    """MOD-22: by system text and tools, whatever the conversation; a user's own key wins."""
    key = body(Q, system="s", tools=(ADD,))["prompt_cache_key"]
    assert re.fullmatch("loopctl-[0-9a-f]{32}", key)
    assert body(Q, CALLED, ANSWERED, system="s", tools=(ADD,))["prompt_cache_key"] == key
    assert body(Q, system="t", tools=(ADD,))["prompt_cache_key"] != key
    own = {"prompt_cache_key": "mine"}
    assert body(Q, system="s", extra_body=own)["prompt_cache_key"] == "mine"
    assert "prompt_cache_key" not in body(Q)
    known = [name for name in PROFILES if "prompt_cache_key" in body(Q, profile=name, system="s")]
    assert known == ["openai", "azure", "xai"]


def test_the_profile_is_told_by_the_address() -> None:
    """MOD-27: hosts and regions; anything else is treated with care."""
    found = {
        "https://api.openai.com/v1": "openai",
        "https://eu.api.openai.com/v1": "openai",
        "https://r.openai.azure.com/openai/v1": "azure",
        "https://api.x.ai/v1": "xai",
        "http://localhost:8000/v1": "compatible",
        "https://notapi.openai.com.example.org": "compatible",
    }
    assert {url: profile_for(url).name for url in found} == found


# -- bytes ------------------------------------------------------------------------------------


def test_lone_surrogates_never_reach_the_wire() -> None:
    """MOD-2: they are replaced in texts, names and what goes back as it came; escapes too."""
    call = ToolCallPart("c1", "add\ud83d", {})
    part = reasoning(note="\ud83d")
    assert "\\ud83d" in str(part.signature)
    request = encoded(Message.user("x\ud83d"), Message.assistant(part, call))
    assert b"ud83d" not in request.body
    items = json.loads(request.body)["input"]
    assert items[0]["content"] == "x\N{REPLACEMENT CHARACTER}"
    assert items[1] == json.loads(str(reasoning(note="\N{REPLACEMENT CHARACTER}").signature))


def test_each_kind_of_server_keeps_its_own_bytes() -> None:
    """MOD-23: what one was sent is not what another is."""
    note = Message.system("n")
    first = sent(Q, note, profile="openai")
    assert sent(Q, note, profile="compatible") != first
    assert sent(Q, note, profile="openai") == first


def test_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-23: a thousand old messages cost a look, one new message its bytes."""
    long = [Q]
    while len(long) < 1_000:
        call = ToolCallPart(f"c{len(long)}", "add", {})
        long += [Message.assistant(call), Message.user(ToolResultPart(call.id, "add", "1"))]
    for model in ("m", "other"):
        encoded(*long, model=model)
    looked: list[Message] = []
    original = RunningDigest.add

    def add(self: RunningDigest, message: Message, fragment: bytes) -> None:
        looked.append(message)
        original(self, message, fragment)

    monkeypatch.setattr(RunningDigest, "add", add)
    answer, more = Message.assistant("a"), Message.user("b")
    encoded(*long, answer, more, Message.system("note"), tail=1)
    assert len(looked) == 3


def afresh(message: Message) -> Message:
    return Message(message.role, message.parts)


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
    ToolCallPart, st.sampled_from(["c1", "x" * 70]), st.sampled_from(["add", "?"]), texts
)
thinking = st.sampled_from(
    [
        reasoning(),
        reasoning(prefix="p"),
        ThinkingPart("hm", provider="openai", kind=REASONING),
        ThinkingPart("hm", signature="S", provider="acme", kind=REASONING),
        ThinkingPart(signature="commentary", provider="openai", kind=PHASE),
    ]
)


def parts(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Part]]:
    return st.lists(st.one_of(*kinds), max_size=3)


messages = st.one_of(
    parts(st.builds(TextPart, texts), images, results).map(lambda made: Message("user", made)),
    parts(st.builds(TextPart, texts), tool_calls, thinking).map(
        lambda made: Message("assistant", made)
    ),
    parts(st.builds(TextPart, texts)).map(lambda made: Message("system", made)),
)


@given(st.lists(messages, max_size=5), st.sampled_from(sorted(PROFILES)), st.booleans())
def test_every_body_is_one_of_the_official_sdk(
    conversation: list[Message], profile: str, stream: bool
) -> None:
    """MOD-24: whatever the conversation holds, for every kind of server (MOD-20)."""
    made = body(
        *conversation, profile=profile, stream=stream, system="s", tools=(ADD,), tool_choice="auto"
    )
    (STREAMING if stream else WHOLE).validate_python(made, strict=True)
    assert made["input"]
    for item in made["input"]:
        assert item.get("content", True) or item["type"] == "reasoning"
        assert item.get("output", True)


@given(st.lists(messages, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_what_is_kept_changes_no_byte(conversation: list[Message], rng: random.Random) -> None:
    """MOD-23: growing, cut, changed at the end, with other transients, for other models."""
    heads = [(), (Message.user("u"),), (Message.system("s"), Message.assistant("a"))]
    tails = [(), (Message.user("t"),), (Message.system("n"),)]
    count = 0
    for _ in range(8):
        count = rng.choice([count, count + 1, count + 2, len(conversation), rng.randint(0, 3)])
        said = [*conversation[:count], *([Message.user("other")] if rng.random() < 0.3 else [])]
        head, tail = rng.choice(heads), rng.choice(tails)
        rest: dict[str, Any] = {
            "model": rng.choice(["m", "gpt-4.1"]),
            "profile": rng.choice(["openai", "compatible"]),
            "head": len(head),
            "tail": len(tail),
            "tools": (ADD,),
        }
        kept = encoded(*head, *said, *tail, **rest)
        fresh = encoded(*head, *map(afresh, said), *tail, **rest)
        assert kept.body == fresh.body
        assert kept.prefix == fresh.prefix


OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "cap": {"max_output_tokens": 100},
    "temperature": {"temperature": 1},
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
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("profile", PROFILES)
def test_every_option_is_one_of_the_official_sdk_or_refused(profile: str, stream: bool) -> None:
    """MOD-24, MOD-3: each option for every kind of server and each of its known models."""
    models = ["m", *PROFILES[profile].models]
    sent_some = 0
    for model, (name, options) in itertools.product(models, OPTIONS.items()):
        rest = {"system": "s", "tools": () if name == "schema" else (ADD,), **options}
        said = Message.assistant(reasoning(model=model), *CALLED.parts)
        conversation = Message.user("q", PNG), said, ANSWERED
        try:
            made = body(*conversation, profile=profile, model=model, stream=stream, **rest)
        except ConfigError:
            continue
        (STREAMING if stream else WHOLE).validate_python(made, strict=True)
        sent_some += 1
    assert sent_some >= len(models)


def test_a_request_for_a_count_is_one_of_the_official_sdk() -> None:
    """MOD-24: of the same conversation, without what only an answer needs."""
    options = RequestOptions(max_output_tokens=5, thinking_effort="low")
    request = ModelRequest(
        messages=(Q, CALLED, ANSWERED), system="s", tools=(ADD,), options=options
    )
    made = encode_body(request, model="m", profile=PROFILES["openai"], provider="openai")
    counted = json.loads(made.counted())
    COUNTED.validate_python(counted, strict=True)
    assert counted.keys() == {"model", "instructions", "tools", "input", "reasoning"}
