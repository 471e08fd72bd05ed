"""What the tests of an agent need: a scripted model, a fixed clock, a server that misbehaves.

Nothing here imports pytest until it is asked for: `loopctl.testing.fixtures`, which pytest loads
by `pytest_plugins = ["loopctl.testing.fixtures"]`, and the contract suites need it.
"""

from loopctl.testing.byte_script import (
    Close,
    Reset,
    Script,
    Stall,
    respond,
    respond_json,
    respond_sse,
    sse,
)
from loopctl.testing.byte_server import (
    ByteServer,
    Playable,
    ReceivedRequest,
    ThreadedByteServer,
    threaded,
)
from loopctl.testing.chat_replies import chat_chunk, chat_completion, chat_pieces, chat_reply
from loopctl.testing.clock import FixedClock
from loopctl.testing.compaction import CompactorContract, conversations
from loopctl.testing.consulting import consult
from loopctl.testing.scripted import Answer, Reply, ScriptedClient, call, stream_events
from loopctl.testing.validity import (
    assert_valid_conversation,
    assert_valid_request,
    conversation_problems,
    request_problems,
)

__all__ = [
    "Answer",
    "ByteServer",
    "Close",
    "CompactorContract",
    "FixedClock",
    "Playable",
    "ReceivedRequest",
    "Reply",
    "Reset",
    "Script",
    "ScriptedClient",
    "Stall",
    "ThreadedByteServer",
    "assert_valid_conversation",
    "assert_valid_request",
    "call",
    "chat_chunk",
    "chat_completion",
    "chat_pieces",
    "chat_reply",
    "consult",
    "conversation_problems",
    "conversations",
    "request_problems",
    "respond",
    "respond_json",
    "respond_sse",
    "sse",
    "stream_events",
    "threaded",
]
