from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_params
from hypothesis import given
from hypothesis import strategies as st
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
from loopctl.models.anthropic import AnthropicClient
from loopctl.models.anthropic.facts import facts_for
from loopctl.models.anthropic.request import REPLY_TOOL
from loopctl.models.binding import RunningDigest
from loopctl.models.claude import MODELS, NEWEST
from loopctl.models.client import HttpRequest, ModelRequest, ToolSchema

PNG = ImagePart("image/png", b"\x89PNG")
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
}
MARK = {"type": "ephemeral"}
ADD = ToolSchema(
    name="add",
    description="Add.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
    },
)
LOOK = ToolSchema(name="look", description=" ", input_schema={})
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

STREAMING: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParamsStreaming)
WHOLE: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParamsNonStreaming)
BETA: TypeAdapter[Any] = TypeAdapter(beta_params.MessageCreateParamsNonStreaming)
COUNTED: TypeAdapter[Any] = TypeAdapter(message_count_tokens_params.MessageCountTokensParams)


def encoded(
    *messages: Message,
    model: str = "claude-opus-4-6",
    provider: str = "anthropic",
    base_url: str = "https://api.anthropic.com",
    stream: bool = False,
    system: str | None = None,
    tools: tuple[ToolSchema, ...] = (),
    head: int = 0,
    tail: int = 0,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> HttpRequest:
    client = AnthropicClient(model, provider=provider, base_url=base_url, headers=headers)
    request = ModelRequest(
        messages=messages,
        system=system,
        tools=tools,
        head=head,
        tail=tail,
        options=RequestOptions(**options),
    )
    return client.encode(request, stream=stream)


def body(*messages: Message, **rest: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encoded(*messages, **rest).body)
    return found


def unmarked(value: Any) -> Any:
    """A JSON value without cache marks."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def marks(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(marks(item) for item in value.values())
    return sum(marks(item) for item in value) if isinstance(value, list) else 0


def sent(*messages: Message, **rest: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = unmarked(body(*messages, **rest)["messages"])
    return found


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


Q = Message.user("q")
CALLED = Message.assistant(ToolCallPart("c1", "add", {"a": 1}), ToolCallPart("c2", "look", {}))
ANSWERED = Message.user(
    "and then?", ToolResultPart("c1", "add", "1"), ToolResultPart("c2", "look", "seen")
)


def test_results_of_a_batch_come_first_in_one_message_then_what_the_user_says() -> None:
    """MOD-20, C1: a note and a steering message ride behind them, images stay in the result."""
    pictured = ToolResultPart("c1", "add", (TextPart("see"), PNG, TextPart(" ")))
    messages = sent(
        Q,
        CALLED,
        Message.user(pictured, ToolResultPart("c2", "look", "no", is_error=True)),
        Message.user("steering"),
        Message.system("a note"),
        tail=1,
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    first, second, *texts = messages[2]["content"]
    assert first == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [text("see"), IMAGE],
    }
    assert second == {
        "type": "tool_result",
        "tool_use_id": "c2",
        "content": "no",
        "is_error": True,
    }
    assert texts == [text("steering"), text("[system note]\na note")]
    assert kinds(sent(Q, CALLED, ANSWERED)[2]) == ["tool_result", "tool_result", "text"]


def test_a_failed_result_keeps_its_images_beside_it() -> None:
    """MOD-20: the API takes only text in a result that is an error."""
    failed = ToolResultPart("c1", "add", (TextPart("broken"), PNG), is_error=True)
    *_, last = sent(Q, Message.assistant(ToolCallPart("c1", "add", {})), Message.user(failed))
    assert last["content"][0]["content"] == "broken"
    assert last["content"][1:] == [text("Images from the result of add:"), IMAGE]


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
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"] == [text("q")]
    assert kinds(messages[1]) == ["tool_use"]
    assert messages[2]["content"][0]["content"] == "(no output)"
    assert sent() == [{"role": "user", "content": [text("(the conversation goes on)")]}]


def test_roles_alternate_and_the_user_begins_and_ends() -> None:
    """C4, MOD-20: no prefill, which the newer models refuse."""
    messages = sent(Message.assistant("a"), Message.user("b"), Q, Message.assistant("c", "d"))
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert messages[2]["content"] == [text("b"), text("q")]
    assert messages[3]["content"] == [text("c"), text("d")]
    assert messages[4]["content"] == [text("Continue.")]


def test_arguments_are_sent_as_the_object_that_the_model_wrote() -> None:
    """MOD-1, B20: to the letter; broken text is an empty object, a lone surrogate no trouble."""
    calls = Message.assistant(
        ToolCallPart("c1", "add", '{ "a" :1, "t": "你"}'),
        ToolCallPart("c2", "add", "[1"),
        ToolCallPart("c3", "add", '{"a":"\\ud83d"}'),
        ToolCallPart("c4", "add", '{"a":"\ud83d"}'),
    )
    request = encoded(Q, calls)
    assert '"input":{ "a" :1, "t": "你"}'.encode() in request.body
    inputs = [block["input"] for block in json.loads(request.body)["messages"][1]["content"]]
    assert inputs == [{"a": 1, "t": "你"}, {}, {"a": "�"}, {"a": "?"}]


def test_ids_and_names_are_ones_that_the_api_takes() -> None:
    """MOD-20: mapped the same way in a call and its result."""
    call = ToolCallPart("functions.add:0", "a.b", {})
    messages = sent(Q, Message.assistant(call), Message.user(ToolResultPart(call.id, "a.b", "1")))
    (use,), (result,) = messages[1]["content"], messages[2]["content"]
    assert re.fullmatch("[a-zA-Z0-9_-]+", use["id"])
    assert (result["tool_use_id"], use["name"]) == (use["id"], "a_b")


def test_an_id_that_was_used_before_gets_a_new_one_on_the_way_out() -> None:
    """B18: reuse across turns is allowed in a conversation, and refused by the API."""
    turn = (
        Message.assistant(ToolCallPart("c1", "add", {})),
        Message.user(ToolResultPart("c1", "add", "1")),
    )
    for _ in range(2):
        messages = sent(Q, *turn, *turn, *turn)
        uses = [block["id"] for m in messages[1::2] for block in m["content"]]
        results = [block["tool_use_id"] for m in messages[2::2] for block in m["content"]]
        assert uses == results
        assert len(set(uses)) == 3
        assert uses[0] == "c1"


def test_images_are_named_by_what_they_are() -> None:
    """MOD-20: the API compares the type with the bytes; what it cannot read is told in words."""
    images = (
        ImagePart("image/png", b"\xff\xd8\xff"),
        ImagePart("image/jpg", b"?"),
        ImagePart("application/octet-stream", b"RIFF1234WEBPVP8"),
        ImagePart("image/png", b"GIF89a"),
        ImagePart("image/tiff", b"II*"),
    )
    (message,) = sent(Message.user(*images))
    *sources, last = message["content"]
    found = [image["source"]["media_type"] for image in sources]
    assert found == ["image/jpeg", "image/jpeg", "image/webp", "image/gif"]
    assert last == text("(an image of type image/tiff, left out)")


THOUGHT = ThinkingPart("", signature="S1==\n", provider="anthropic", model="claude-opus-4-6")


def test_thinking_goes_back_byte_exact_where_it_stood() -> None:
    """A13, MOD-20: an empty signed block is valid; a redacted one is data alone."""
    sealed = ThinkingPart("", signature="data", redacted=True, provider="anthropic")
    message = Message.assistant(THOUGHT, "a", sealed, ToolCallPart("c1", "add", {}))
    content = sent(Q, message, Message.user(ToolResultPart("c1", "add", "1")))[1]["content"]
    assert content[0] == {"type": "thinking", "thinking": "", "signature": "S1==\n"}
    assert content[1] == text("a")
    assert content[2] == {"type": "redacted_thinking", "data": "data"}


@pytest.mark.parametrize(
    "part",
    [
        ThinkingPart("hm", signature="S", provider="other", model="claude-opus-4-6"),
        ThinkingPart("hm", signature="S", provider="anthropic", model="claude-opus-4-5"),
        ThinkingPart("hm", provider="anthropic", model="claude-opus-4-6"),
        ThinkingPart("hm", signature="", provider="anthropic", model="claude-opus-4-6"),
        ThinkingPart("hm"),
    ],
)
def test_thinking_of_others_or_without_a_signature_is_left_out(part: ThinkingPart) -> None:
    """MOD-20, MOD-18: also when it is all that the message says."""
    assert sent(Q, Message.assistant(part, "a"))[1]["content"] == [text("a")]
    assert len(sent(Q, Message.assistant(part))) == 1


def test_no_message_ends_with_thinking() -> None:
    """MOD-20: a reply that was cut while it thought."""
    messages = sent(Q, Message.assistant(THOUGHT, "a", THOUGHT), Q, Message.assistant(THOUGHT), Q)
    assert [kinds(message) for message in messages] == [
        ["text"],
        ["thinking", "text"],
        ["text"] * 2,
    ]


def block(**fields: Any) -> ThinkingPart:
    sealed = json.dumps(fields, separators=(",", ":"))
    return ThinkingPart("", sealed, redacted=True, provider="anthropic", kind="block")


def test_blocks_of_the_servers_own_tools_go_back_in_pairs() -> None:
    """C8, MOD-20: a use without its result is refused, except beside open calls."""
    use = block(type="server_tool_use", id="s1", name="web_search", input={"q": "x"})
    found = block(type="web_search_tool_result", tool_use_id="s1", content=[])
    other = block(type="container_upload", file_id="f")
    message = Message.assistant("a", use, found, other, "b")
    expected = ["text", "server_tool_use", "web_search_tool_result", "container_upload", "text"]
    assert kinds(sent(Q, message, Q)[1]) == expected
    assert kinds(sent(Q, Message.assistant("a", use), Q)[1]) == ["text"]
    assert kinds(sent(Q, Message.assistant("a", found), Q)[1]) == ["text"]
    open_use = Message.assistant(use, ToolCallPart("c1", "add", {}))
    assert kinds(sent(Q, open_use)[1]) == ["server_tool_use", "tool_use"]
    assert kinds(sent(Q, message, Q, provider="other")[1]) == ["text", "text"]


# -- system text ------------------------------------------------------------------------------


def test_system_text_at_the_head_follows_the_system_prompt_behind_its_mark() -> None:
    """CTX-8, MOD-22: separate blocks; what is between head and tail stands where it stood."""
    found = body(
        Message.user("pinned"),
        Message.system("at the head"),
        Q,
        Message.assistant("a"),
        Message.user("b"),
        Message.system("at the tail"),
        system="be brief",
        tools=(ADD, LOOK),
        head=2,
        tail=1,
    )
    assert found["system"] == [
        {**text("be brief"), "cache_control": MARK},
        text("at the head"),
    ]
    assert found["messages"] == [
        {"role": "user", "content": [text("pinned"), text("q")]},
        {"role": "assistant", "content": [text("a")]},
        {
            "role": "user",
            "content": [
                {**text("b"), "cache_control": MARK},
                text("[system note]\nat the tail"),
            ],
        },
    ]
    assert [tool.get("cache_control") for tool in found["tools"]] == [None, MARK]


def test_a_conversation_may_begin_with_system_text() -> None:
    """C3: it belongs to the system field; later ones are said by the user."""
    found = body(Message.system("s"), Message.system(" "), Q, Message.system("note"), system="p")
    assert [part["text"] for part in found["system"]] == ["p", "s"]
    assert unmarked(found["messages"]) == [
        {"role": "user", "content": [text("q"), text("[system note]\nnote")]}
    ]
    assert "system" not in body(Q, system=" ")
    assert body(Q, Message.system("t"), tail=1).get("system") is None


# -- cache marks ------------------------------------------------------------------------------


def test_marks_stand_at_tools_system_and_the_last_stable_message() -> None:
    """MOD-22: three of the four that the API takes."""
    found = body(Q, CALLED, ANSWERED, system="s", tools=(ADD, LOOK))
    assert marks(found) == 3
    assert found["messages"][2]["content"][-1]["cache_control"] == MARK
    only = body(
        Q, CALLED, Message.user(ToolResultPart("c1", "a", "1"), ToolResultPart("c2", "", ""))
    )
    assert [part.get("cache_control") for part in only["messages"][2]["content"]] == [None, MARK]
    assert marks(body(Q)) == 1
    nothing_stable = body(Message.user("h"), Message.user("t"), head=0, tail=2)
    assert marks(nothing_stable) == 0


def test_a_wide_turn_marks_the_end_of_the_last_request_too() -> None:
    """MOD-22: the server looks back twenty blocks for what it has, no more."""
    calls = [ToolCallPart(f"c{n}", "add", {}) for n in range(15)]
    results = [ToolResultPart(call.id, "add", "1") for call in calls]
    found = body(Q, Message.assistant(*calls), Message.user(*results), system="s", tools=(ADD,))
    assert marks(found) == 4
    assert found["messages"][0]["content"][0]["cache_control"] == MARK
    assert marks(body(Q, Message.assistant(*calls[:5]), Message.user(*results[:5]))) == 1


def test_a_mark_never_stands_on_thinking() -> None:
    """MOD-22: nor on anything else that may not bear one."""
    found = body(Q, Message.assistant("a", THOUGHT, ToolCallPart("c1", "add", {})), Q, tail=1)
    content = found["messages"][1]["content"]
    assert [part.get("cache_control") for part in content] == [None, None, MARK]


@pytest.mark.parametrize(
    ("extra", "ours"),
    [
        ({}, 3),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, 3),
        ({"metadata": {"user_id": "u"}}, 3),
        ({"tools": [{"name": "t", "input_schema": {}, "cache_control": MARK}]}, 2),
        ({"system": [{"type": "text", "text": "x", "cache_control": MARK}] * 2}, 2),
        ({"system": [{"type": "text", "text": "x", "cache_control": MARK}] * 3}, 1),
        ({"messages": [{"role": "user", "content": [{"cache_control": MARK}] * 4}]}, 0),
    ],
)
def test_the_final_body_has_at_most_four_marks(extra: dict[str, Any], ours: int) -> None:
    """C5, MOD-22: what extra_body brings counts first; the last message is what is marked last."""
    calls = [ToolCallPart(f"c{n}", "add", {}) for n in range(3)]
    results = [ToolResultPart(call.id, "add", "1") for call in calls]
    request = (Q, Message.assistant(*calls), Message.user(*results))
    found = body(*request, system="s", tools=(ADD,), extra_body=extra)
    assert marks(found) == ours + marks(extra) <= 4
    if "cache_control" in extra:  # a longer life may not follow a shorter one
        assert found["system"][0]["cache_control"] == extra["cache_control"]
    if "messages" not in extra:
        assert marks(found["messages"]) == 1


def test_more_marks_than_the_api_takes_are_refused() -> None:
    """MOD-3, C5: before any byte is sent."""
    with pytest.raises(ConfigError, match="extra_body: has 5 cache marks"):
        body(Q, extra_body={"system": [{"cache_control": MARK}] * 5})


# -- reasoning that is bound to its prefix ----------------------------------------------------

BOUND = "claude-opus-5-5"


def bound_to(request: HttpRequest, model: str = BOUND) -> ThinkingPart:
    """Reasoning as it came in the reply to `request`."""
    assert request.prefix is not None
    return ThinkingPart("", "S", provider="anthropic", model=model, prefix=request.prefix)


def thoughts(*messages: Message, model: str = BOUND, **rest: Any) -> list[int]:
    """How many thinking blocks each assistant message is sent with."""
    return [
        kinds(message).count("thinking")
        for message in sent(*messages, model=model, **rest)
        if message["role"] == "assistant"
    ]


def test_bound_reasoning_goes_back_behind_the_same_prefix_only() -> None:
    """MOD-26: system, tools, messages as sent, transients included; history keeps it."""
    common: dict[str, Any] = {"system": "s", "tools": (ADD,), "model": BOUND}
    head = Message.system("steady")
    first = Message.assistant(bound_to(encoded(head, Q, head=1, **common)), "a")
    second = Message.user("b")
    request = encoded(head, Q, first, second, head=1, **common)
    later = Message.assistant(bound_to(request), "c")
    whole = (head, Q, first, second, later, Q)
    assert thoughts(*whole, head=1, **common) == [1, 1]
    changed = Message.system("changed")
    assert thoughts(changed, *whole[1:], head=1, **common) == [0, 0]
    assert thoughts(*whole[1:], **common) == [0, 0]
    for other in ({"system": "t"}, {"tools": (ADD, LOOK)}, {"tools": ()}):
        assert thoughts(*whole, head=1, **{**common, **other}) == [0, 0]
    assert thoughts(head, Q, first, Message.user("B"), later, Q, head=1, **common) == [1, 0]
    assert thoughts(*whole, head=1, **{**common, "model": "claude-fable-5-2"}) == [0, 0]
    assert thoughts(*whole, head=1, **{**common, "model": "claude-opus-5"}) == [0, 0]


def test_a_tail_transient_ends_reasoning_with_its_turn() -> None:
    """MOD-26: it is part of what was sent, and gone from the next request."""
    tailed = encoded(Q, Message.user("note"), tail=1, model=BOUND)
    first = Message.assistant(bound_to(tailed), "a")
    assert thoughts(Q, first, Q, Message.user("note"), tail=1) == [0]
    then = encoded(Q, first, Q, model=BOUND)
    assert thoughts(Q, first, Q, Message.assistant(bound_to(then), "b"), Q) == [0, 1]


def test_cache_marks_and_options_bind_nothing() -> None:
    """MOD-26: a mark moves on with every request; the digest is the same in any process."""
    before = encoded(Q, model=BOUND).prefix
    assert before == encoded(Message.user("q"), model=BOUND, max_output_tokens=5).prefix
    one = encoded(Q, Message.assistant("a"), Q, model=BOUND).prefix
    other = encoded(Q, Message.assistant("a"), Q, Message.user(" "), tail=1, model=BOUND).prefix
    assert one == other != before
    assert encoded(Q, model=BOUND, extra_body={"messages": []}).prefix != before
    assert encoded(Q, model="claude-opus-4-6").prefix is None


def test_our_own_words_between_messages_are_part_of_the_prefix() -> None:
    """MOD-26: what we said for the user is gone when the reply is there."""
    going_on = encoded(Q, Message.assistant("a"), model=BOUND)
    said = Message.assistant(bound_to(going_on), "b")
    assert thoughts(Q, Message.assistant("a"), said, Q) == [0]


def test_the_servers_own_drop_option_is_asked_for_where_there_is_one() -> None:
    """MOD-26: with its beta, beside the caller's own."""
    request = encoded(Q, model=BOUND, headers={"Anthropic-Beta": "mine-1"})
    assert json.loads(request.body)["thinking"] == {
        "type": "adaptive",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"},
    }
    assert request.headers["anthropic-beta"] == "mine-1,thinking-binding-controls-2026-08-01"
    for model in ("claude-opus-5", "claude-sonnet-4-6"):
        request = encoded(Q, model=model)
        assert "thinking" not in json.loads(request.body)
        assert "anthropic-beta" not in request.headers


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-5"])
def test_a_turn_that_another_model_began_is_ended_without_a_budget_to_think(model: str) -> None:
    """MOD-18, MOD-20: "a final assistant message must start with a thinking block", or may not."""

    def thinks(*messages: Message, **options: Any) -> bool:
        options = {"thinking_effort": "low", **options}
        return "thinking" in body(*messages, model=model, tools=(ADD, LOOK), **options)

    own = ThinkingPart("hm", "S", provider="anthropic", model=model)
    sealed = ThinkingPart("", "S", redacted=True, provider="anthropic", model=model)
    foreign = ThinkingPart("hm", "S", provider="anthropic", model="claude-opus-5")
    for thought, kept in ((own, True), (sealed, True), (foreign, False)):
        assert thinks(Q, Message.assistant(thought, *CALLED.parts), ANSWERED) is kept
    assert not thinks(Q, CALLED, ANSWERED)
    assert not thinks(Q, CALLED, ANSWERED, Message.user("tail"), tail=1)
    assert not thinks(Q, Message.assistant("Well.", own, *CALLED.parts), ANSWERED)
    assert thinks(Q, CALLED, ANSWERED, Message.assistant("So."), Q)
    assert thinks(Q)
    mine = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    assert thinks(Q, CALLED, ANSWERED, extra_body=mine)
    adaptive = body(Q, CALLED, ANSWERED, model="claude-opus-4-6", thinking_effort="low")
    assert adaptive["thinking"] == {"type": "adaptive"}


# -- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "output"),
    [
        ("claude-opus-5-5", "low", "adaptive", "low"),
        ("claude-opus-5-5", "max", "adaptive", "max"),
        ("claude-from-the-future", "minimal", "adaptive", "low"),
        ("claude-opus-5", "none", "disabled", None),
        ("claude-sonnet-5", "xhigh", "adaptive", "xhigh"),
        ("claude-opus-4-8", "high", "adaptive", "high"),
        ("claude-sonnet-4-6", "max", "adaptive", "max"),
        ("claude-haiku-5-5", "none", "disabled", None),
        ("claude-opus-4-5-20251101", "high", 16_384, "high"),
        ("claude-haiku-4-5", "xhigh", 32_000, None),
        ("smollm2", "low", 2_048, None),
        ("smollm2", "none", "disabled", None),
    ],
)
def test_an_effort_is_said_in_the_models_own_way(
    model: str, effort: Any, thinking: Any, output: str | None
) -> None:
    """MOD-27: adaptive with an effort, a budget, or switched off."""
    url = "http://127.0.0.1" if model == "smollm2" else "https://api.anthropic.com"
    found = body(Q, model=model, base_url=url, thinking_effort=effort)
    config = found["thinking"]
    assert config.get("budget_tokens", config["type"]) == thinking
    assert found.get("output_config", {}).get("effort") == output
    assert found["max_tokens"] > config.get("budget_tokens", 0)


