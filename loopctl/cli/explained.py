"""An explanation for people: its blocks as a table, its window as a bar (ENG-26)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopctl.cli.screen import one_line
from loopctl.cli.terminal import console_for
from loopctl.context.explanation import Block, Decision, Explanation
from loopctl.loop import BareLoop

PIPE_COLUMNS = 80
_NARROW = 72

_MAX_BAR = 76
_ROWS_OF_ITS_OWN = 3
"""So many messages of the conversation have a row each; more share one."""

_STYLES = {
    "conversation": "cyan",
    "input": "cyan",
    "contributor": "green",
    "memory": "green",
    "attachment": "magenta",
}

_WORDS: dict[Decision, str] = {
    "call": "the model is called",
    "threshold": "a pass compacts the conversation first: it is over the threshold",
    "emergency": "a pass compacts the conversation first: it is at the emergency line",
    "deferral": "the turn waits for a pass first: with its transients it is over the line",
    "context_exceeded": "the run ends: what cannot be compacted does not fit the window",
    "max_turns": "the run ends: it has no turn left",
}


def decision(explanation: Explanation) -> str:
    """What would be done with the request, in words."""
    words = _WORDS[explanation.decision]
    over = explanation.tokens - explanation.threshold
    if explanation.decision == "call" and explanation.window and over > 0:
        return f"{words}, {over:,} tokens over the threshold: no pass would help"
    return words


def show_explanation(agent: BareLoop[Any], explanation: Explanation, out: TextIO) -> None:
    """Print an explanation of a session's next request; in a pipe it has 80 columns."""
    console = console_for(out, width=None if out.isatty() else PIPE_COLUMNS)
    assumed = agent.config.context_window is None and agent.client.context_window is None
    console.print(explained(explanation, console, assumed=assumed))


def explained(explanation: Explanation, console: Console, *, assumed: bool) -> RenderableType:
    """What `console` shows of an explanation; `assumed` says that the window is a guess."""
    narrow = console.width < _NARROW
    parts: list[RenderableType] = [_table(explanation.blocks, narrow), Text()]
    parts += _window(explanation, console, assumed)
    said = explanation.decision != "call" or explanation.tokens > explanation.threshold
    parts.append(Text(f"next: {decision(explanation)}", "yellow" if said else "bold"))
    if explanation.quiet:
        parts += [Text(), Text("quiet, they gave nothing for this turn:")]
        parts += [_aside(_full_name(block), block.milliseconds) for block in explanation.quiet]
    problems = [
        _aside(f"{_named(each.contributor, each.distribution)}: {one_line(each.reason)}")
        for each in explanation.failures
    ]
    problems += [_aside(one_line(warning)) for warning in explanation.warnings]
    if problems:
        parts += [Text(), Text("failed, their messages are missing:", "yellow"), *problems]
    return Group(*parts)


# -- the blocks ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    origin: str
    name: str
    source: str
    tokens: int
    milliseconds: float | None


def _table(blocks: Iterable[Block], narrow: bool) -> Table:
    rows = list(_rows(blocks))
    sources = any(row.source for row in rows) and not narrow
    times = any(row.milliseconds is not None for row in rows)
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    if not narrow:  # the order of the rows tells it too
        table.add_column("place", no_wrap=True)
    table.add_column("origin", no_wrap=True)
    table.add_column("name", overflow="fold")
    if sources:
        table.add_column("source", overflow="fold")
    table.add_column("tokens", justify="right", no_wrap=True)
    if times:
        table.add_column("ms", justify="right", no_wrap=True)
    for row in rows:
        cells = [row.place] * (not narrow) + [row.origin, row.name]
        cells += [row.source] * sources + [f"{row.tokens:,}"]
        cells += [_milliseconds(row.milliseconds)] * times
        table.add_row(*map(Text, cells), style=_STYLES.get(row.origin, ""))
    return table


def _rows(blocks: Iterable[Block]) -> Iterator[_Row]:
    for origin, found in itertools.groupby(blocks, key=lambda block: block.origin):
        group = list(found)
        if origin in ("conversation", "input") and len(group) > _ROWS_OF_ITS_OWN:
            tokens = sum(block.tokens for block in group)
            counts = Counter(block.name for block in group)
            kinds = ", ".join(f"{count} {name}" for name, count in counts.items())
            yield _Row(group[0].place, origin, kinds, "", tokens, None)
            continue
        for block in group:
            name, source = one_line(block.name), one_line(block.source or "")
            yield _Row(block.place, origin, name, source, block.tokens, block.milliseconds)


# -- the window ---------------------------------------------------------------------------------


def _window(explanation: Explanation, console: Console, assumed: bool) -> Iterator[RenderableType]:
    utf8 = console.encoding.lower().startswith("utf")
    shares = (
        ("fixed", explanation.fixed, "█" if utf8 else "#", ""),
        ("conversation", explanation.conversation, "▓" if utf8 else "=", "cyan"),
        ("transients", explanation.transients, "▒" if utf8 else "+", "green"),
    )
    total, window = explanation.tokens, explanation.window
    if window:
        bar = _Bar(min(console.width, _MAX_BAR) - 2, max(window, total), "·" if utf8 else ".")
        for _, tokens, mark, style in shares:
            bar.fill(tokens, mark, style)
        bar.mark(explanation.threshold, "T")
        bar.mark(explanation.emergency, "E")
        if total > window:
            bar.mark(window, "W")
        yield bar.text()
    legend = Text()
    for name, tokens, mark, style in shares:
        legend.append(f"{mark} ", style).append(f"{name} {tokens:,}  ")
    legend.rstrip()
    yield legend
    share = f", {total / window:.0%} of the window" if window else ""
    yield Text(f"{total:,} tokens{share}")
    if not window:
        yield Text("the window is off: nothing is compacted before the model refuses")
        return
    lines = f"T threshold {explanation.threshold:,} ({explanation.threshold / window:.0%})"
    lines += f"  E emergency line {explanation.emergency:,}"
    lines += f"  W window {window:,}" if total > window else f"  window {window:,}"
    yield Text(lines)
    if assumed:
        yield Text("the window is not known but assumed; --window N sets it", "yellow")


class _Bar:
    """A row of characters that stands for `full` tokens."""

    def __init__(self, width: int, full: int, empty: str) -> None:
        self._full, self._width = full, width
        self._cells = [(empty, "dim")] * width
        self._tokens = self._filled = 0

    def fill(self, tokens: int, mark: str, style: str) -> None:
        """Fill on from where it is filled; the smallest share still shows."""
        begin, self._tokens = self._filled, self._tokens + tokens
        self._filled = max(self._at(self._tokens), begin + (tokens > 0))
        for index in range(begin, min(self._filled, self._width)):
            self._cells[index] = (mark, style)

    def mark(self, tokens: int, letter: str) -> None:
        """Put a letter where so many tokens end."""
        self._cells[min(self._at(tokens), self._width - 1)] = (letter, "bold yellow")

    def text(self) -> Text:
        """The bar in its brackets."""
        return Text.assemble("[", *self._cells, "]", no_wrap=True)

    def _at(self, tokens: int) -> int:
        return round(tokens / self._full * self._width)


# -- what is beside -----------------------------------------------------------------------------


def _aside(text: str, milliseconds: float | None = None) -> Text:
    took = "" if milliseconds is None else f" ({_milliseconds(milliseconds)} ms)"
    return Text(f"  {text}{took}")


def _full_name(block: Block) -> str:
    return _named(block.name, block.source)


def _named(name: str, source: str | None) -> str:
    return f"{one_line(name)} of {one_line(source)}" if source else one_line(name)


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
