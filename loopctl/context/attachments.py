"""Attachments: pinned data that rides every request and never enters history (CTX-11 … CTX-18)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Protocol, cast, runtime_checkable

import anyio
import anyio.lowlevel

from loopctl._failures import error_text
from loopctl.errors import AttachmentError
from loopctl.messages import Message, TextPart


class AttachmentKind(StrEnum):
    """What is pinned. Memories ride first, then files, then todos: the most volatile last."""

    MEMORY = "memory"
    FILE = "file"
    TODO = "todo"


_RANK = {kind: rank for rank, kind in enumerate(AttachmentKind)}
_ID = re.compile(r"(memory|file|todo):(\S|\S.*\S)", re.DOTALL)


@runtime_checkable
class Attachment(Protocol):
    """Pinned data. `render` gives the same text for the same state and does no IO."""

    @property
    def id(self) -> str:
        """`"{kind}:{slug}"`, unique in the store; the same id again replaces."""
        ...

    @property
    def kind(self) -> AttachmentKind:
        """What is pinned; it decides the place in the message."""
        ...

    def render(self) -> TextPart | str:
        """The text as the model reads it."""
        ...


def checked(attachment: object) -> tuple[str, AttachmentKind]:
    """The id and kind of something that may be pinned; `AttachmentError` otherwise (CTX-11)."""
    name = str(getattr(attachment, "id", type(attachment).__name__))
    if isinstance(attachment, type) or not isinstance(attachment, Attachment):
        raise AttachmentError(name, "an attachment has `id`, `kind` and `render()`")
    attachment_id = attachment.id
    if not (isinstance(cast("object", attachment_id), str) and _ID.fullmatch(attachment_id)):
        wanted = "the id must be 'memory:<slug>', 'file:<slug>' or 'todo:<slug>'"
        raise AttachmentError(name, wanted)
    try:
        kind = AttachmentKind(attachment.kind)
    except ValueError:
        raise AttachmentError(name, f"unknown kind {attachment.kind!r}") from None
    if attachment_id.partition(":")[0] != kind.value:
        raise AttachmentError(name, f"the id must start with its kind, '{kind.value}:'")
    rendered(attachment, attachment_id)
    return attachment_id, kind


def rendered(attachment: Attachment, attachment_id: str) -> str:
    """The text of an attachment; `AttachmentError` if it raises or gives no text (CTX-18)."""
    try:
        text: Any = attachment.render()
    except Exception as error:
        reason = f"render() raised {error_text(error)}"
        raise AttachmentError(attachment_id, reason) from error
    if isinstance(text, TextPart):
        return text.text
    if isinstance(text, str):
        return text
    raise AttachmentError(attachment_id, f"render() gave {type(text).__name__}, not text")


class AttachmentStore:
    """What is pinned right now, guarded by an async lock (CTX-14).

    The lock is made for the event loop that runs, when it is first needed there. Nothing else is
    awaited and nothing is told while it is held, and readers get an immutable snapshot.
    """

    __slots__ = ("_by_id", "_lock", "_message", "_riding", "_texts", "_token")

    def __init__(self, attachments: Iterable[Attachment] = ()) -> None:
        self._by_id: dict[str, tuple[AttachmentKind, Attachment]] = {}
        self._riding: tuple[tuple[str, Attachment], ...] = ()
        self._lock = anyio.Lock(fast_acquire=True)
        self._token: object = None
        self._texts: list[str] = []
        self._message: Message | None = None
        for attachment in attachments:
            attachment_id, kind = checked(attachment)
            self._by_id[attachment_id] = (kind, attachment)
        self._reorder()

    def _reorder(self) -> None:
        entries = sorted(self._by_id.items(), key=lambda entry: _RANK[entry[1][0]])
        self._riding = tuple((name, attachment) for name, (_, attachment) in entries)

    def here(self) -> anyio.Lock:
        """The lock of the event loop that runs; a run asks once, when it takes off."""
        token = anyio.lowlevel.current_token()
        if token != self._token:
            self._lock = anyio.Lock(fast_acquire=True)
            self._token = token
        return self._lock

    async def set(self, attachment: Attachment) -> str:
        """Pin, or replace in place what has the same id. Gives the id; `AttachmentError` if not."""
        attachment_id, kind = checked(attachment)
        async with self.here():
            self._by_id[attachment_id] = (kind, attachment)
            self._reorder()
        return attachment_id

    async def detach(self, attachment_id: str) -> bool:
        """Take an attachment away; `False` if it was not there."""
        async with self.here():
            if self._by_id.pop(attachment_id, None) is None:
                return False
            self._reorder()
        return True

    def ids(self) -> tuple[str, ...]:
        """What is pinned, in the order in which it rides."""
        return tuple(name for name, _ in self._riding)

    def pinned(self) -> tuple[Attachment, ...]:
        """The attachments themselves, in the order in which they ride."""
        return tuple(attachment for _, attachment in self._riding)

    async def message(self) -> Message | None:
        """One user message of all that is pinned now, `None` if nothing is (CTX-16).

        The same object as last time when every text is the same, so that what was derived from
        it is kept. Ask `here` first in a new event loop. Raises `AttachmentError` for one that
        fails to render.
        """
        if not self._by_id:
            return None
        try:
            self._lock.acquire_nowait()  # as a rule it is free, and this is on every turn's path
        except anyio.WouldBlock:
            await self._lock.acquire()
        riding = self._riding
        self._lock.release()
        texts = [rendered(attachment, name) for name, attachment in riding]
        if texts != self._texts or self._message is None:
            self._texts = texts
            self._message = Message.user(*(text for text in texts if text.strip()))
        return self._message if self._message.parts else None