def test_the_budget_leaves_room_for_an_answer() -> None:
    """MOD-27: it counts towards the output cap."""
    small = body(Q, model="claude-haiku-4-5", thinking_effort="high", max_output_tokens=3_000)
    assert (small["max_tokens"], small["thinking"]["budget_tokens"]) == (3_000, 1_976)
    large = body(Q, model="m", base_url="http://h", thinking_effort="high")
    assert (large["max_tokens"], large["thinking"]["budget_tokens"]) == (20_480, 16_384)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("claude-opus-5-5", {"thinking_effort": "none"}, "thinking_effort='none': .*always thinks"),
        ("claude-sonnet-4-6", {"thinking_effort": "xhigh"}, "thinking_effort='xhigh'.*takes: "),
        ("claude-haiku-4-5", {"thinking_effort": "max"}, "thinking_effort"),
        ("claude-3-5-haiku-latest", {"thinking_effort": "low"}, "thinking_effort.*none at all"),
        (
            "claude-haiku-4-5",
            {"thinking_effort": "low", "max_output_tokens": 2_000},
            "at least 2048 max_output_tokens",
        ),
        ("claude-opus-4-7", {"temperature": 0.5}, "temperature=0.5"),
        ("claude-opus-4-6", {"temperature": 1.5}, "temperature=1.5.*0 to 1"),
        ("claude-opus-4-6", {"temperature": 0, "thinking_effort": "low"}, "temperature=0"),
        ("claude-opus-5-5", {"tool_choice": "required"}, "tool_choice='required'"),
        ("claude-future", {"tool_choice": "add"}, "tool_choice='add'"),
        ("claude-opus-5", {"tool_choice": "nope"}, "tool_choice='nope'.*not given this tool"),
        (
            "claude-haiku-4-5",
            {"tool_choice": "add", "thinking_effort": "low"},
            "tool_choice='add'.*while it thinks",
        ),
        ("claude-3-5-haiku-latest", {"strict_tools": True}, "strict_tools"),
        (
            "claude-opus-5-5",
            {"response_schema": {"type": "object", "properties": {"a": {}}}},
            "response_schema",
        ),
    ],
)
def test_what_the_model_cannot_honour_is_refused(
    model: str, options: dict[str, Any], words: str
) -> None:
    """MOD-3: by name, before any byte is sent."""
    with pytest.raises(ConfigError, match=words):
        body(Q, model=model, tools=(ADD,), **options)


