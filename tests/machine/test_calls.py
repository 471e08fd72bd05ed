"""Which calls of a reply run, and what the others are answered (ENG-5, ENG-15, MOD-13)."""

from __future__ import annotations

import pytest

from loopctl._calls import offered_name
from loopctl.errors import InvalidResponseError
from loopctl.machine import CallTools, Done, LoopMachine, Outcome, Policy, State
from loopctl.messages import Message, Part, ThinkingPart, ToolCallPart, ToolResultPart
from loopctl.replies import ModelResponse, StopReason

OFFERED = {"get_weather": "city", "read_file": "path, lines", "now": ""}


def replied(*parts: Part | str, stop: StopReason = StopReason.TOOL_CALLS) -> LoopMachine:
    machine = LoopMachine()
    machine.begin(Message.user("what is the weather?"))
    machine.reply(ModelResponse(message=Message.assistant(*parts), stop_reason=stop), OFFERED)
    return machine


def tools(machine: LoopMachine) -> CallTools:
    step = machine.next_step(Policy())
    assert isinstance(step, CallTools)
    return step


def weather(id: str = "c1", city: str = "Turin") -> ToolCallPart:
    return ToolCallPart(id, "get_weather", {"city": city})


# -- ENG-15 and B17: the content decides ------------------------------------------------------


@pytest.mark.parametrize(
    "stop",
    [
        StopReason.END,
        StopReason.TOOL_CALLS,
        StopReason.STOP_SEQUENCE,
        StopReason.PAUSE,
        StopReason.UNKNOWN,
    ],
)
def test_a_complete_call_runs_whatever_the_finish_label_says(stop: StopReason) -> None:
    """B17: a call beside "stop" or "end_turn" is a call."""
    machine = replied("Let me look.", weather(), stop=stop)
    assert tools(machine) == CallTools(0, (weather(),))


@pytest.mark.parametrize("stop", [StopReason.END, StopReason.STOP_SEQUENCE, StopReason.LENGTH])
def test_a_reply_without_calls_completes_the_run(stop: StopReason) -> None:
    """ENG-15: only tool calls continue a run."""
    machine = replied("It is sunny.", stop=stop)
    assert machine.next_step(Policy()) == Done(Outcome(ending="completed"))


@pytest.mark.parametrize("parts", [(), ("I will look.",), (ThinkingPart("hm"),)])
def test_announced_calls_that_are_not_there_are_an_error(parts: tuple[Part | str, ...]) -> None:
    """B17: "tool_use" without a call never ends a run as if it were an answer."""
    machine = LoopMachine()
    machine.begin(Message.user("what is the weather?"))
    before = machine.dump()
    reply = ModelResponse(message=Message.assistant(*parts), stop_reason=StopReason.TOOL_CALLS)
    with pytest.raises(InvalidResponseError, match="announces tool calls and holds none"):
        machine.reply(reply, OFFERED)
    assert machine.dump() == before


@pytest.mark.parametrize("stop", [StopReason.REFUSAL, StopReason.FILTER])
def test_a_refused_reply_ends_the_run_and_runs_nothing(stop: StopReason) -> None:
    """MOD-13: what the provider said is the detail; calls beside it are not taken."""
    machine = replied("I cannot help with that.", weather(), stop=stop)
    expected = Outcome(ending="refused", detail="I cannot help with that.")
    assert machine.next_step(Policy()) == Done(expected)
    assert machine.conversation == ()


def test_the_provider_s_own_words_of_refusal_are_preferred() -> None:
    """MOD-13: they often stand beside the message."""
    machine = LoopMachine()
    machine.begin(Message.user("?"))
    refused = ModelResponse(
        message=Message.assistant(), stop_reason=StopReason.REFUSAL, refusal="policy 4"
    )
    machine.reply(refused, OFFERED)
    assert machine.outcome == Outcome(ending="refused", detail="policy 4")


@pytest.mark.parametrize("parts", [(), ("",), (" \n",), (ThinkingPart("hm"),)])
def test_an_empty_answer_completes_and_stores_no_empty_message(
    parts: tuple[Part | str, ...],
) -> None:
    """C2: an assistant message without content is refused by every later request."""
    machine = replied(*parts, stop=StopReason.END)
    assert machine.outcome == Outcome(ending="completed")
    assert machine.history == (Message.user("what is the weather?"),)
    assert not machine.unfinished


