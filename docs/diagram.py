"""Draw the machine's transitions into docs/machine.md, from the table that it obeys (ENG-2).

`python docs/diagram.py` writes the diagram between its markers; with `--check` it writes nothing
and exits 1 when the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from loopctl.machine import TRANSITIONS, State

PAGE = Path(__file__).parent / "machine.md"
START = "<!-- diagram: written by docs/diagram.py -->"
END = "<!-- /diagram -->"


def name(state: State) -> str:
    """A state as the page writes it: `AWAITING_MODEL` is AwaitingModel."""
    return "".join(word.capitalize() for word in state.value.split("_"))


def diagram() -> str:
    """The transitions as Mermaid text, one arrow for each pair of states."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {name(State.START)}"]
    for state, row in TRANSITIONS.items():
        arrows: dict[State, list[str]] = {}
        for feed, targets in row.items():
            for target in targets:
                arrows.setdefault(target, []).append(feed)
        lines += [
            f"    {name(state)} --> {name(target)}: {', '.join(feeds)}"
            for target, feeds in arrows.items()
        ]
    return "\n".join([*lines, "```"])


def drawn(page: str) -> str:
    """The page with the diagram of today between its markers."""
    before, found, rest = page.partition(START)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{PAGE.name}: the markers {START} and {END} are missing")
    return f"{before}{START}\n{diagram()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Refresh the page, or only check it."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = drawn(page)
    if arguments == ["--check"]:
        if page != fresh:
            print("docs/machine.md is out of date: run `python docs/diagram.py`", file=sys.stderr)
        return int(page != fresh)
    if arguments:
        print("usage: python docs/diagram.py [--check]", file=sys.stderr)
        return 2
    PAGE.write_text(fresh, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
