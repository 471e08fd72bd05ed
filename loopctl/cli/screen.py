"""How a run looks: from events to lines, and where the run is. Pure: nothing here prints.

What a model or a tool says reaches the terminal through `visible` or `one_line` only, so that it
cannot move the cursor, set colours or hide what stands beside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from loopctl.events import (
    AttemptReset,
    CompactionFailed,
    CompactionFinished,
    CompactionSkipped,
    CompactionStarted,
    ContributorFailed,
    Event,
    MemoryFailed,
    ReplyReceived,
    RunEnded,
    SteeringDelivered,
    TextDelta,
    ThinkingDelta,
    ToolCallRequested,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnDeferred,
    TurnEnded,
    TurnStarted,
)
from loopctl.messages import ToolCallPart
from loopctl.replies import StopReason
from loopctl.runs import Run

Style: TypeAlias = Literal["dim", "yellow", "red"]

MAX_LINE = 72
"""How long the changing part of a line is, in characters."""

MAX_WARNING = 200
"""How long a warning may be, in characters."""

_TOLD = re.compile(
    r"contributor .* failed: |memory failed to |turn \d+: (a pass \(|the output limit cut)",
    re.DOTALL,
)
"""Warnings that stand beside an event which has a line of its own."""

_SETTING, _OPTION = "set SessionConfig.context_window", "--window N sets it"

_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Line:
    """One line about a run."""

    text: str
    style: Style = "dim"


def visible(text: str) -> str:
    """Text whose control characters are written out as escapes; newlines and tabs stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Text on one line of at most `limit` characters; what cannot be printed is written out."""
    beginning = text[: 4 * limit]  # a tool's result may be long
    said = " ".join(beginning.split())
    if len(said) > limit or len(beginning) < len(text):
        said = said[: limit - 3] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in said)


def lines(event: Event) -> tuple[Line, ...]:
    """What is told about an event beside the answer's own text."""
    match event:
        case ToolCallRequested(call=call):
            return (Line(f"-> {one_line(call.name)}({_arguments(call)})"),)
        case ToolFinished(result=result, seconds=seconds):
            name, said = one_line(result.name), one_line(result.text)
            if result.is_error:
                return (Line(f"<- {name} failed: {said}", "yellow"),)
            return (Line(f"<- {name}: {said} ({seconds:.1f} s)"),)
        case ToolProgress(name=name, text=text, fraction=fraction):
            share = "" if fraction is None else f" {fraction:.0%}"
            return (Line(f"   {one_line(name)}{share}: {one_line(text)}"),)
        case AttemptReset(attempt=attempt, reason=reason):
            void = f"attempt {attempt} failed, what it said is void"
            return (Line(f"{void}: {one_line(reason)}", "yellow"),)
        case ReplyReceived(stop_reason=StopReason.LENGTH):
            return (Line("the output limit cut the reply", "yellow"),)
        case RunEnded(ending="completed", output=output) if not (output and output.strip()):
            return (Line("the model's answer is empty", "yellow"),)
        case ContributorFailed(contributor=contributor, reason=reason):
            text = f"contributor {one_line(contributor)} failed: {one_line(reason)}"
            return (Line(text, "yellow"),)
        case TurnDeferred(tokens=tokens, line=line):
            return (Line(f"the turn waits: {tokens:,} tokens are over the line of {line:,}"),)
        case CompactionFinished(before=before, after=after):
            return (Line(f"compacted the conversation: {before:,} -> {after:,} tokens"),)
        case CompactionSkipped(why=why):
            return (Line(f"compaction changed nothing: {one_line(why)}"),)
        case CompactionFailed(error=error):
            return (Line(f"compaction failed: {one_line(error)}", "yellow"),)
        case TurnStarted(over_line=over) if over:
            return (Line(f"the request is {over:,} tokens over its line", "yellow"),)
        case MemoryFailed(operation=operation, reason=reason):
            return (Line(f"memory failed to {operation}: {one_line(reason)}", "yellow"),)
        case SteeringDelivered(messages=messages):
            return tuple(Line(f">> {one_line(message.text)}") for message in messages)
        case _:
            return ()


def untold(run: Run[str] | None) -> tuple[Line, ...]:
    """The warnings of a run that no line about an event has told yet."""
    warnings = () if run is None else run.warnings
    return tuple(
        Line(one_line(text.replace(_SETTING, _OPTION), MAX_WARNING), "yellow")
        for text in warnings
        if not _TOLD.match(text)
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run is: its turn, what it does, the calls that run now."""

    turn: int | None = None
    doing: str = "starting"
    running: tuple[ToolCallPart, ...] = ()

    def after(self, event: Event) -> Place:
        """The place after an event."""
        match event:
            case TurnStarted(turn=turn):
                return Place(turn, "waiting for the model")
            case CompactionStarted(turn=turn):
                return Place(turn, "compacting the conversation")
            case ThinkingDelta():
                return replace(self, doing="the model thinks")
            case TextDelta():
                return replace(self, doing="the model answers")
            case AttemptReset():
                return replace(self, doing="waiting for the model")
            case ReplyReceived() | TurnEnded():
                return replace(self, doing="preparing the next step", running=())
            case ToolStarted(call=call):
                return replace(self, running=(*self.running, call))
            case ToolFinished(result=result):
                left = tuple(call for call in self.running if call.id != result.call_id)
                return replace(self, running=left)
            case _:
                return self

    @property
    def activity(self) -> str:
        """What goes on, to follow `while`."""
        if self.running:
            return f"running {one_line(', '.join(call.name for call in self.running))}"
        return self.doing

    @property
    def words(self) -> str:
        """Where the run is, to follow a verb: `in turn 1, while running read_text_file`."""
        if self.turn is None:
            return "before its first turn"
        return f"in turn {self.turn}, while {self.activity}"


def _arguments(call: ToolCallPart) -> str:
    if call.truncated or call.unusable is not None:
        return one_line(call.unusable or call.arguments)
    pairs = (f"{name}={value!r}" for name, value in call.parse().items())
    return one_line(", ".join(pairs))
