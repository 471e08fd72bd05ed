"""Encoding a request of 10, 100 and 1,000 messages, next to joining the same fragments as bytes.

    uv run python benchmarks/requests.py

Each sample encodes a conversation that has grown by one message since the last request, as a
turn does: the old messages' fragments are kept with them, the new one's is made. The plain join
puts the same fragments together and nothing else.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from loopctl import Message, ToolCallPart, ToolResultPart, connect
from loopctl.models.client import ModelClient, ModelRequest, ToolSchema

SIZES = (10, 100, 1000)
SAMPLES = 200
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (ToolSchema(name="read", description="Read a file.", input_schema=SCHEMA),)


def conversation(size: int) -> list[Message]:
    """User, then call and result in turns, each of about 300 characters."""
    messages = [Message.user("look at these files: " + "x" * 280)]
    while len(messages) < size:
        number = len(messages)
        messages.append(
            Message.assistant("next", ToolCallPart(f"c{number}", "read", {"path": "a" * 250}))
        )
        messages.append(Message.user(ToolResultPart(f"c{number}", "read", "line\n" * 60)))
    return messages[:size]


def median(once: Callable[[], object], prepare: Callable[[], None] = lambda: None) -> float:
    times: list[float] = []
    for _ in range(SAMPLES):
        prepare()
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def encoding(client: ModelClient, size: int) -> tuple[float, float]:
    """Seconds to encode `size` messages of which the last is new, and to join as many bytes."""
    messages = conversation(size)
    held: list[ModelRequest] = []
    encode = client.encode  # type: ignore[attr-defined]

    def renew() -> None:
        last = messages[-1]
        messages[-1] = Message(last.role, last.parts)
        held[:] = [ModelRequest(messages=tuple(messages), system="be brief", tools=TOOLS)]

    renew()
    body = encode(held[0]).body
    pieces = [body[i * len(body) // size : (i + 1) * len(body) // size] for i in range(size)]
    ours = median(lambda: encode(held[0]), renew)
    return ours, median(lambda: b",".join(pieces))


def main() -> None:
    client = connect("openai-chat:gpt-5.4", api_key="none")
    rows = {size: encoding(client, size) for size in SIZES}
    print("openai-chat   messages   encode µs   plain join µs")
    for size, (ours, join) in rows.items():
        print(f"{size:>22} {ours * 1e6:>11.1f} {join * 1e6:>15.2f}")
    at_ten, (at_most, join) = rows[10][0], rows[1000]
    allowed = 5 * join + at_ten
    print(f"1,000 messages next to 5 × join + the cost at 10: {at_most / allowed:.2f} (target ≤ 1)")


if __name__ == "__main__":
    main()
