"""Messages: what users, models and tools say, as frozen values (MOD-1, MOD-2).

A message never changes once it is made, so it can be shared between a run, a contributor, a
compactor and a request without a copy, and what has been derived from it (its bytes for a
dialect, its token count) can be kept beside it for life. `memo` is that place.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias, cast

from loopctl import _json


class Role(StrEnum):
    """Who speaks. Tool results are said by the user's side."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Plain text."""

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"TextPart needs a str, got {type(self.text).__name__}")
        object.__setattr__(self, "text", _json.joined(self.text))


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image: its media type (such as `image/png`) and its raw bytes, not base64."""

    media_type: str
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.data, (bytes, bytearray, memoryview)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"ImagePart needs bytes, got {type(self.data).__name__}")
        object.__setattr__(self, "data", bytes(self.data))


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """Reasoning as the provider gave it: opaque, kept byte-exact with its turn or gone with it.

    `signature` is the provider's proof or sealed content; `redacted` marks a block whose text
    was withheld. `provider`, `model` and `prefix` (a digest of what was sent before it) say where
    it is valid; `kind` is the dialect's own name for the block or field that it came in.
    """

    text: str = ""
    signature: str | None = None
    redacted: bool = False
    provider: str | None = None
    model: str | None = None
    prefix: str | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _json.joined(self.text))


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call of the model. `arguments` is always the JSON text of one object.

    It may be given as text or as a mapping. Text that is a JSON object is kept to the letter, so
    that replaying it keeps a prompt cache. Blank text means `{}`. Other text is repaired if it is
    one of the known slips (TOL-4); failing that `arguments` becomes `{}` and the model's own text
    stands in `unusable`: such a call is answered with an error and never runs. `truncated` says
    that the reply was cut inside this call: it is never repaired and never runs.
    """

    id: str
    name: str
    arguments: str = "{}"
    unusable: str | None = None
    truncated: bool = False

    def __init__(
        self,
        id: str,
        name: str,
        arguments: str | Mapping[str, Any] | None = "{}",
        unusable: str | None = None,
        truncated: bool = False,
    ) -> None:
        text, problem = _arguments(arguments, repair=not truncated)
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", text)
        object.__setattr__(self, "unusable", unusable if unusable is not None else problem)
        object.__setattr__(self, "truncated", truncated)

    def parse(self) -> dict[str, Any]:
        """The arguments, decoded afresh: the caller may change what it gets."""
        return cast("dict[str, Any]", _json.loads(self.arguments))


ToolOutcome: TypeAlias = Literal["executed", "denied", "interrupted", "not_run"]
"""What became of a call: it ran; a decision forbade it; it was stopped, effects unknown; it could
not be run at all. Only the engine sets it, so a tool's own words cannot imitate a denial."""