def test_blank_text_beside_a_call_is_dropped_and_thinking_stays() -> None:
    """C2, A13: blank blocks go, an empty signed thinking block is valid and stays in its place."""
    thinking = ThinkingPart("", signature="S1")
    machine = replied(thinking, " ", weather())
    assert machine.pending[-1] == Message.assistant(thinking, weather())


def test_a_reply_that_needs_no_change_is_kept_as_the_very_object() -> None:
    """MOD-23: what is remembered beside a message must not be lost."""
    machine = LoopMachine()
    machine.begin(Message.user("?"))
    message = Message.assistant("Let me look.", weather("c1"), weather("c2", "Oslo"))
    machine.reply(ModelResponse(message=message), OFFERED)
    assert machine.last_message is message


# -- ENG-5 and B19: names ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        " get_weather\n",
        "get_weather ",
        "functions.get_weather",
        "tools.get_weather",
        "default_api.get_weather",
        " functions.get_weather\t",
    ],
)
def test_a_decorated_name_runs_under_the_offered_one(name: str) -> None:
    """B19: blanks and the namespaces that models put before a name are forgiven."""
    machine = replied(ToolCallPart("c1", name, {"city": "Turin"}))
    assert tools(machine) == CallTools(0, (weather(),))
    assert machine.pending[-1].calls == (weather(),)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("nope", "nope"),
        ("", "unknown"),
        (" \n", "unknown"),
        ("get weather", "get_weather"),
        ("payments.get_weather", "payments_get_weather"),
        ("GET_WEATHER", "GET_WEATHER"),
        ("wetter für morgen", "wetter_f_r_morgen"),
        ("\ud800", "_"),
        ("x" * 100, "x" * 64),
    ],
)
def test_an_unknown_name_is_answered_with_the_offered_ones(name: str, kept: str) -> None:
    """ENG-5, B19: never dispatched, never fatal, and kept under a name that providers accept."""
    machine = replied(ToolCallPart("c1", name, {"city": "Turin"}))
    step = tools(machine)
    assert step.calls == ()
    (answer,) = step.answered
    assert (answer.call_id, answer.name, answer.is_error) == ("c1", kept, True)
    assert answer.outcome == "not_run"
    assert f"no tool named {name!r}" in answer.text
    assert "Available tools: get_weather, read_file, now." in answer.text
    assert machine.pending[-1].calls == (ToolCallPart("c1", kept, {"city": "Turin"}),)


def test_a_name_made_acceptable_never_runs_a_tool_of_that_name() -> None:
    """ENG-5: "unknown" may be offered; a call without a name is still no call to it."""
    assert offered_name("", {"unknown": ""}) is None
    assert offered_name("get weather", OFFERED) is None


def test_without_tools_the_answer_says_that_there_are_none() -> None:
    """ENG-5: a model may call what it was never offered."""
    machine = LoopMachine()
    machine.begin(Message.user("?"))
    machine.reply(ModelResponse(message=Message.assistant(weather())), {})
    assert "Available tools: none." in tools(machine).answered[0].text


def test_an_endless_name_is_not_echoed_in_full() -> None:
    """ENG-5: a slip of the model's must not fill its window."""
    machine = replied(ToolCallPart("c1", "x" * 100_000))
    assert len(tools(machine).answered[0].text) < 500


# -- B20: arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Turin", "[1, 2]", '{"city": "Tur', "null", '"Turin"'])
def test_unusable_arguments_are_answered_and_replayed_as_an_object(text: str) -> None:
    """B20, ENG-5: the result names the tool, quotes the slip and lists the expected fields."""
    machine = replied(ToolCallPart("c1", "read_file", text))
    step = tools(machine)
    assert step.calls == ()
    (answer,) = step.answered
    assert (answer.call_id, answer.is_error, answer.outcome) == ("c1", True, "not_run")
    assert answer.text == (
        f"The arguments of read_file are not a JSON object: {text!r}. Expected fields: path, lines."
    )
    assert machine.pending[-1].calls[0].arguments == "{}"


def test_unusable_arguments_are_quoted_in_part() -> None:
    """B20: the first problems, not a page of them."""
    machine = replied(ToolCallPart("c1", "now", "x" * 100_000))
    (answer,) = tools(machine).answered
    assert len(answer.text) < 500
    assert answer.text.endswith("Expected fields: none.")


def test_one_unusable_call_costs_its_own_result_only() -> None:
    """B20: the others run, and all results come back in call order."""
    machine = replied(ToolCallPart("c1", "nope"), weather("c2"), ToolCallPart("c3", "now", "oops"))
    step = tools(machine)
    assert step.calls == (weather("c2"),)
    assert [answer.call_id for answer in step.answered] == ["c1", "c3"]
    machine.results([ToolResultPart("c2", "get_weather", "sunny")])
    assert [result.call_id for result in machine.pending[-1].results] == ["c1", "c2", "c3"]