def test_tools_cannot_be_forced_without_tools() -> None:
    """MOD-3: auto and none change nothing then."""
    with pytest.raises(ConfigError, match="tool_choice"):
        body(Q, tool_choice="required")
    assert "tool_choice" not in body(Q, tool_choice="auto")


def test_options_have_their_fields() -> None:
    """MOD-3: temperature needs the version that still has it, 1 is what every model does."""
    request = encoded(
        Q,
        tools=(ADD,),
        stream=True,
        max_output_tokens=7,
        temperature=0.5,
        stop=("a", "b"),
        tool_choice="add",
        extra_body={"metadata": {"user_id": "u"}},
    )
    found = json.loads(request.body)
    assert found["max_tokens"] == 7
    assert found["temperature"] == 0.5
    assert found["stop_sequences"] == ["a", "b"]
    assert found["tool_choice"] == {"type": "tool", "name": "add"}
    assert found["metadata"] == {"user_id": "u"}
    assert found["stream"] is True
    assert request.headers["anthropic-version"] == "2023-06-01"
    plain = encoded(Q, model="claude-opus-5-5", temperature=1)
    assert "temperature" not in json.loads(plain.body)
    assert plain.headers["anthropic-version"] == "2026-10-21"
    own = encoded(Q, headers={"anthropic-version": "2023-06-01"})
    assert own.headers["anthropic-version"] == "2023-06-01"


