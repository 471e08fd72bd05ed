"""CTX-11 … CTX-18: what is pinned, and how it becomes one message."""

from __future__ import annotations

import dataclasses
from typing import Any

import anyio
import pytest

from loopctl import FileAttachment, MemoryAttachment, Message, TextPart, TodoAttachment, TodoItem
from loopctl.context.attachments import AttachmentKind, AttachmentStore
from loopctl.errors import AttachmentError
from loopctl.messages import Role

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Pinned:
    id: Any = "memory:x"
    kind: Any = AttachmentKind.MEMORY
    text: Any = "text"

    def render(self) -> Any:
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


@pytest.mark.parametrize(
    ("attachment", "says"),
    [
        (Pinned(id="x"), "memory:<slug>"),
        (Pinned(id="memory:"), "memory:<slug>"),
        (Pinned(id="memory: "), "memory:<slug>"),
        (Pinned(id=7), "memory:<slug>"),
        (Pinned(id="note:x"), "memory:<slug>"),
        (Pinned(id="file:x"), "must start with its kind"),
        (Pinned(kind="note"), "unknown kind 'note'"),
        (Pinned(text=7), "gave int, not text"),
        (Pinned(text=None), "gave NoneType, not text"),
        (Pinned(text=ZeroDivisionError("no")), "raised ZeroDivisionError: no"),
        (object(), "has `id`, `kind` and `render()`"),
        (Pinned, "has `id`, `kind` and `render()`"),
    ],
)
async def test_what_cannot_be_pinned_is_refused_there_and_then(attachment: Any, says: str) -> None:
    """CTX-11: malformed id, wrong prefix, non-text render, a render that raises: nothing pinned."""
    store = AttachmentStore([MemoryAttachment("kept", "k")])
    with pytest.raises(AttachmentError) as caught:
        await store.set(attachment)
    assert says in str(caught.value)
    assert store.ids() == ("memory:kept",)
    with pytest.raises(AttachmentError):
        AttachmentStore([attachment])


async def test_a_render_may_give_a_text_part() -> None:
    """CTX-11: text is a `TextPart` or a `str`."""
    store = AttachmentStore([Pinned(text=TextPart("as a part"))])
    message = await store.message()
    assert message is not None
    assert message.text == "as a part"


def test_built_ins_copy_what_they_are_given_and_name_themselves() -> None:
    """CTX-12: ids, kinds, labels; later changes of the given list do not show."""
    items = [TodoItem("write", completed=True), TodoItem("test")]
    todo = TodoAttachment(items)
    items.clear()
    assert todo.id == "todo:session"
    assert todo.render() == "[todo: session]\n- [x] write\n- [ ] test"
    assert TodoAttachment([], slug="later").render() == "[todo: later]\n(empty)"
    assert MemoryAttachment("style", "terse").render() == "[memory: style]\nterse"
    assert MemoryAttachment("style", "terse").id == "memory:style"
    assert FileAttachment.path_only("a/b.py").render() == "[file: a/b.py]"
    assert FileAttachment.inline("a/b.py", "x = 1").render() == "[file: a/b.py]\nx = 1"
    assert FileAttachment.inline("a/b.py", "").id == "file:a/b.py"


@pytest.mark.parametrize("cut", [True, False])
def test_a_file_is_cut_at_8192_bytes_on_a_character_boundary(cut: bool) -> None:
    """CTX-13: exactly 8192 bytes is not cut; more is, with a footer of bytes shown of bytes."""
    exact = "a" * 8192
    assert FileAttachment.inline("f", exact, truncate=cut).render() == f"[file: f]\n{exact}"
    wide = "a" * 8190 + "€€"
    text = FileAttachment.inline("f", wide, truncate=cut).render()
    if not cut:
        assert text == f"[file: f]\n{wide}"
    else:
        assert text == f"[file: f]\n{'a' * 8190}\n[truncated: 8190 of 8196 bytes shown]"


async def test_one_user_message_memories_then_files_then_todos() -> None:
    """CTX-16: one message; kinds in order; within a kind, in the order first pinned."""
    store = AttachmentStore([TodoAttachment([]), FileAttachment.path_only("z")])
    await store.set(MemoryAttachment("b", "B"))
    await store.set(FileAttachment.path_only("a"))
    await store.set(MemoryAttachment("a", "A"))
    assert store.ids() == ("memory:b", "memory:a", "file:z", "file:a", "todo:session")
    message = await store.message()
    assert message is not None
    assert message.role is Role.USER
    assert [p.text for p in message.parts if isinstance(p, TextPart)] == [
        "[memory: b]\nB",
        "[memory: a]\nA",
        "[file: z]",
        "[file: a]",
        "[todo: session]\n(empty)",
    ]


async def test_pinning_again_replaces_in_place_and_detaching_says_whether_it_was_there() -> None:
    """CTX-14: same position, newest value."""
    store = AttachmentStore([MemoryAttachment("a", "1"), MemoryAttachment("b", "2")])
    await store.set(MemoryAttachment("a", "3"))
    message = await store.message()
    assert message == Message.user("[memory: a]\n3", "[memory: b]\n2")
    assert await store.detach("memory:a") is True
    assert await store.detach("memory:a") is False
    await store.set(MemoryAttachment("a", "4"))
    assert store.ids() == ("memory:b", "memory:a")


async def test_an_empty_store_builds_no_message() -> None:
    """CTX-16: no message at all, also after the last attachment has gone or renders blank."""
    store = AttachmentStore()
    assert await store.message() is None
    await store.set(Pinned(text=" \n"))
    assert await store.message() is None
    await store.detach("memory:x")
    assert await store.message() is None


async def test_the_message_is_the_same_object_until_a_text_changes() -> None:
    """CTX-20, MOD-23: an unchanged store gives the same message, with what is kept beside it."""
    store = AttachmentStore([Pinned(text="a")])
    first = await store.message()
    assert await store.message() is first
    await store.set(Pinned(text="a"))
    assert await store.message() is first
    await store.set(Pinned(text="b"))
    assert await store.message() == Message.user("b")


async def test_a_render_that_raises_later_names_its_id() -> None:
    """CTX-18: a pinned fact is never silently missing."""
    pinned = Pinned()
    store = AttachmentStore([pinned])
    pinned.text = ValueError("gone")
    with pytest.raises(AttachmentError, match="memory:x.*ValueError: gone"):
        await store.message()


async def test_a_pin_that_races_a_request_is_wholly_in_it_or_wholly_in_the_next() -> None:
    """CTX-14: the render of one snapshot is not changed by pins that come in between."""
    store = AttachmentStore()

    class Meddling(Pinned):
        def render(self) -> str:
            if inside.is_set():
                store._by_id["memory:late"] = (AttachmentKind.MEMORY, Pinned(id="memory:late"))
                store._reorder()
            return "first"

    inside = anyio.Event()
    await store.set(Meddling())
    await store.set(Pinned(id="memory:second", text="second"))
    inside.set()
    assert await store.message() == Message.user("first", "second")
    assert "memory:late" in store.ids()


def test_one_store_serves_two_event_loops_one_after_the_other() -> None:
    """CTX-14: the lock belongs to the running event loop, and is never made at import."""
    store = AttachmentStore()

    async def pin(slug: str) -> None:
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(store.set, MemoryAttachment(f"{slug}{number}", "m"))

    anyio.run(pin, "a", backend="asyncio")
    anyio.run(pin, "b", backend="trio")
    anyio.run(pin, "c", backend="asyncio")
    assert len(store.ids()) == 15
