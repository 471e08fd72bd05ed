"""Which call a fragment of a tool call belongs to (MOD-9; B9, B10, B12, B14).

An id that was seen names its call. A new id is a new call, also on an index that is in use.
Without an id the index decides; without both, the fragment goes on with the call opened last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from loopctl import _json
from loopctl.wire.stream_events import PartDelta, PartStart, StreamEvent


@dataclass(slots=True, eq=False)
class _Call:
    """A call that is being put together; its name is told when its arguments begin."""

    place: int
    id: str | None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    told: bool = False

    @property
    def whole(self) -> bool:
        """Whether its arguments are all there, as far as can be seen."""
        text = "".join(self.pieces)
        return not text.strip() or _json.parse_object(text) is not None


class CallFragments:
    """Assigns fragments to calls and tells them as parts from the place `first` on."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def whole(self) -> bool:
        """Whether the call opened last is all there, as far as can be seen."""
        return not self._calls or self._calls[-1].whole

    def feed(self, entries: Sequence[object], *, whole: bool) -> Iterator[StreamEvent]:
        """The events of one list of fragments; in a `whole` reply each entry is a call."""
        before = len(self._calls)
        for entry in entries:
            if not isinstance(entry, dict):
                continue
            given = cast("Mapping[str, Any]", entry)
            function = given.get("function")
            if not isinstance(function, dict):
                function = given
            function = cast("Mapping[str, Any]", function)
            id, name = _word(given.get("id")), _word(function.get("name")) or ""
            index = given.get("index")
            index = index if type(index) is int else None
            call = None if whole else self._find(id, index, name, fresh=before)
            if call is None:
                yield from self.finish()
                call = self._open(id, index)
            elif index is not None:
                self._by_index[index] = call
            self._name(call, id, name)
            arguments = _arguments(function.get("arguments"))
            if arguments:
                yield from self._tell(call)
                call.pieces.append(arguments)
                yield PartDelta("tool_call", call.place, arguments)

    def finish(self) -> Iterator[StreamEvent]:
        """Tell what has not been told of the calls: those whose arguments have not begun."""
        for call in self._calls:
            yield from self._tell(call)

    def _find(self, id: str | None, index: int | None, name: str, *, fresh: int) -> _Call | None:
        """The call that the fragment goes on with; `None` when it begins a new one."""
        last = self._calls[-1] if self._calls else None
        at_index = self._by_index.get(index) if index is not None else None
        if id is not None:
            if id in self._by_id:
                return self._by_id[id]
            if at_index is None:
                return None
            if at_index.id is None:  # an id that came late
                return at_index if name in ("", at_index.name) or not at_index.pieces else None
            return at_index if not name and not at_index.whole else None  # an id per fragment
        call = at_index if index is not None else last
        if call is None:
            return None if name else last  # the tail of a call under another index
        begins = bool(name) and (
            (bool(call.pieces) and call.whole)
            or (bool(call.pieces) and name != call.name)
            or (index is None and call.place - self._first >= fresh)
        )
        return None if begins else call

    def _open(self, id: str | None, index: int | None) -> _Call:
        call = _Call(self._first + len(self._calls), id)
        self._calls.append(call)
        if id is not None:
            self._by_id[id] = call
        if index is not None:
            self._by_index[index] = call
        return call

    def _name(self, call: _Call, id: str | None, name: str) -> None:
        if call.id is None and id is not None:
            call.id, call.told = id, False
            self._by_id[id] = call
        if name and name != call.name and not call.pieces:
            call.name += name

    def _tell(self, call: _Call) -> Iterator[StreamEvent]:
        if not call.told:
            call.told = True
            yield PartStart("tool_call", call.place, call.id, call.name)


def _word(value: object) -> str | None:
    """A usable id or name; some servers write the word null for none."""
    return value if isinstance(value, str) and value.strip() and value != "null" else None


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _json.dumps(_json.to_plain(value))
