"""The attachments that ship: a memory, a file, a list of todos (CTX-12, CTX-13)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from loopctl.context.attachments import AttachmentKind

MAX_INLINE_BYTES = 8192
"""How much of a file `FileAttachment.inline` pins, in bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class MemoryAttachment:
    """A fact that the whole session depends on."""

    slug: str
    memory: str

    @property
    def id(self) -> str:
        """`memory:<slug>`."""
        return f"memory:{self.slug}"

    @property
    def kind(self) -> AttachmentKind:
        """`AttachmentKind.MEMORY`."""
        return AttachmentKind.MEMORY

    def render(self) -> str:
        """The memory under a label."""
        return f"[memory: {self.slug}]\n{self.memory}"


@dataclass(frozen=True, slots=True)
class FileAttachment:
    """A file that the session is focused on: its path alone, or its contents."""

    path: str
    contents: str | None = None
    truncate: bool = True

    @classmethod
    def path_only(cls, path: str | os.PathLike[str]) -> FileAttachment:
        """Pin the path; the model reads the file itself if it wants to."""
        return cls(os.fspath(path))

    @classmethod
    def inline(
        cls, path: str | os.PathLike[str], contents: str, truncate: bool = True
    ) -> FileAttachment:
        """Pin the contents, at most 8 KiB of them unless `truncate` is `False`."""
        return cls(os.fspath(path), contents, truncate)

    @property
    def id(self) -> str:
        """`file:<path>`."""
        return f"file:{self.path}"

    @property
    def kind(self) -> AttachmentKind:
        """`AttachmentKind.FILE`."""
        return AttachmentKind.FILE

    def render(self) -> str:
        """The path, and the contents with a footer that says what was cut."""
        label = f"[file: {self.path}]"
        if self.contents is None:
            return label
        data = self.contents.encode("utf-8", "replace")
        if not self.truncate or len(data) <= MAX_INLINE_BYTES:
            return f"{label}\n{self.contents}"
        shown = data[:MAX_INLINE_BYTES].decode("utf-8", "ignore")
        size = len(shown.encode())
        return f"{label}\n{shown}\n[truncated: {size} of {len(data)} bytes shown]"


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One thing to do."""

    text: str
    completed: bool = False


@dataclass(frozen=True, slots=True, init=False)
class TodoAttachment:
    """The live list of things to do. To check one off, pin a new list under the same slug."""

    items: tuple[TodoItem, ...]
    slug: str

    def __init__(self, items: Iterable[TodoItem], slug: str = "session") -> None:
        object.__setattr__(self, "items", tuple(items))
        object.__setattr__(self, "slug", slug)

    @property
    def id(self) -> str:
        """`todo:<slug>`."""
        return f"todo:{self.slug}"

    @property
    def kind(self) -> AttachmentKind:
        """`AttachmentKind.TODO`."""
        return AttachmentKind.TODO

    def render(self) -> str:
        """The list, one line for each item with its box."""
        lines = [f"- [{'x' if item.completed else ' '}] {item.text}" for item in self.items]
        return "\n".join([f"[todo: {self.slug}]", *(lines or ["(empty)"])])
