from __future__ import annotations

import itertools
import json
import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from loopctl.errors import (
    BadRequestError,
    ContextOverflowError,
    InvalidResponseError,
    ModelError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    ServerError,
    StreamIncomplete,
)
from loopctl.messages import Message, TextPart, ThinkingPart, ToolCallPart
from loopctl.models.openai_responses.messages import ITEM, PHASE, REASONING
from loopctl.models.openai_responses.stream import ResponsesDecoder
from loopctl.replies import ModelResponse, StopReason
from loopctl.testing import call
from loopctl.usage import Usage
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.sse import EventStreamReader
from loopctl.wire.stream_events import MessageStart, PartDelta, StreamEvent
from tests.models.openai_responses.replies import (
    MODEL,
    begun,
    body,
    counts,
    document,
    documents,
    events,
    function_call,
    message,
    of_item,
)

USAGE = Usage(
    input_tokens=20, output_tokens=9, cached_tokens=8, cache_write_tokens=4, thinking_tokens=3
)


def decoder() -> ResponsesDecoder:
    return ResponsesDecoder(provider="openai", model="asked", request_id="req-1", prefix="p")


def fed(*given: Any) -> list[StreamEvent]:
    """The events of which these are the data, and of the end of the body."""
    responses = decoder()
    told: list[StreamEvent] = []
    for each in given:
        told += responses.feed(each if isinstance(each, str) else json.dumps(each))
    return told + responses.finish()


def made(told: list[StreamEvent]) -> ModelResponse:
    accumulator = Accumulator()
    for event in told:
        accumulator.feed(event)
    return accumulator.response()


def read(*given: Any) -> ModelResponse:
    return made(fed(*given))


def whole(answer: Any) -> ModelResponse:
    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return made(decoder().whole(data))


def created() -> dict[str, Any]:
    return {"type": "response.created", "response": begun()}


def ended(*items: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    response = {**begun(), "status": status, "output": list(items), **fields}
    return {"type": f"response.{status}", "response": response}


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **fields}


def summary(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "summary_text", "text": text} for text in texts]


def sealed(given: dict[str, Any], text: str = "", kind: str = REASONING) -> ThinkingPart:
    return ThinkingPart(
        text,
        signature=json.dumps(given, separators=(",", ":"), ensure_ascii=False),
        provider="openai",
        model="asked",
        prefix="p",
        kind=kind,
        redacted=kind == ITEM,
    )


def phase(name: str) -> ThinkingPart:
    return ThinkingPart(signature=name, provider="openai", model="asked", prefix="p", kind=PHASE)


ANSWERS: dict[str, ModelResponse] = {
    "text": ModelResponse(message=Message.assistant("你好 🙂\u2028 and more than one piece")),
    "a call": ModelResponse(message=Message.assistant(call("add", id="c1", a=1))),
    "everything": ModelResponse(
        message=Message.assistant(
            sealed(item(id="rs_a", summary=summary("One.", "Two, which is longer."), x=1.5), "-"),
            phase("commentary"),
            "Let me see.",
            call("add", id="c1", a=1, b="🙂"),
            sealed(item(id="rs_b", encrypted_content="S+/=é")),
            call("now", id="c2"),
            phase("final_answer"),
            "There.",
        ),
        usage=USAGE,
    ),
    "cut": ModelResponse(message=Message.assistant("Once upon"), stop_reason=StopReason.LENGTH),
    "filtered": ModelResponse(message=Message.assistant(), stop_reason=StopReason.FILTER),
    "refused": ModelResponse(message=Message.assistant(), refusal="I will not do that for you."),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_streamed_and_whole_replies_are_equal(name: str) -> None:
    """MOD-4: all of it, the sealed items too."""
    assert read(*documents(ANSWERS[name])) == whole(body(ANSWERS[name]))


def test_a_reply_is_read_in_the_order_of_its_items() -> None:
    """A13, MOD-20, MOD-26: reasoning with its text and its item, phases in front of their text."""
    response = read(*documents(ANSWERS["everything"]))
    assert [type(part) for part in response.message.parts] == [
        ThinkingPart,  # a summary without what it sums up has nothing to send back
        ThinkingPart,
        TextPart,
        ToolCallPart,
        ThinkingPart,
        ToolCallPart,
        ThinkingPart,
        TextPart,
    ]
    parts = response.message.parts
    unsealed = ThinkingPart(
        "One.\n\nTwo, which is longer.",
        provider="openai",
        model="asked",
        prefix="p",
        kind=REASONING,
    )
    assert parts[0] == unsealed
    assert parts[1] == phase("commentary")
    assert parts[4] == sealed(item(id="rs_b", encrypted_content="S+/=é"))
    assert response.message.calls == (
        ToolCallPart("c1", "add", {"a": 1, "b": "🙂"}),
        ToolCallPart("c2", "now", "{}"),
    )
    assert (response.stop_reason, response.raw_stop_reason) == (StopReason.TOOL_CALLS, "completed")
    assert response.usage == USAGE
    assert (response.model, response.response_id, response.request_id) == (MODEL, "resp_1", "req-1")


def test_a_start_says_what_the_reasoning_is_bound_to() -> None:
    """MOD-26: the digest of the request, and the model by the name that it was asked by."""
    start = fed(*documents("a"))[0]
    assert start == MessageStart(MODEL, "resp_1", "openai", "req-1", "p", "asked")


def test_text_comes_in_increments() -> None:
    """MOD-4: each piece as it comes."""
    told = [each for each in fed(*documents("Hello, this is long.")) if isinstance(each, PartDelta)]
    assert [each.text for each in told] == ["Hello, this is l", "ong."]


def test_the_last_form_of_an_item_is_the_one_that_counts() -> None:
    """A13: what is sealed when it is announced is not complete yet."""
    full = item(encrypted_content="whole", status="completed", content=None)
    told = [
        created(),
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": item(encrypted_content="who"),
        },
        {"type": "response.output_item.done", "output_index": 0, "item": full},
        ended(full),
    ]
    (part,) = read(*told).message.parts
    assert part == sealed(item(encrypted_content="whole"))


