"""What every provider asks of a conversation, checked on loopctl's own messages (MOD-20, ENG-15).

A conversation without problems can be lowered to every dialect. Neighbouring user messages are
fine, because dialects merge them, and so are system messages in front and behind; ids may come
again in later messages, because dialects map them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from loopctl import _json
from loopctl.messages import (
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.models.client import ModelRequest

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def conversation_problems(messages: Sequence[Message]) -> list[str]:
    """Everything in `messages` that some provider would refuse, one sentence each.

    The first message that is not the system's is the user's. No message is empty and no text
    blank; an assistant's message says something beside its thinking, and no two of them follow
    each other. Every call has a name of letters, digits, `_` and `-`, at most 64 of them, an id
    that no other call of its message has, and a JSON object as arguments. Directly behind its
    message stand the results, one for each call, in the order of the calls, before any text; there
    are no others. A result carries its call's name and some content.

    An empty conversation is fine, and so is one that ends with the assistant.
    """
    return list(_problems(messages))


def request_problems(request: ModelRequest) -> list[str]:
    """The problems of what a request carries: its messages, and its tools.

    Beside the rules of `conversation_problems` there is at least one message, and the last that is
    not the system's is the user's. Tools have names as calls have, no two the same, and a schema
    whose type is an object; a forced tool is one of them.
    """
    problems = list(_problems(request.messages))
    spoken = [message for message in request.messages if message.role is not Role.SYSTEM]
    if not spoken:
        problems.append("the request has no message of the user's")
    elif spoken[-1].role is not Role.USER:
        problems.append("the last message is the assistant's: there is nothing to answer")
    names = Counter(tool.name for tool in request.tools)
    for tool in request.tools:
        if not _NAME.fullmatch(tool.name):
            problems.append(f"tool {tool.name!r} has a name that some providers refuse")
        if tool.input_schema.get("type") != "object":
            problems.append(f"tool {tool.name!r} has a schema that is not of an object")
    problems += [f"{n} tools are called {name!r}" for name, n in names.items() if n > 1]
    choice = request.options.tool_choice
    if choice not in (None, "auto", "none") and (
        not names or (choice != "required" and choice not in names)
    ):
        problems.append(f"tool_choice={choice!r} asks for a tool that is not there")
    return problems


def assert_valid_conversation(messages: Sequence[Message]) -> None:
    """Raise an `AssertionError` that lists the problems of `messages`, if there are any."""
    _refuse(conversation_problems(messages), messages)


def assert_valid_request(request: ModelRequest) -> None:
    """Raise an `AssertionError` that lists the problems of `request`, if there are any."""
    _refuse(request_problems(request), request.messages)


def _refuse(problems: list[str], messages: Sequence[Message]) -> None:
    if problems:
        shown = [f"  {n}: {_json.dumps(m.to_json())[:300]}" for n, m in enumerate(messages)]
        text = "\n".join([*(f"- {problem}" for problem in problems), "in:", *shown])
        raise AssertionError(f"providers would refuse this conversation:\n{text}")


def _problems(messages: Sequence[Message]) -> Iterator[str]:
    speaker = Role.SYSTEM
    owed: list[ToolCallPart] = []
    for number, message in enumerate(messages):
        where = f"message {number}"
        yield from (f"{where} {problem}" for problem in _inside(message))
        if message.role is not Role.SYSTEM:
            if message.role is Role.ASSISTANT and speaker is Role.SYSTEM:
                yield f"{where} opens the conversation, but it is the assistant's"
            if message.role is Role.ASSISTANT and speaker is Role.ASSISTANT:
                yield f"{where} and the one before it are both the assistant's"
            speaker = message.role
        if message.role is Role.USER:
            for part in message.parts:
                if isinstance(part, ToolResultPart):
                    yield from (f"{where} {problem}" for problem in _settle(part, owed))
                elif owed:
                    yield f"{where} speaks before {_unanswered(owed)}"
                    owed = []
            continue
        if owed:
            yield f"{where} comes before {_unanswered(owed)}"
        owed = list(message.calls)
    if owed:
        yield f"the conversation ends before {_unanswered(owed)}"


def _settle(result: ToolResultPart, owed: list[ToolCallPart]) -> Iterator[str]:
    """Strike the call that `result` answers from `owed`."""
    match = next((call for call in owed if call.id == result.call_id), None)
    if match is None:
        yield f"has a result for {result.call_id!r}, which is no open call of the message before"
        return
    if match is not owed[0]:
        yield f"answers {match.id!r} before {owed[0].id!r}, against the order of the calls"
    if result.name != match.name:
        yield f"has a result of {result.name!r} for a call of {match.name!r}"
    owed.remove(match)


def _inside(message: Message) -> Iterator[str]:
    if not message.parts:
        yield "is empty"
    elif message.role is Role.ASSISTANT and not any(
        not isinstance(part, ThinkingPart) for part in message.parts
    ):
        yield "has nothing but thinking"
    for part in message.parts:
        yield from _of_part(part)
    ids = Counter(call.id for call in message.calls)
    for id, times in ids.items():
        if times > 1:
            yield f"has {times} calls with the id {id!r}"


def _of_part(part: Part) -> Iterator[str]:
    match part:
        case TextPart() if not part.text.strip():
            yield "has a blank text"
        case ToolCallPart():
            if not part.id.strip():
                yield f"has a call of {part.name!r} without an id"
            if not _NAME.fullmatch(part.name):
                yield f"calls {part.name!r}, a name that some providers refuse"
            if _json.parse_object(part.arguments) is None:
                yield f"has a call of {part.name!r} whose arguments are no JSON object"
        case ToolResultPart():
            if not part.content or (isinstance(part.content, str) and not part.content.strip()):
                yield f"has an empty result for {part.call_id!r}"
            elif not isinstance(part.content, str) and any(
                isinstance(item, TextPart) and not item.text.strip() for item in part.content
            ):
                yield f"has a result with a blank text for {part.call_id!r}"
        case _:
            pass


def _unanswered(owed: list[ToolCallPart]) -> str:
    return f"the calls {', '.join(repr(call.id) for call in owed)} are answered"
