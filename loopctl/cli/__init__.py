"""The `loopctl` command. It needs the extra `cli`; importing this package does not."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from loopctl.errors import MissingExtra


def main() -> int:
    """Run the command and give its exit code; `loopctl run --help` and docs/cli.md list them."""
    if not all(find_spec(name) for name in ("click", "rich")):
        print(MissingExtra("the loopctl command", "cli"), file=sys.stderr)
        return 2

    try:
        from loopctl.cli.app import start

        return start()
    except KeyboardInterrupt:  # before there was a run that could be stopped in an orderly way
        print("stopped before the run began", file=sys.stderr)
        return 130