def test_open_models_reason_in_plain_text() -> None:
    """MOD-20: what is not sealed goes back as it came, too."""
    content = [{"type": "reasoning_text", "text": "Hm, so."}]
    full = item(content=content)
    where = {"output_index": 0, "item_id": "rs_1", "content_index": 0}
    told = [
        created(),
        {"type": "response.output_item.added", "output_index": 0, "item": item()},
        {"type": "response.reasoning_text.delta", **where, "delta": "Hm, "},
        {"type": "response.reasoning_text.delta", **where, "delta": "so."},
        {"type": "response.output_item.done", "output_index": 0, "item": full},
        ended(full),
    ]
    assert read(*told).message.parts == (sealed(full, "Hm, so."),)
    assert whole(document("", [full])).message.parts == (sealed(full, "Hm, so."),)


def test_items_of_the_servers_own_tools_are_kept() -> None:
    """MOD-20: as they came; their events between are not known here and need not be."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"a": [1]}}
    said = message("m", {"type": "output_text", "text": "Found."})
    told = [
        created(),
        *of_item(search, 0),
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        *of_item(said, 1),
        ended(search, said),
    ]
    expected = Message.assistant(sealed(search, kind=ITEM), "Found.")
    assert read(*told).message == whole(document("", [search, said])).message == expected


def test_a_call_of_free_text_is_answered_like_any_other() -> None:
    """B19: a custom tool of `extra_body` is none that runs here; it is not dropped either."""
    free = {"type": "custom_tool_call", "id": "ctc", "call_id": "c1", "name": "sql", "input": "SEL"}
    told = [
        created(),
        {"type": "response.output_item.added", "output_index": 0, "item": {**free, "input": ""}},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "SEL"},
        {"type": "response.output_item.done", "output_index": 0, "item": free},
        ended(free),
    ]
    (made_call,) = read(*told).message.calls
    assert (made_call.id, made_call.name, made_call.unusable) == ("c1", "sql", "SEL")


# -- what servers leave out or do their own way -----------------------------------------------


FULL = ANSWERS["everything"]


def without(*names: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in each.items() if key not in names} for each in documents(FULL)
    ]


def only(*ends: str) -> list[dict[str, Any]]:
    return [each for each in documents(FULL) if each["type"].endswith(ends)]


def renamed() -> list[dict[str, Any]]:
    """The list at the end under other ids than the stream's."""
    told = documents(FULL)
    items = [{**each, "id": f"new_{n}"} for n, each in enumerate(told[-1]["response"]["output"])]
    return [*told[:-1], {**told[-1], "response": {**told[-1]["response"], "output": items}}]


def without_output(output: Any = None) -> list[dict[str, Any]]:
    told = documents(FULL)
    return [*told[:-1], {**told[-1], "response": {**told[-1]["response"], "output": output}}]


