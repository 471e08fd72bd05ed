"""How a request is put together (CTX-19, CTX-20).

Head: attachments, contributors, memory. Then the conversation. Tail: contributors, memory,
attachments. The steadiest stands outermost at the head, so that an unchanged store gives an
unchanged prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from loopctl.config import Placement, RequestOptions
from loopctl.context.contributors import Contributions
from loopctl.messages import Message
from loopctl.models.client import ModelRequest, ToolSchema


class Conversation(Protocol):
    """Whoever holds the conversation."""

    def between(self, head: Sequence[Message], tail: Sequence[Message]) -> tuple[Message, ...]:
        """`head`, the conversation, `tail`."""
        ...


def assemble(
    source: Conversation,
    *,
    system: str | None,
    tools: tuple[ToolSchema, ...],
    options: RequestOptions,
    contributions: Contributions,
    attachments: Message | None,
    attachment_placement: Placement,
    memory: Message | None = None,
    memory_placement: Placement = "head",
) -> ModelRequest:
    """The request of one turn; transients are in it and nowhere else."""
    head: Sequence[Message] = contributions.head
    tail: Sequence[Message] = contributions.tail
    if memory is not None:
        if memory_placement == "head":
            head = (*head, memory)
        else:
            tail = (*tail, memory)
    if attachments is not None:
        if attachment_placement == "head":
            head = (attachments, *head)
        else:
            tail = (*tail, attachments)
    return ModelRequest(
        messages=source.between(head, tail),
        system=system,
        tools=tools,
        options=options,
        head=len(head),
        tail=len(tail),
    )