def test_a_turn_of_unusable_calls_alone_still_goes_on() -> None:
    """ENG-5: the machine's own answers are all that the model gets."""
    machine = replied(ToolCallPart("c1", "nope"))
    machine.results([])
    assert machine.state is State.AWAITING_MODEL
    assert machine.turn == 1
    assert machine.pending[-1].results[0].call_id == "c1"


# -- B16: cut by the output limit -------------------------------------------------------------


def assert_cut(machine: LoopMachine, runs: list[str], cut: list[str]) -> None:
    step = tools(machine)
    assert [call.id for call in step.calls] == runs
    assert [answer.call_id for answer in step.answered] == cut
    for answer in step.answered:
        assert "was truncated by the output limit" in answer.text
        assert (answer.is_error, answer.outcome) == (True, "not_run")


def test_the_cut_call_is_answered_and_earlier_ones_run() -> None:
    """B16, MOD-13: partial arguments never run."""
    cut = ToolCallPart("c2", "read_file", '{"path":"a","content":"hel', truncated=True)
    assert_cut(replied(weather("c1"), cut, stop=StopReason.LENGTH), ["c1"], ["c2"])


@pytest.mark.parametrize("arguments", ["", "{}", '{"path":"a"}'])
def test_a_cut_that_falls_where_the_arguments_look_whole_is_a_cut(arguments: str) -> None:
    """B16: also complete JSON, also none at all."""
    last = ToolCallPart("c2", "read_file", arguments)
    assert_cut(replied(weather("c1"), last, stop=StopReason.LENGTH), ["c1"], ["c2"])


def test_a_call_with_text_behind_it_was_whole() -> None:
    """B16: the limit cut the text, not the call."""
    machine = replied(weather("c1"), "And then I wi", stop=StopReason.LENGTH)
    assert_cut(machine, ["c1"], [])


def test_a_call_marked_as_truncated_never_runs_whatever_the_label() -> None:
    """B16: the client knows better than the finish label."""
    cut = ToolCallPart("c1", "now", "{}", truncated=True)
    assert_cut(replied(cut, stop=StopReason.END), [], ["c1"])


def test_a_cut_call_without_a_known_name_is_answered_as_cut() -> None:
    """B16: the name itself may be cut."""
    cut = ToolCallPart("c1", "read_fi", "", truncated=True)
    machine = replied(cut, stop=StopReason.LENGTH)
    assert_cut(machine, [], ["c1"])
    assert "The call to 'read_fi' was truncated" in tools(machine).answered[0].text


# -- B18: ids ---------------------------------------------------------------------------------


def test_the_same_call_twice_under_one_id_is_one_call() -> None:
    """B18: same id, name and arguments."""
    machine = replied(weather("c1"), weather("c1"))
    assert tools(machine).calls == (weather("c1"),)
    assert machine.pending[-1].calls == (weather("c1"),)


def test_one_id_with_other_arguments_is_two_calls() -> None:
    """B18: the second gets an id of ours, and each its own result."""
    machine = replied(weather("c1", "Turin"), weather("c1", "Oslo"))
    first, second = tools(machine).calls
    assert (first.id, first.arguments) == ("c1", '{"city":"Turin"}')
    assert (second.id, second.arguments) == ("call-0-1", '{"city":"Oslo"}')


@pytest.mark.parametrize("blank", ["", " "])
def test_calls_without_ids_get_ids_of_ours(blank: str) -> None:
    """B18: without an id, the same call twice is two calls."""
    machine = replied(weather(blank), weather(blank))
    assert [call.id for call in tools(machine).calls] == ["call-0-0", "call-0-1"]


def test_an_id_of_ours_never_takes_one_that_the_model_gave() -> None:
    """B18: neither an earlier nor a later one."""
    machine = replied(weather("call-0-1"), weather(""), weather("call-0-2", "Oslo"))
    ids = [call.id for call in tools(machine).calls]
    assert ids == ["call-0-1", "call-0-3", "call-0-2"]


def test_an_id_may_come_again_in_another_turn() -> None:
    """B18: pairing is per occurrence."""
    machine = replied(weather("c1"))
    machine.results([ToolResultPart("c1", "get_weather", "sunny")])
    machine.reply(ModelResponse(message=Message.assistant(weather("c1"))), OFFERED)
    assert tools(machine).calls == (weather("c1"),)
