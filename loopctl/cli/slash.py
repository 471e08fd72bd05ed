"""The commands of a chat: lines that begin with a slash."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TextIO

from loopctl._threads import Threads
from loopctl.cli import inputs
from loopctl.cli.exits import explain
from loopctl.cli.explained import show_explanation
from loopctl.cli.screen import Line, Style, one_line
from loopctl.cli.terminal import Terminal
from loopctl.context.pins import TodoAttachment, TodoItem
from loopctl.errors import ConfigError, LoopBusyError
from loopctl.loop import BareLoop

NEXT = "(what you say next)"
"""The input that `/explain` without a text is about."""


@dataclass(frozen=True, slots=True)
class _Command:
    usage: str
    help: str
    carry_out: Callable[[str], Awaitable[None]]


class SlashCommands:
    """What a person does to the session beside talking to it. `leaving` after `/quit`."""

    def __init__(
        self, agent: BareLoop[None], screen: Terminal, out: TextIO, todo: Iterable[str]
    ) -> None:
        self.leaving = False
        self._agent, self._screen, self._out = agent, screen, out
        self._threads = Threads()
        self._todo = [TodoItem(text) for text in todo]
        self._pinned_todo = TodoAttachment(self._todo).id
        self._commands = {
            "explain": _Command("[TEXT]", "what the next request would hold", self._explain),
            "compact": _Command("[INSTRUCTIONS]", "shrink the conversation now", self._compact),
            "attach": _Command("FILE", "pin a text file", self._attach),
            "todo": _Command(
                "[TEXT | done N]", "list what there is to do, add to it, check it off", self._do
            ),
            "detach": _Command("[ID]", "list what is pinned, or take it away", self._detach),
            "clear": _Command("", "forget the conversation; what is pinned stays", self._clear),
            "help": _Command("", "this list", self._help),
            "quit": _Command("", "leave; so does Ctrl-D", self._quit),
        }

    def is_one(self, said: str) -> bool:
        """Whether a line is a command; one that begins with a blank is not."""
        return said.startswith("/")

    async def carry_out(self, said: str) -> None:
        """Do what a line says; what goes wrong is one line."""
        name, _, rest = said.strip()[1:].partition(" ")
        command = self._commands.get(name)
        try:
            if command is None:
                raise ConfigError(self._unknown(name))
            await command.carry_out(rest.strip())
        except LoopBusyError:
            self._say(f"/{name}: not while a run works; Ctrl-C stops it", "yellow")
        except BrokenPipeError:
            raise
        except Exception as error:
            self._say(explain(error), "yellow")

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._commands, n=1, cutoff=0.5)
        hint = f"did you mean /{near[0]}?" if near else "/help lists the commands"
        return f"there is no /{name}; {hint}"

    def _say(self, text: str, style: Style = "dim") -> None:
        self._screen.say(Line(text, style))

    # -- the commands -------------------------------------------------------------------------

    async def _explain(self, text: str) -> None:
        explanation = await self._agent.explain(text or NEXT)
        show_explanation(self._agent, explanation, self._out)

    async def _compact(self, instructions: str) -> None:
        report = await self._agent.compact(instructions or None)
        if report.changed:
            self._say(f"compacted the conversation: {report.before:,} -> {report.after:,} tokens")
        elif report.error is None:
            self._say(f"compaction changed nothing: {one_line(report.why)}")
        else:
            self._say(f"compaction failed: {one_line(report.why)}", "yellow")

    async def _attach(self, path: str) -> None:
        if not path:
            raise ConfigError("/attach: name a file")
        attachment = await self._threads.run(partial(inputs.attachment, path, "/attach"))
        await self._agent.set_attachment(attachment)
        self._say(f"pinned {one_line(attachment.id)}")

    async def _do(self, text: str) -> None:
        done = re.fullmatch(r"done\s+(\d+)", text)
        if done is not None:
            number = int(done[1])
            if not 0 < number <= len(self._todo):
                raise ConfigError(f"/todo done {number}: there are {len(self._todo)} things to do")
            self._todo[number - 1] = TodoItem(self._todo[number - 1].text, completed=True)
        elif text:
            self._todo.append(TodoItem(text))
        if text:
            await self._agent.set_attachment(TodoAttachment(self._todo))
        for number, item in enumerate(self._todo, 1):
            self._say(f"{number:>3} [{'x' if item.completed else ' '}] {one_line(item.text)}")
        if not self._todo:
            self._say("there is nothing to do; /todo TEXT adds something")

    async def _detach(self, name: str) -> None:
        pinned = self._agent.attachment_ids()
        if not name:
            for each in pinned:
                self._say(f"    {one_line(each)}")
            if not pinned:
                self._say("nothing is pinned")
            return
        found = next((each for each in (name, f"file:{name}") if each in pinned), None)
        if found is None:
            near = difflib.get_close_matches(name, pinned, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else "/detach lists what is pinned"
            raise ConfigError(f"/detach: {name} is not pinned; {hint}")
        await self._agent.detach_attachment(found)
        if found == self._pinned_todo:
            self._todo.clear()
        self._say(f"took {one_line(found)} away")

    async def _clear(self, _: str) -> None:
        self._agent.clear()
        self._say("the conversation is forgotten")

    async def _help(self, _: str) -> None:
        for name, command in self._commands.items():
            self._say(f"  {f'/{name} {command.usage}':<24} {command.help}")
        self._say("  what begins with a blank is said to the model, a slash too")

    async def _quit(self, _: str) -> None:
        self.leaving = True
