"""What a `ByteServer` plays: pieces of bytes, and the ways in which a connection goes wrong."""

from __future__ import annotations

import http
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from loopctl import _json


class Stall:
    """Silence, until `release()` is called or the connection or the server is closed.

    `reached` says whether a connection has come this far; `ByteServer.wait_reached` waits for it.
    One stall in several scripts is one gate: it is released for all of them.
    """

    def __init__(self) -> None:
        self.reached = False
        self.released = False
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], object]] = []

    def release(self) -> None:
        """Let the script go on; may be called from any thread, before or after it is reached."""
        with self._lock:
            self.released = True
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def on_release(self, wake: Callable[[], object]) -> None:
        """Have `wake` called once, when the stall is released or at once if it is already."""
        with self._lock:
            if not self.released:
                self._wakers.append(wake)
                return
        wake()


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection in order, wherever the reply stands."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Tear the connection down: the client sees a reset (RST), not an end."""


Piece: TypeAlias = bytes | str | Stall | Close | Reset
"""A step of a reply's body; text is sent as UTF-8."""

Script: TypeAlias = tuple[bytes | Stall | Close | Reset, ...]
"""The raw steps that answer one request, status line included; `respond` builds one."""

Framing: TypeAlias = Literal["chunked", "length", "close"]


def respond(
    *body: Piece,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    framing: Framing = "chunked",
) -> Script:
    """An HTTP/1.1 reply, to be sent piece by piece.

    Framing `"chunked"` sends each piece as a chunk of its own, so that the client sees it cut
    there; `"length"` announces the length of the whole; `"close"` announces nothing and closes
    the connection at the end. `headers` come as given; they may contradict the framing. A body
    that holds `Close()` or `Reset()` ends there.
    """
    pieces = [piece.encode() if isinstance(piece, str) else piece for piece in body]
    lines = [f"HTTP/1.1 {status} {_phrase(status)}"]
    given = dict(headers or {})
    names = {name.lower() for name in given}
    if framing == "chunked":
        given |= {} if "transfer-encoding" in names else {"Transfer-Encoding": "chunked"}
    elif framing == "length" and "content-length" not in names:
        given["Content-Length"] = str(sum(len(p) for p in pieces if isinstance(p, bytes)))
    elif framing == "close":
        given |= {} if "connection" in names else {"Connection": "close"}
    lines += [f"{name}: {value}" for name, value in given.items()]
    steps: list[bytes | Stall | Close | Reset] = ["\r\n".join([*lines, "", ""]).encode("latin-1")]
    for piece in pieces:
        if isinstance(piece, bytes) and framing == "chunked":
            if piece:  # an empty chunk would end the body
                steps.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        else:
            steps.append(piece)
        if isinstance(piece, (Close, Reset)):
            return tuple(steps)
    steps += [b"0\r\n\r\n"] if framing == "chunked" else [Close()] if framing == "close" else []
    return tuple(steps)


def respond_json(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Script:
    """A JSON reply of known length."""
    head = {"Content-Type": "application/json", **(headers or {})}
    return respond(_json.wire(value), status=status, headers=head, framing="length")


def respond_sse(*pieces: Piece, headers: Mapping[str, str] | None = None) -> Script:
    """An event stream; make its pieces with `sse`."""
    return respond(*pieces, headers={"Content-Type": "text/event-stream", **(headers or {})})


def sse(data: Any, *, event: str | None = None, id: str | None = None) -> bytes:
    """One server-sent event. `data` goes out as it is when it is text, as JSON otherwise."""
    text = data if isinstance(data, str) else _json.wire(data).decode()
    lines = [f"event: {event}"] if event is not None else []
    lines += [f"id: {id}"] if id is not None else []
    lines += [f"data: {line}" for line in text.split("\n")]
    return "\n".join([*lines, "", ""]).encode()


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
