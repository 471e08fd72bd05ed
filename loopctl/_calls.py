"""Which calls of a reply may run, and what the others are answered (ENG-5, MOD-13, TOL-4).

Everything here is pure. A call keeps its place in the message; an id that is empty or used twice
is replaced, a name that no provider would take back is made acceptable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from loopctl.messages import (
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)


def says_something(parts: Iterable[Part]) -> bool:
    """Whether parts hold what a provider takes as content: text that is not blank, an image."""
    return any(
        part.text.strip() if isinstance(part, TextPart) else isinstance(part, ImagePart)
        for part in parts
    )


def unpaired(messages: Iterable[Message]) -> str | None:
    """What is wrong with the calls and results of a history; `None` if each call is answered once.

    Results follow the message of their calls at once, in one user message or several in a row.
    """
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        for result in message.results:
            if result.call_id not in open_calls:
                return f"message {number} answers {result.call_id!r}, which is no open call"
            open_calls.remove(result.call_id)
        if open_calls and not message.results:
            return f"message {number} comes before {open_calls[0]!r} is answered"
        open_calls += [call.id for call in message.calls]
    return f"the call {open_calls[0]!r} is never answered" if open_calls else None


def without_blanks(message: Message) -> Message:
    """The message without blank text, which providers refuse; the very object if it has none."""
    parts = [part for part in message.parts if not isinstance(part, TextPart) or part.text.strip()]
    return message if len(parts) == len(message.parts) else Message(message.role, parts)


def sort_calls(
    message: Message, offered: Mapping[str, str], turn: int, *, cut: bool = False
) -> tuple[Message, tuple[ToolCallPart, ...], tuple[ToolResultPart, ...]]:
    """The message as it is kept, the calls that may run, the results of those that may not.

    `cut` says that the output limit ended the reply: nobody can tell whether a call that stands
    last in it is whole, so it does not run. A call given twice under one id is one call.
    """
    if not cut and _plain(message, offered):
        return message, message.calls, ()
    parts: list[Part] = []
    waiting: list[ToolCallPart] = []
    answered: list[ToolResultPart] = []
    given: set[ToolCallPart] = set()
    taken: set[str] = set()
    last = message.parts[-1] if cut and message.parts else None
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            if part.id.strip() and part in given:
                continue
            given.add(part)
            tool = offered_name(part.name, offered)
            call = _kept(part, tool, _unique_id(part, message, taken, turn))
            taken.add(call.id)
            parts.append(call)
            refusal = _why_not(part, tool, offered, cut=part.truncated or part is last)
            if refusal is None:
                waiting.append(call)
            else:
                answered.append(_not_run(call, refusal))
        elif not isinstance(part, TextPart) or part.text.strip():
            parts.append(part)
    same = len(parts) == len(message.parts) and all(
        kept is given for kept, given in zip(parts, message.parts, strict=True)
    )
    kept = message if same else Message(Role.ASSISTANT, parts)
    return kept, tuple(waiting), tuple(answered)


def _plain(message: Message, offered: Mapping[str, str]) -> bool:
    """Whether nothing about a reply needs a second look: the common case, seen in one pass."""
    ids: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            whole = part.unusable is None and not part.truncated
            if not (whole and part.name in offered and part.id.strip()) or part.id in ids:
                return False
            ids.append(part.id)
        elif isinstance(part, TextPart) and not part.text.strip():
            return False
    return True


def offered_name(name: str, offered: Mapping[str, str]) -> str | None:
    """The offered tool that a model's spelling of a name means, `None` if there is none.

    Blanks around it and the namespace that models put before it are forgiven, nothing else.
    """
    stripped = name.strip()
    space, _, bare = stripped.rpartition(".")
    for candidate in (name, bare if space in _NAMESPACES else stripped):
        if candidate in offered:
            return candidate
    return None


_NAMESPACES = frozenset({"functions", "tools", "default_api"})
"""What models are known to put before a tool's name."""

_QUOTED_CHARS = 200
"""How much of a model's own slip its answer quotes."""


def _unique_id(call: ToolCallPart, message: Message, taken: set[str], turn: int) -> str:
    """The id of a call, or one of ours where it is blank or used before in its message."""
    if call.id.strip() and call.id not in taken:
        return call.id
    used = taken.union(other.id for other in message.calls)
    number = len(taken)
    while (fresh := f"call-{turn}-{number}") in used:
        number += 1
    return fresh


def _kept(call: ToolCallPart, tool: str | None, call_id: str) -> ToolCallPart:
    """The call as it is kept: under an offered name, or else one that every provider accepts."""
    name = tool or re.sub(r"[^A-Za-z0-9_-]", "_", call.name.strip())[:64] or "unknown"
    if name == call.name and call_id == call.id:
        return call
    return ToolCallPart(call_id, name, call.arguments, call.unusable, call.truncated)


def _why_not(
    call: ToolCallPart, tool: str | None, offered: Mapping[str, str], *, cut: bool
) -> str | None:
    """Why a call cannot run, in words for the model; `None` if it can."""
    if cut:
        return (
            f"The call to {tool or _quote(call.name)} was truncated by the output limit and did"
            " not run. Send it again, shorter."
        )
    if tool is None:
        names = ", ".join(offered) or "none"
        return f"There is no tool named {_quote(call.name)}. Available tools: {names}."
    if call.unusable is not None:
        return (
            f"The arguments of {tool} are not a JSON object: {_quote(call.unusable)}."
            f" Expected fields: {offered[tool] or 'none'}."
        )
    return None


def _quote(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "…")


def _not_run(call: ToolCallPart, reason: str) -> ToolResultPart:
    return ToolResultPart(call.id, call.name, reason, is_error=True, outcome="not_run")


def interrupted(call: ToolCallPart) -> ToolResultPart:
    """The result of a call that was stopped before it finished."""
    text = "Interrupted before it finished. Its effects are unknown; check before you repeat it."
    return ToolResultPart(call.id, call.name, text, is_error=True, outcome="interrupted")