VARIANTS: dict[str, list[Any]] = {
    "no index": without("output_index"),
    "no ids": without("item_id"),
    "neither": without("output_index", "item_id"),
    "no deltas": [each for each in documents(FULL) if not each["type"].endswith(".delta")],
    "no announcements": [each for each in documents(FULL) if not each["type"].endswith("added")],
    "only done items": only("created", "item.done", "completed"),
    "only the end": only("completed"),
    "no done items": [each for each in documents(FULL) if not each["type"].endswith("item.done")],
    "no list at the end": without_output(),
    "an empty list at the end": without_output([]),
    "other ids at the end": renamed(),
    "unknown events": [
        each
        for pair in documents(FULL)
        for each in ({"type": "response.news", "output_index": 0}, pair, {"type": "keepalive"})
    ],
    "comments and blanks": [
        each for given in documents(FULL) for each in ("", " ", ": OPENROUTER PROCESSING", given)
    ],
    "null deltas": [
        each
        for given in documents(FULL)
        for each in ([{**given, "delta": None}, given] if "delta" in given else [given])
    ],
    "an empty announcement": [
        created(),
        {"type": "response.output_item.added", "output_index": 0, "item": None},
        *documents(FULL)[1:],
    ],
    "[DONE] behind the end": [*documents(FULL), "[DONE]"],
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_servers_leave_out_is_found_elsewhere(name: str) -> None:
    """B5, B9, B10: the same message, by index, by id, by order, or from the end."""
    assert read(*VARIANTS[name]) == read(*documents(FULL))


def test_the_type_may_stand_beside_the_data() -> None:
    """MOD-7: in the event's own field."""
    responses, accumulator = decoder(), Accumulator()
    for each in documents("Hello"):
        kind = each.pop("type")
        for event in responses.feed(json.dumps(each), kind):
            accumulator.feed(event)
    assert accumulator.response().message.text == "Hello"


def test_items_at_one_index_are_two_items() -> None:
    """B9: they differ in their ids."""
    one, two = function_call("c1", "add", '{"a":1}'), function_call("c2", "look", "{}")
    told = [created()]
    for both in itertools.zip_longest(of_item(one, 0), of_item(two, 0)):
        told += [each for each in both if each is not None]
    assert [each.name for each in read(*told, ended(one, two)).message.calls] == ["add", "look"]


def test_a_call_told_twice_is_one_call() -> None:
    """B18: same id, name and arguments; other arguments are another call under an id of ours."""
    one, other = function_call("c1", "add", '{"a":1}'), function_call("c1", "add", '{"a":2}')
    assert len(whole(document("", [one, one])).message.calls) == 1
    first, second = whole(document("", [one, other])).message.calls
    assert first.id == "c1" != second.id


@pytest.mark.parametrize("arguments", [None, "", " ", "missing", {}])
def test_absent_arguments_are_an_empty_object(arguments: Any) -> None:
    """B14: empty, null, missing, or an object."""
    given = {**function_call("c1", "now", ""), "arguments": arguments}
    if arguments == "missing":
        del given["arguments"]
    for response in (whole(document("", [given])), read(created(), ended(given))):
        assert response.message.calls[0].arguments == "{}"


def test_arguments_that_lost_a_piece_do_not_run() -> None:
    """B7, B12: a piece is missing in what came; another try may be better."""
    full = function_call("c1", "add", '{"a":1,"b":2}')
    where = {"type": "response.function_call_arguments.delta", "output_index": 0}
    told = [
        created(),
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**full, "arguments": ""},
        },
        {**where, "delta": '{"a":1'},
        {**where, "delta": None},
        {**where, "delta": "}"},
    ]
    done = {"type": "response.output_item.done", "output_index": 0, "item": full}
    with pytest.raises(StreamIncomplete, match="arguments"):
        read(*told, done, ended(full))
    spaced = {**full, "arguments": '{ "a": 1 }'}  # said in other words only
    response = read(*told, {**done, "item": spaced}, ended(spaced))
    assert response.message.calls[0].arguments == '{"a":1}'


# -- ends -------------------------------------------------------------------------------------


def test_a_call_that_the_limit_cut_does_not_run() -> None:
    """B16, MOD-13: the last one, whether its item was told to be incomplete or not at all."""
    first = function_call("c1", "add", '{"a":1}')
    cut = {**function_call("c2", "write", '{"path":"a","con'), "status": "incomplete"}
    reason = {"incomplete_details": {"reason": "max_output_tokens"}}
    end = ended(first, cut, status="incomplete", **reason)
    told = [created(), *of_item(first, 0), *of_item(cut, 1)]
    for response in (read(*told, end), read(*told[:-2], end), whole(end["response"])):
        assert response.stop_reason is StopReason.LENGTH
        assert response.raw_stop_reason == "max_output_tokens"
        assert [each.truncated for each in response.message.calls] == [False, True]
    complete = function_call("c2", "write", "{}")
    end = ended(first, complete, status="incomplete", **reason)
    assert [each.truncated for each in whole(end["response"]).message.calls] == [False, True]


