"""A typed answer: asked for by a schema, validated, repaired once (ENG-10).

The schema rides as `RequestOptions.response_schema`, which each dialect turns into what its API
has. A client that cannot take it, or not beside tools, is asked in words in the system prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from loopctl import _json
from loopctl.config import RequestOptions
from loopctl.errors import ConfigError, OutputInvalid
from loopctl.messages import Message
from loopctl.replies import ModelResponse, StopReason

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

MAX_REPAIRS = 1
"""How often an answer that does not fit is sent back to the model."""

MAX_PROBLEMS = 10
"""How many of an answer's problems are quoted."""

_QUOTED_CHARS = 200
_FENCED = re.compile(r"```[A-Za-z]*[ \t]*\n(.*?)```", re.DOTALL)
_STOPPED = (StopReason.REFUSAL, StopReason.FILTER)


class OutputType(Generic[T]):
    """What the answer of one run must be, and how the model is told. Kept by the run.

    Raises `ConfigError` for a type of which no schema can be made, and beside a
    `response_schema` of the caller's own.
    """

    def __init__(self, wanted: type[T], options: RequestOptions) -> None:
        if options.response_schema is not None:
            raise ConfigError("give output= or RequestOptions.response_schema, not both")
        self._adapter, schema = _adapter(wanted)
        self._wrapped = schema.get("type") != "object"
        self.schema = _wrap(schema) if self._wrapped else schema
        self._options = replace(options, response_schema=self.schema)
        self._plain = options
        self._told: tuple[str | None, str] = (None, "")
        self._repairs = 0
        self.in_words = False
        """Whether the model is asked in the system prompt, because it takes no schema."""
        self.value: T | None = None

    @property
    def options(self) -> RequestOptions:
        """The run's options, with the schema where the model takes one."""
        return self._plain if self.in_words else self._options

    def system(self, given: str | None) -> str | None:
        """The system prompt, with the schema where the model must be asked in words."""
        if not self.in_words:
            return given
        if self._told[0] is not given or not self._told[1]:
            self._told = (given, self._in_words(given))  # the same object for every turn
        return self._told[1]

    def _in_words(self, given: str | None) -> str:
        asked = (
            "When you are done, answer with one JSON document and nothing else, that fits this"
            f" schema:\n{_json.dumps(self.schema)}"
        )
        return f"{given}\n\n{asked}" if given and given.strip() else asked

    def judge(self, response: ModelResponse) -> Message | None:
        """Take the value out of an answer; what to say to the model if it does not fit.

        Replies with calls, refused and filtered ones are no answers yet. Raises `OutputInvalid`
        for an answer that was cut off, and for one that still does not fit after a repair.
        """
        if response.message.calls or response.stop_reason in _STOPPED:
            return None
        text = response.message.text
        if response.stop_reason is StopReason.LENGTH:
            raise OutputInvalid(text, (), cut_off=True)
        try:
            self.value = self._read(text)
        except _NotFitting as error:
            if self._repairs == MAX_REPAIRS:
                raise OutputInvalid(text, error.problems) from error.__cause__
            self._repairs += 1
            listed = "\n".join(f"- {problem}" for problem in error.problems)
            return Message.user(
                f"Your answer does not fit what was asked for:\n{listed}\n"
                "Answer again with the corrected JSON document and nothing else."
            )
        return None

    def _read(self, text: str) -> T:
        problem = "it is blank" if not text.strip() else "it is not JSON"
        for candidate in _candidates(text):
            try:
                document = _json.loads(candidate)
            except ValueError as error:
                problem = f"it is not JSON: {error}"
                continue
            return self._validated(document)
        raise _NotFitting((problem,))

    def _validated(self, document: object) -> T:
        from pydantic import ValidationError

        inner = document
        if self._wrapped and isinstance(document, dict) and {*document} == {"value"}:
            inner = cast("dict[str, object]", document)["value"]
        try:
            return self._adapter.validate_json(_json.wire(inner))
        except ValidationError as error:
            raise _NotFitting(_problems(error)) from error


class _NotFitting(Exception):
    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def _adapter(wanted: type[T]) -> tuple[TypeAdapter[T], dict[str, Any]]:
    from pydantic import PydanticUserError, TypeAdapter

    try:
        adapter = TypeAdapter(wanted)
        return adapter, adapter.json_schema()
    except (PydanticUserError, TypeError, NameError) as error:
        raise ConfigError(f"output={wanted!r}: no schema can be made of it: {error}") from error


def _wrap(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema under the field `value` of an object: what APIs take at the top is an object."""
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    whole: dict[str, Any] = {
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
    }
    if "$defs" in schema:
        whole["$defs"] = schema["$defs"]
    return whole


def _candidates(text: str) -> Iterator[str]:
    """Where the JSON of an answer may be: the whole, inside a fence, between its braces."""
    yield text
    yield from _FENCED.findall(text)
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            yield text[start : end + 1]


def _problems(error: ValidationError) -> tuple[str, ...]:
    found = error.errors(include_url=False, include_context=False)
    listed = [
        f"{'.'.join(map(str, problem['loc'])) or 'the document'}: {problem['msg']},"
        f" not {_short(problem['input'])}"
        for problem in found[:MAX_PROBLEMS]
    ]
    if len(found) > MAX_PROBLEMS:
        listed.append(f"and {len(found) - MAX_PROBLEMS} more")
    return tuple(listed)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "…"
