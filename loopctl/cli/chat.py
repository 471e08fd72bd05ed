"""One session, input after input (CTX-23).

From a terminal, what is typed while a run works steers it; from a pipe, each line waits for its
turn. An error ends its run, never the chat.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable
from typing import TextIO

import anyio

from loopctl._threads import Threads
from loopctl.cli.exits import Exit, Stopped, exit_for, explain
from loopctl.cli.interrupts import Interrupts
from loopctl.cli.keyboard import Keyboard
from loopctl.cli.run import STOPPING, watch
from loopctl.cli.screen import Line, one_line
from loopctl.cli.slash import SlashCommands
from loopctl.cli.terminal import Terminal
from loopctl.engine.stream import EventStream
from loopctl.errors import ContextExceeded, LoopError
from loopctl.loop import BareLoop


class PipedLines:
    """The lines of a pipe or a file, read without holding up anything else."""

    def __init__(self, stdin: TextIO | None) -> None:
        self._stdin = stdin
        self._threads = Threads()
        self._rest = b""

    async def line(self) -> str | None:
        """The next line, `None` at the end."""
        data = b"..."
        while data and b"\n" not in self._rest:
            data = await self._threads.run(self._read)
            self._rest += data
        line, newline, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace") if line or newline else None

    def _read(self) -> bytes:
        if self._stdin is None:
            return b""
        try:
            descriptor = self._stdin.fileno()
        except OSError:  # a stand-in for a stream
            return self._stdin.buffer.readline()
        # A read that is abandoned must hold no lock of the stream: the interpreter's end wants it.
        return os.read(descriptor, 65536)


class Chat:
    """A conversation with one session. `keyboard` is where a person types, if one does."""

    def __init__(
        self,
        agent: BareLoop[None],
        screen: Terminal,
        out: TextIO,
        *,
        stdin: TextIO | None,
        keyboard: Keyboard | None,
        todo: Iterable[str],
        last_words: bytes,
    ) -> None:
        self._agent, self._screen = agent, screen
        self._keyboard = keyboard
        self._piped = PipedLines(stdin)
        self._last_words = last_words
        self._slash = SlashCommands(agent, screen, out, todo)
        self._running: EventStream | None = None
        self._code = Exit.COMPLETED
        self._stop: Callable[[], object] = self._nothing_to_stop

    async def talk(self) -> Exit:
        """Answer input until it ends; from a pipe, the exit code is that of the last failure."""
        restore = None if self._keyboard is None else self._keyboard.restore
        self._interrupts = Interrupts(
            self._interrupted, last_words=self._last_words, restore=restore
        )
        with self._keyboard or contextlib.nullcontext(), self._interrupts:
            async with self._agent:
                if self._keyboard is not None:
                    self._greet()
                while not self._slash.leaving:
                    said = await self._next()
                    if said is None:
                        break
                    if self._slash.is_one(said):
                        await self._command(said)
                    elif said.strip():
                        await self._answer(said.strip())
        return self._code

    def _greet(self) -> None:
        client = self._agent.client
        who = f"{one_line(client.provider)}:{one_line(client.model)}"
        self._screen.say(Line(f"{who}; /help lists the commands, Ctrl-D leaves"))

    # -- input --------------------------------------------------------------------------------

    async def _next(self) -> str | None:
        """The next input; Ctrl-C forgets what is being typed, and leaves an empty prompt."""
        scope, keyboard = anyio.CancelScope(), self._keyboard

        def interrupted() -> None:
            self._interrupts.rearm()
            if keyboard is None or not keyboard.clear():
                scope.cancel()

        with self._stopped_by(interrupted), scope:
            return await (self._piped.line() if keyboard is None else keyboard.line(idle=True))
        if keyboard is None:
            self._code = Exit.CANCELLED
        return None

    async def _listen(self) -> None:
        """Take what is typed while a run works."""
        keyboard = self._keyboard
        while keyboard is not None and keyboard.open:
            said = await keyboard.line()
            if said is None or not said.strip():
                continue
            if not self._slash.is_one(said):
                self._agent.steer(said.strip())
                continue
            with anyio.CancelScope(shield=True):  # the end of the run does not undo half of it
                await self._slash.carry_out(said)
            if self._slash.leaving and self._running is not None:
                self._running.cancel()

    # -- what is done with it -----------------------------------------------------------------

    async def _answer(self, said: str) -> None:
        stream = self._running = self._agent.stream(said)

        def stop() -> None:
            if stream.cancel():
                self._screen.say(STOPPING)

        try:
            with self._stopped_by(stop):
                listen = None if self._keyboard is None else self._listen
                await watch(stream, self._screen, listen=listen)
        except BrokenPipeError:
            raise
        except Exception as error:
            self._failed(error)
            self._give_back(said, error)
        finally:
            self._running = None

    async def _command(self, said: str) -> None:
        scope = anyio.CancelScope()
        with self._stopped_by(scope.cancel), scope:
            await self._slash.carry_out(said)
        if scope.cancelled_caught:
            self._failed(Stopped("stopped"))

    def _failed(self, error: Exception) -> None:
        code = exit_for(error)
        if code is Exit.CANCELLED:
            self._screen.say(Line(explain(error), "yellow"))
        else:
            self._screen.say(Line(f"Error: {explain(error)}", "red"))
        if self._keyboard is None:
            self._code = code

    def _give_back(self, said: str, error: Exception) -> None:
        """Put an input that the conversation does not hold into the prompt again."""
        if self._keyboard is None or not isinstance(error, LoopError) or error.run is None:
            return
        if isinstance(error, ContextExceeded) and error.unfinished_input:
            said = "\n".join(message.text for message in error.unfinished_input)
        elif error.run.messages:
            return
        self._keyboard.put(said)

    # -- Ctrl-C -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _stopped_by(self, stop: Callable[[], object]) -> Generator[None]:
        """What the first Ctrl-C does meanwhile."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = self._nothing_to_stop
            self._interrupts.rearm()

    def _interrupted(self) -> None:
        self._stop()

    def _nothing_to_stop(self) -> None:
        self._interrupts.rearm()