def test_a_call_that_was_cut_in_front_of_something_else_does_not_run() -> None:
    """B16: its item says so, wherever it stands."""
    cut = {**function_call("c1", "write", "{}"), "status": "incomplete"}
    said = message("m", {"type": "output_text", "text": "a"})
    details = {"incomplete_details": {"reason": "max_output_tokens"}}
    response = whole(ended(cut, said, status="incomplete", **details)["response"])
    assert [each.truncated for each in response.message.calls] == [True]


def test_a_reply_that_was_all_thought_is_cut() -> None:
    """MOD-13: its cap was too small."""
    sealed_item = item(encrypted_content="S")
    end = ended(
        sealed_item, status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    )
    response = read(created(), *of_item(sealed_item, 0), end)
    assert response.stop_reason is StopReason.LENGTH
    assert response.message.text == ""


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("content_filter", StopReason.FILTER),
        ("max_messages", StopReason.UNKNOWN),
        ("steered", StopReason.UNKNOWN),
        (None, StopReason.UNKNOWN),
    ],
)
def test_an_incomplete_reply_says_why(reason: str | None, expected: StopReason) -> None:
    """MOD-13: an unknown reason is never success in silence."""
    details = None if reason is None else {"reason": reason}
    end = ended(
        message("m", {"type": "output_text", "text": "a"}),
        status="incomplete",
        incomplete_details=details,
    )
    for response in (read(created(), end), whole(end["response"])):
        assert (response.stop_reason, response.raw_stop_reason) == (
            expected,
            reason or "incomplete",
        )


def test_a_refusal_is_told_as_one() -> None:
    """MOD-13: never an ordinary answer; its own words, once."""
    for response in (read(*documents(ANSWERS["refused"])), whole(body(ANSWERS["refused"]))):
        assert response.stop_reason is StopReason.REFUSAL
        assert response.refusal == "I will not do that for you."
        assert response.message.parts == ()
    told = [each for each in documents(ANSWERS["refused"]) if "item.done" not in each["type"]]
    told[-1] = {**told[-1], "response": {**told[-1]["response"], "output": None}}
    assert read(*told).refusal == "I will not do that for you."


@pytest.mark.parametrize("end", range(len(documents(FULL)) - 1))
def test_an_end_without_the_terminal_event_is_none(end: int) -> None:
    """B7, MOD-8: at any event, also where a proxy says that it is done."""
    for last in ([], ["[DONE]"]):
        with pytest.raises(StreamIncomplete):
            read(*documents(FULL)[:end], *last)


def test_a_proxy_that_is_done_is_believed_at_once() -> None:
    """B7: nothing more will come, also where the connection stays open."""
    with pytest.raises(StreamIncomplete):
        decoder().feed("[DONE]")


def failed(code: str | None, text: str = "m") -> dict[str, Any]:
    return ended(status="failed", error={"code": code, "message": text}, usage=counts(USAGE))


ERRORS: dict[str, tuple[Any, type[ModelError]]] = {
    "failed": (failed("server_error"), ServerError),
    "limited": (failed("rate_limit_exceeded"), RateLimitError),
    "overflow": (failed("context_length_exceeded"), ContextOverflowError),
    "overflow by words": (
        failed(None, "Your input exceeds the context window of this model."),
        ContextOverflowError,
    ),
    "a bad image": (failed("invalid_image_format"), BadRequestError),
    "failed without a word": (ended(status="failed"), ServerError),
    "error": ({"type": "error", "code": "server_is_overloaded", "message": "m"}, OverloadedError),
    "nested error": (
        {"type": "error", "error": {"type": "insufficient_quota", "message": "m"}},
        QuotaError,
    ),
    "bare error": ({"error": {"code": "rate_limit_exceeded", "message": "m"}}, RateLimitError),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("at", [0, 1, len(documents(FULL)) - 1])
def test_an_error_in_a_stream_is_that_error(name: str, at: int) -> None:
    """B6, MOD-8, MOD-11, MOD-12: first, in the middle, and after all that was said."""
    given, kind = ERRORS[name]
    with pytest.raises(kind) as caught:
        read(*documents(FULL)[:at], given)
    assert type(caught.value) is kind
    assert (caught.value.provider, caught.value.request_id) == ("openai", "req-1")


def test_a_failed_reply_has_its_price() -> None:
    """MOD-10, MOD-15: what was counted is on the error."""
    with pytest.raises(ServerError) as caught:
        read(created(), failed("server_error", "it broke"))
    assert caught.value.usage == USAGE
    assert "it broke" in str(caught.value)


@pytest.mark.parametrize(
    "code", ["invalid_prompt", "bio_policy", "misalignment_policy_violation", "content_filter"]
)
def test_a_failure_that_is_a_refusal_is_filtered(code: str) -> None:
    """MOD-13: with the provider's words; no error that another try mends."""
    response = read(created(), failed(code, "not that"))
    assert (response.stop_reason, response.refusal) == (StopReason.FILTER, "not that")
    assert response.usage == USAGE


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (b"{nonsense", InvalidResponseError),
        (b"[]", InvalidResponseError),
        (b"{}", InvalidResponseError),
        (b'{"status":"completed"}', InvalidResponseError),
        (b'{"status":"queued","output":[]}', InvalidResponseError),
        (b'{"status":"cancelled","output":[]}', StreamIncomplete),
        (b'{"error":{"code":"server_error","message":"m"}}', ServerError),
        (json.dumps(failed("server_error")["response"]).encode(), ServerError),
    ],
)
def test_what_is_no_reply_is_an_error(given: bytes, kind: type[ModelError]) -> None:
    """B6, MOD-8: also with status 200."""
    with pytest.raises(kind):
        whole(given)