def test_a_model_of_the_request_decides_over_the_clients() -> None:
    """MOD-3, MOD-27: its facts too."""
    found = body(Q, model="claude-opus-4-6", thinking_effort="none")
    assert found["max_tokens"] == 128_000
    client = AnthropicClient("claude-opus-4-6")
    options = RequestOptions(model="claude-haiku-4-5", thinking_effort="low")
    other = json.loads(client.encode(ModelRequest(messages=(Q,), options=options)).body)
    assert (other["model"], other["max_tokens"]) == ("claude-haiku-4-5", 64_000)
    assert other["thinking"]["type"] == "enabled"


def test_facts_are_found_by_name_and_snapshot() -> None:
    """MOD-27: an unknown Claude is the newest, another model at another address careful."""
    home, other = "https://api.anthropic.com", "http://127.0.0.1:1"
    assert facts_for("claude-opus-4-5-20251101", home) is MODELS["claude-opus-4-5"]
    assert facts_for("anthropic/claude-opus-5", other) is MODELS["claude-opus-5"]
    assert facts_for("claude-opus-4-5@20251101", other) is MODELS["claude-opus-4-5"]
    assert facts_for("claude-opus-7", other) is facts_for("unheard-of", home) is NEWEST
    assert facts_for("claude-sonnet-4-20250514", home).structured is False
    assert facts_for("smollm2", other).window is None


