"""What the tests of an agent need: a scripted model, a fixed clock, a server that misbehaves.

Nothing here imports pytest, except `loopctl.testing.fixtures`, which pytest loads by
`pytest_plugins = ["loopctl.testing.fixtures"]`.
"""

from loopctl.testing.clock import FixedClock
from loopctl.testing.scripted import Answer, Reply, ScriptedClient, call, stream_events

__all__ = ["Answer", "FixedClock", "Reply", "ScriptedClient", "call", "stream_events"]