Retention: TypeAlias = Literal["durable", "requery"]
"""How compaction may treat a result: never clear it, or clear it last: asking again works."""


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """The answer to one call: text, or text and image parts; `is_error` marks a soft failure."""

    call_id: str
    name: str
    content: str | tuple[TextPart | ImagePart, ...]
    is_error: bool = False
    outcome: ToolOutcome = "executed"
    retention: Retention | None = None

    def __post_init__(self) -> None:
        if isinstance(self.content, str):
            object.__setattr__(self, "content", _json.joined(self.content))
            return
        object.__setattr__(self, "content", tuple(self.content))
        for part in cast("tuple[object, ...]", self.content):
            if not isinstance(part, (TextPart, ImagePart)):
                raise TypeError(f"a tool result cannot hold a {type(part).__name__}")

    @property
    def text(self) -> str:
        """The text of the result without its images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))


Part: TypeAlias = TextPart | ImagePart | ThinkingPart | ToolCallPart | ToolResultPart

_set = object.__setattr__  # how a frozen value is filled while it is made

_ALLOWED: dict[Role, tuple[type, ...]] = {
    Role.USER: (TextPart, ImagePart, ToolResultPart),
    Role.ASSISTANT: (TextPart, ThinkingPart, ToolCallPart, ImagePart),
    Role.SYSTEM: (TextPart,),
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message: a role and its parts. Any iterable of parts is taken; strings become text.

    Raises `TypeError` for a part that the role cannot say, such as a tool result of the
    assistant's.
    """

    role: Role
    parts: tuple[Part, ...]
    memo: dict[Any, Any] = field(
        default_factory=dict[Any, Any], init=False, repr=False, compare=False, hash=False
    )

    def __init__(self, role: Role | str, parts: Iterable[Part | str] | str) -> None:
        if type(role) is not Role:
            role = Role(role)
        if isinstance(parts, str):
            parts = (parts,)
        allowed = _ALLOWED[role]
        made: list[Part] = []
        for part in parts:
            if isinstance(part, str):
                part = TextPart(part)
            if not isinstance(part, allowed):
                raise TypeError(f"a {role.value} message cannot hold a {type(part).__name__}")
            made.append(part)
        _set(self, "role", role)
        _set(self, "parts", tuple(made))
        _set(self, "memo", {})

    @classmethod
    def user(cls, *parts: Part | str) -> Message:
        """A user message of the given texts and parts."""
        return cls(Role.USER, parts)

    @classmethod
    def assistant(cls, *parts: Part | str) -> Message:
        """An assistant message of the given texts and parts."""
        return cls(Role.ASSISTANT, parts)

    @classmethod
    def system(cls, *parts: Part | str) -> Message:
        """A system message of the given texts."""
        return cls(Role.SYSTEM, parts)

    @property
    def text(self) -> str:
        """The text parts joined, without thinking, calls and results."""
        return "".join([part.text for part in self.parts if isinstance(part, TextPart)])

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls of the message, in order."""
        found: tuple[ToolCallPart, ...] | None = self.memo.get("calls")
        if found is None:  # a turn asks for them again and again
            found = tuple([part for part in self.parts if isinstance(part, ToolCallPart)])
            self.memo["calls"] = found
        return found

    @property
    def results(self) -> tuple[ToolResultPart, ...]:
        """The tool results of the message, in order."""
        return tuple([part for part in self.parts if isinstance(part, ToolResultPart)])

    def __reduce__(self) -> tuple[Any, ...]:
        return (Message, (self.role, self.parts))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON with a `type` tag on each part; `from_json` gives an equal message."""
        return {"role": self.role.value, "parts": [_part_to_json(part) for part in self.parts]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Message:
        """Load `to_json` output. Unknown fields are ignored.

        Raises `ValueError` for a document that is not a message, naming what is wrong.
        """
        try:
            return cls(document["role"], [_part_from_json(part) for part in document["parts"]])
        except KeyError as error:
            raise ValueError(f"not a message: field {error} is missing") from error
        except TypeError as error:
            raise ValueError(f"not a message: {error}") from error


def _arguments(given: str | Mapping[str, Any] | None, *, repair: bool) -> tuple[str, str | None]:
    if given is None:
        return "{}", None
    if not isinstance(given, str):
        return _json.dumps(_json.to_plain(dict(given))), None
    if not given.strip():
        return "{}", None
    given = _json.joined(given)
    if _json.parse_object(given) is not None:
        return given, None
    repaired = _json.repair_object(given) if repair else None
    return ("{}", given) if repaired is None else (_json.dumps(_json.to_plain(repaired)), None)


def _part_to_json(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            data = base64.b64encode(part.data).decode("ascii")
            return {"type": "image", "media_type": part.media_type, "data": data}
        case ThinkingPart():
            return _without_defaults({"type": "thinking", "text": part.text}, part, _THINKING)
        case ToolCallPart():
            document: dict[str, Any] = {"type": "tool_call", "id": part.id, "name": part.name}
            document["arguments"] = part.arguments
            return _without_defaults(document, part, {"unusable": None, "truncated": False})
        case ToolResultPart():
            content = part.content
            document = {"type": "tool_result", "call_id": part.call_id, "name": part.name}
            document["content"] = (
                content if isinstance(content, str) else [_part_to_json(item) for item in content]
            )
            return _without_defaults(document, part, _RESULT)


_THINKING: dict[str, Any] = {
    "signature": None,
    "redacted": False,
    "provider": None,
    "model": None,
    "prefix": None,
    "kind": None,
}
_RESULT: dict[str, Any] = {"is_error": False, "outcome": "executed", "retention": None}


def _without_defaults(
    document: dict[str, Any], part: Part, defaults: dict[str, Any]
) -> dict[str, Any]:
    for name, default in defaults.items():
        if (value := getattr(part, name)) != default:
            document[name] = value
    return document


def _part_from_json(document: Mapping[str, Any]) -> Part:
    kind = document["type"]
    if kind == "text":
        return TextPart(document["text"])
    if kind == "image":
        return ImagePart(document["media_type"], base64.b64decode(document["data"]))
    if kind == "thinking":
        known = {name: document[name] for name in _THINKING if name in document}
        return ThinkingPart(document["text"], **known)
    if kind == "tool_call":
        return ToolCallPart(
            document["id"],
            document["name"],
            document["arguments"],
            document.get("unusable"),
            document.get("truncated", False),
        )
    if kind == "tool_result":
        content = document["content"]
        if not isinstance(content, str):
            content = tuple(cast(Any, _part_from_json(item)) for item in content)
        known = {name: document[name] for name in _RESULT if name in document}
        return ToolResultPart(document["call_id"], document["name"], content, **known)
    raise ValueError(f"not a message: unknown part type {kind!r}")
