"""`from loopctl import BareLoop` next to importing what it stands on, in processes of their own.

    uv run python benchmarks/imports.py [--runs 15]

The base imports anyio, pluggy and pydantic and defines one model. Each import runs in a fresh
interpreter, the two take turns, and medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

SETUP = "import time; began = time.perf_counter(); "
END = "; print(time.perf_counter() - began)"
BASE = SETUP + "import anyio, pluggy, pydantic; pydantic.create_model('M', x=(int, 0))" + END
OURS = SETUP + "from loopctl import BareLoop" + END


def seconds(program: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    _ = seconds(BASE), seconds(OURS)
    pairs = [(seconds(OURS), seconds(BASE)) for _ in range(runs)]
    ours, base = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"loopctl {ours * 1e3:.0f} ms, base {base * 1e3:.0f} ms, ratio {ours / base:.2f}")


if __name__ == "__main__":
    main()
