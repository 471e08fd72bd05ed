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
    """Whether parts hold what a provider would take as content: text that is not blank, an image."""
    return any(
        part.text.strip() if isinstance(part, TextPart) else isinstance(part, ImagePart)
        for part in parts
    )


def sort_calls(
    message: Message, offered: Mapping[str, str], turn: int
) -> tuple[Message, tuple[ToolCallPart, ...], tuple[ToolResultPart, ...]]:
    """The message as it is kept, the calls that may run, the results of those that may not."""
    parts: list[Part] = []
    waiting: list[ToolCallPart] = []
    answered: list[ToolResultPart] = []
    seen: set[str] = set()
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            call = _named(_identified(part, seen, turn), offered)
            seen.add(call.id)
            parts.append(call)
            refusal = _why_not(part, call, offered)
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


def _identified(call: ToolCallPart, seen: set[str], turn: int) -> ToolCallPart:
    """The call with an id that is not empty and not used before in its message."""
    if call.id and call.id not in seen:
        return call
    number = len(seen)
    while (fresh := f"call-{turn}-{number}") in seen:
        number += 1
    return _rewritten(call, fresh, call.name)


def _named(call: ToolCallPart, offered: Mapping[str, str]) -> ToolCallPart:
    """The call under a name that was offered, or else under one that every provider accepts."""
    if call.name in offered:
        return call
    name = call.name.strip()
    last = name.rpartition(".")[2]
    for candidate in (name, last):
        if candidate in offered:
            return _rewritten(call, call.id, candidate)
    acceptable = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"
    return call if acceptable == call.name else _rewritten(call, call.id, acceptable)


def _rewritten(call: ToolCallPart, call_id: str, name: str) -> ToolCallPart:
    return ToolCallPart(call_id, name, call.arguments, call.unusable, call.truncated)


def _why_not(
    asked: ToolCallPart, call: ToolCallPart, offered: Mapping[str, str]
) -> str | None:
    """Why a call cannot run, in words for the model; `None` if it can."""
    if call.truncated:
        return (
            f"The call to {call.name} was truncated by the output limit and did not run."
            " Send it again, shorter."
        )
    if call.name not in offered:
        names = ", ".join(offered) or "none"
        return f"There is no tool named {asked.name!r}. Available tools: {names}."
    if call.unusable is not None:
        quoted = (
            call.unusable if len(call.unusable) <= 200 else call.unusable[:200] + "…"
        )
        return (
            f"The arguments of {call.name} are not a JSON object: {quoted!r}."
            f" Expected fields: {offered[call.name] or 'none'}."
        )
    return None


def _not_run(call: ToolCallPart, reason: str) -> ToolResultPart:
    return ToolResultPart(call.id, call.name, reason, is_error=True, outcome="not_run")


def interrupted(call: ToolCallPart) -> ToolResultPart:
    """The result of a call that was stopped before it finished."""
    text = "Interrupted before it finished. Its effects are unknown; check before you repeat it."
    return ToolResultPart(
        call.id, call.name, text, is_error=True, outcome="interrupted"
    )