# -- tools and schemas ------------------------------------------------------------------------


def test_tools_are_sent_with_an_object_at_the_root() -> None:
    """MOD-21: no unions there; a blank description is left out."""
    united = ToolSchema(
        name="u",
        description="U.",
        input_schema={"anyOf": [PERSON, {"properties": {"id": {"type": "integer"}}}]},
    )
    add, look, u = unmarked(body(Q, tools=(ADD, LOOK, united))["tools"])
    assert add == {"name": "add", "description": "Add.", "input_schema": ADD.input_schema}
    assert look == {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    assert u["input_schema"]["properties"] == {
        "id": {"type": "integer"},
        "name": {"type": "string"},
    }
    assert "anyOf" not in u["input_schema"]
    assert '"id"' in u["input_schema"]["description"]
    with pytest.raises(ConfigError, match=r"the tool name 'a\.b'"):
        body(Q, tools=(ToolSchema(name="a.b", description="", input_schema={}),))


def test_strict_tools_are_closed_as_many_as_the_api_compiles() -> None:
    """MOD-21: what cannot be expressed, and what is too much, is sent without the promise."""
    optional = {f"p{n}": {"type": "string"} for n in range(10)}
    tools = [
        ToolSchema(
            name=f"t{n}", description="T.", input_schema={"properties": optional, "type": "object"}
        )
        for n in range(3)
    ]
    free = ToolSchema(
        name="free", description="F.", input_schema={"type": "object", "properties": {"a": {}}}
    )
    found = body(Q, tools=(ADD, *tools, free), strict_tools=True)["tools"]
    assert [tool.get("strict") for tool in found] == [True, True, True, None, None]
    assert found[0]["input_schema"]["additionalProperties"] is False
    many = [ToolSchema(name=f"m{n}", description="M.", input_schema=PERSON) for n in range(25)]
    assert (
        sum("strict" in tool for tool in body(Q, tools=tuple(many), strict_tools=True)["tools"])
        == 20
    )


def test_a_schema_for_the_reply_is_native_where_it_exists() -> None:
    """MOD-21: closed, beside an effort."""
    found = body(Q, model=BOUND, response_schema=PERSON, thinking_effort="low")
    assert found["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {**PERSON, "additionalProperties": False}},
    }


@pytest.mark.parametrize(
    ("tools", "choice", "expected"),
    [
        ((), None, {"type": "tool", "name": REPLY_TOOL}),
        ((ADD,), None, {"type": "any"}),
        ((ADD,), "none", {"type": "tool", "name": REPLY_TOOL}),
        ((ADD,), "add", {"type": "tool", "name": "add"}),
    ],
)
def test_elsewhere_a_tool_brings_the_reply(
    tools: tuple[ToolSchema, ...], choice: str | None, expected: dict[str, str]
) -> None:
    """MOD-3: forced; a model that cannot do both is not asked to."""
    url = "http://127.0.0.1:1"
    found = body(
        Q, model="m", base_url=url, tools=tools, tool_choice=choice, response_schema=PERSON
    )
    assert found["tools"][-1]["name"] == REPLY_TOOL
    assert found["tools"][-1]["input_schema"] == PERSON
    assert found["tool_choice"] == expected
    with pytest.raises(ConfigError, match="response_schema"):
        body(Q, model="m", base_url=url, response_schema=PERSON, thinking_effort="low")


# -- the SDK's types --------------------------------------------------------------------------

TEXTS = st.sampled_from(["", " ", "hi", "你好🙂", "\ud83d", "x" * 50])
NAMES = st.sampled_from(["add", "look", "functions.add", "über"])


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """Turns of all kinds, with calls that are answered; ids are used again."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(0, 5))):
        messages.append(
            Message.user(*draw(st.lists(TEXTS, max_size=2)), *[PNG] * draw(st.integers(0, 1)))
        )
        if draw(st.booleans()):
            messages.append(Message.system(draw(TEXTS)))
        parts: list[Part] = []
        calls: list[ToolCallPart] = []
        for kind in draw(st.lists(st.sampled_from("tTrco"), max_size=5)):
            if kind == "t":
                parts.append(TextPart(draw(TEXTS)))
            elif kind == "T":
                signed = draw(st.sampled_from([None, "", "S"]))
                parts.append(ThinkingPart(draw(TEXTS), signed, provider="anthropic"))
            elif kind == "r":
                parts.append(ThinkingPart("", "D", redacted=True, provider="anthropic"))
            elif kind == "o":
                parts.append(ThinkingPart("hm", "X", provider="openai"))
            else:
                call = ToolCallPart(f"c.{len(calls)}", draw(NAMES), {"a": draw(TEXTS)})
                calls.append(call)
                parts.append(call)
        messages.append(Message.assistant(*parts))
        if calls:
            results: list[Part] = [
                ToolResultPart(
                    call.id,
                    call.name,
                    draw(st.one_of(TEXTS, st.just((TextPart("see"), PNG)))),
                    is_error=draw(st.booleans()),
                )
                for call in calls
            ]
            messages.append(Message.user(*draw(st.lists(TEXTS, max_size=1)), *results))
    return tuple(messages)


def assert_accepted(found: dict[str, Any]) -> None:
    """The rules of the API that its types do not tell."""
    roles = [message["role"] for message in found["messages"]]
    assert roles == ["user" if at % 2 == 0 else "assistant" for at in range(len(roles))]
    assert roles[-1] == "user"
    assert marks(found) <= 4
    open_ids: list[str] = []
    seen: set[str] = set()
    for message in found["messages"]:
        assert message["content"]
        results = [part for part in message["content"] if part["type"] == "tool_result"]
        assert message["content"][: len(results)] == results
        assert [part["tool_use_id"] for part in results] == open_ids
        open_ids = [part["id"] for part in message["content"] if part["type"] == "tool_use"]
        assert seen.isdisjoint(open_ids)
        assert len(set(open_ids)) == len(open_ids)
        seen.update(open_ids)
        for part in message["content"]:
            assert part["type"] != "text" or part["text"].strip()
            assert part["type"] != "tool_result" or part["content"]
            assert part["type"] != "thinking" or part["signature"]
            assert (
                part["type"] not in ("thinking", "redacted_thinking") or "cache_control" not in part
            )
        assert message["content"][-1]["type"] not in ("thinking", "redacted_thinking")
    assert not open_ids


@given(conversations(), st.randoms(use_true_random=False))
def test_any_conversation_is_one_that_the_api_accepts(
    messages: tuple[Message, ...], rng: random.Random
) -> None:
    """MOD-20, MOD-24: by the SDK's types, and by the rules that these do not tell."""
    head, tail = rng.randint(0, 2), rng.randint(0, 2)
    transients = (Message.system("s"), Message.user("u"))
    everything = (*transients[:head], *messages, *transients[:tail])
    rest: dict[str, Any] = {"head": head, "tail": tail, "tools": (ADD, LOOK)}
    rest["system"] = rng.choice([None, "be brief", "\ud83d"])
    found = body(*everything, **rest)
    WHOLE.validate_python(found)
    assert_accepted(found)
    assert json.loads(encoded(*everything, **rest).body) == found
    STREAMING.validate_python(body(*everything, stream=True, **rest))
    BETA.validate_python(body(*everything, model=BOUND, **rest))
    assert_accepted(body(*everything, model=BOUND, **rest))


@pytest.mark.parametrize("model", [*MODELS, "claude-3-5-haiku-latest", "claude-future"])
def test_every_option_that_is_taken_is_of_the_sdks_types(model: str) -> None:
    """MOD-24: of every model, for a call and for a count."""
    tried: list[dict[str, Any]] = [
        {"thinking_effort": effort} for effort in ("none", "minimal", "low", "high", "xhigh", "max")
    ]
    more: list[dict[str, Any]] = [
        {"temperature": 0.3},
        {"stop": ("x",)},
        {"tool_choice": "required"},
        {"tool_choice": "add"},
        {"tool_choice": "none"},
        {"strict_tools": True},
        {"response_schema": PERSON},
    ]
    for options in ({}, *tried, *more):
        try:
            request = encoded(Q, CALLED, ANSWERED, model=model, tools=(ADD,), system="s", **options)
        except ConfigError as error:
            refused = str(error)
            assert next(iter(options)) in refused
            continue
        found = json.loads(request.body)
        (BETA if "anthropic-beta" in request.headers else WHOLE).validate_python(found)


def afresh(message: Message) -> Message:
    """An equal message of which nothing is kept."""
    return Message(message.role, message.parts)


@given(conversations(), st.randoms(use_true_random=False))
def test_what_is_kept_of_a_conversation_changes_no_byte(
    messages: tuple[Message, ...], rng: random.Random
) -> None:
    """MOD-23: growing, cut, changed at the end, with other transients, for other models."""
    heads = [(), (Message.user("u"),), (Message.system("s"), Message.assistant("a"))]
    tails = [(), (Message.user("t"),), (Message.system("n"),)]
    count = 0
    for _ in range(8):
        count = rng.choice([count, count + 1, count + 2, len(messages), rng.randint(0, 3)])
        said = [*messages[:count], *([Message.user("other")] if rng.random() < 0.3 else [])]
        head, tail = rng.choice(heads), rng.choice(tails)
        rest: dict[str, Any] = {
            "model": rng.choice([BOUND, "claude-opus-4-6"]),
            "head": len(head),
            "tail": len(tail),
            "tools": (ADD,),
        }
        kept = encoded(*head, *said, *tail, **rest)
        fresh = encoded(*head, *map(afresh, said), *tail, **rest)
        assert kept.body == fresh.body
        assert kept.prefix == fresh.prefix


def test_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-23: a thousand old messages cost a look, one new message its bytes."""
    long = [Q]
    while len(long) < 1_000:
        call = ToolCallPart(f"c{len(long)}", "add", {})
        long += [Message.assistant(call), Message.user(ToolResultPart(call.id, "add", "1"))]
    for model in (BOUND, "claude-opus-5"):
        encoded(*long, model=model)
    looked: list[Message] = []
    original = RunningDigest.add

    def add(self: RunningDigest, message: Message, fragment: bytes) -> None:
        looked.append(message)
        original(self, message, fragment)

    monkeypatch.setattr(RunningDigest, "add", add)
    answer, more = Message.assistant("a"), Message.user("b")
    encoded(*long, answer, more, Message.system("note"), tail=1, model=BOUND)
    assert len(looked) == 3


def test_old_messages_are_not_written_again() -> None:
    """MOD-23: the same objects of bytes, whatever rides around them."""
    long = [Message.user("x" * 100), Message.assistant("y" * 100, ToolCallPart("c", "add", {}))]
    encoded(*long, Message.user(ToolResultPart("c", "add", "1")), model=BOUND)
    kept = [dict(message.memo) for message in long]
    encoded(*long, Message.user(ToolResultPart("c", "add", "2")), model=BOUND, system="other")
    for message, before in zip(long, kept, strict=True):
        same = [key for key, value in before.items() if message.memo.get(key) is value]
        assert same
        assert message.memo.keys() == before.keys()
