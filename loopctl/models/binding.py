"""Reasoning that is bound to what stood in front of it (MOD-26).

Some models seal their reasoning to the exact request that it answered: system text, tools and
every message as they were sent. Sent back behind anything else it is refused, or silently thrown
away. So a reply's `ThinkingPart`s carry the digest of the request that they came for, and the
model that was asked; a request runs the same digest over what it is about to send, and leaves a
bound part out where the two differ.

What is left out is not in the running digest either. Therefore whatever was bound to it goes with
it, and reasoning that came after it had been left out stays: the digest says exactly what the
provider would see.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

from loopctl.messages import Message, ThinkingPart

_SIZE = 16

_KEY = object()
"""Where a message keeps its last link."""

_Link: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""A message's bytes, their digest, and the running digest before and after them."""


class RunningDigest:
    """The digest of what a request sends, as far as it has been put together.

    Begin with what stands in front of all messages, `add` each message with the bytes that are
    sent for it (without cache marks, which bind nothing), ask `holds` for each thinking part in
    front of the message that holds it, and take `value` for `HttpRequest.prefix` at the end.
    A message whose bytes are the same object as last time costs a look into its memo.
    """

    def __init__(self, fixed: Iterable[bytes] = ()) -> None:
        self.state = b"".join([_hash(fragment) for fragment in fixed])
        """Where the digest stands. Set it to what it was behind the same messages, behind the same
        state in front of them, to save going over them again."""

    @property
    def value(self) -> str:
        """The digest of all that was added, as text."""
        return _hash(self.state).hex()

    def add(self, message: Message, fragment: bytes) -> None:
        """`fragment` is sent for `message`, behind all that was added before."""
        before = self.state
        link: _Link | None = message.memo.get(_KEY)
        if link is None or link[0] is not fragment:
            own = _hash(fragment)
        elif link[2] == before:
            self.state = link[3]
            return
        else:
            own = link[1]
        self.state = _hash(before + own)
        message.memo[_KEY] = (fragment, own, before, self.state)

    def add_bytes(self, fragment: bytes) -> None:
        """`fragment` is sent, and belongs to no message."""
        self.state = _hash(self.state + _hash(fragment))

    def holds(self, part: ThinkingPart, model: str) -> bool:
        """Whether `model` accepts `part` in the message that comes next.

        Unbound parts are held, whatever model they came with: a dialect has its own rule for those.
        """
        return part.prefix is None or (part.model == model and part.prefix == self.value)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SIZE).digest()