@pytest.mark.parametrize("status", [None, "completed", "odd"])
def test_a_whole_reply_may_have_any_status(status: Any) -> None:
    """MOD-13: what nobody knows is told as such."""
    response = whole({**document("a"), "status": status})
    expected = StopReason.UNKNOWN if status == "odd" else StopReason.END
    assert (response.message.text, response.stop_reason) == ("a", expected)


def test_garbage_in_a_stream_is_told() -> None:
    """MOD-7: with its beginning."""
    with pytest.raises(InvalidResponseError, match="nonsense"):
        read(created(), "{nonsense")


# -- the official library ---------------------------------------------------------------------


def in_the_sdk(told: list[dict[str, Any]]) -> Any:
    """What the official accumulator makes of these events."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    for each in told:
        event: Any = construct_type(type_=cast(Any, ResponseStreamEvent), value=each)
        state.handle_event(event)
    return state._completed_response


texts = st.text(min_size=1, max_size=40).filter(lambda text: text.strip() != "")
said = st.builds(TextPart, texts)
thought = st.builds(
    lambda n, lines, blob: sealed(
        item(id=f"rs_{n}", summary=summary(*lines), encrypted_content=blob), "-"
    ),
    st.integers(0, 99),
    st.lists(texts, max_size=2),
    texts,
)
called = st.builds(
    lambda n, value: call("add", id=f"call_{n}", a=value), st.integers(0, 99), texts | st.integers()
)


@given(st.lists(said | thought | called, max_size=5), st.randoms(use_true_random=False))
def test_a_stream_cut_anywhere_is_what_the_sdk_makes_of_it(
    parts: list[Any], rng: random.Random
) -> None:
    """MOD-24, MOD-7, B4: the same texts, calls and sealed items, however the bytes are cut."""
    ids = [part.id for part in parts if isinstance(part, ToolCallPart)]
    sealed_ids = [str(part.signature)[:30] for part in parts if isinstance(part, ThinkingPart)]
    if len(set(ids)) < len(ids) or len(set(sealed_ids)) < len(sealed_ids):
        return
    answer = ModelResponse(message=Message("assistant", parts), usage=USAGE)
    data = b"".join(events(answer))
    reader, responses, accumulator = EventStreamReader(), decoder(), Accumulator()
    cuts = sorted(rng.sample(range(len(data)), min(len(data), rng.randint(0, 40))))
    for start, end in itertools.pairwise([0, *cuts, len(data)]):
        for frame in reader.feed(data[start:end]):
            for event in responses.frame(frame):
                accumulator.feed(event)
    ours = accumulator.response()
    theirs = in_the_sdk(documents(answer))
    assert theirs is not None
    items = [each.to_dict() for each in theirs.output]
    assert ours.message.text == theirs.output_text
    assert [(each.id, each.name, each.arguments) for each in ours.message.calls] == [
        (each["call_id"], each["name"], each["arguments"])
        for each in items
        if each["type"] == "function_call"
    ]
    assert [
        json.loads(str(part.signature))
        for part in ours.message.parts
        if isinstance(part, ThinkingPart)
    ] == [each for each in items if each["type"] == "reasoning"]
    assert ours.usage == USAGE
    assert theirs.usage.input_tokens == 20
    assert ours == whole(body(answer))
