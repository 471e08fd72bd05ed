"""What a docstring says of a function and of its parameters: Google, NumPy and Sphinx (TOL-1)."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_GOOGLE_SECTIONS = (
    "args|arguments|parameters|params|keyword args|keyword arguments|other parameters|returns?"
    "|yields?|raises|examples?|notes?|warnings?|warns|see also|references|attributes|todo"
)
_GOOGLE = re.compile(rf"(?i)^({_GOOGLE_SECTIONS})\s*:\s*$")
_PARAMETERS = re.compile(r"(?i)^(keyword |other )?(args|arguments|parameters|params)$")
_NUMPY = re.compile(r"^-{3,}\s*$")
_SPHINX = re.compile(r"^:(\w+)(?:\s+([^:]*?))?\s*:(?:\s+(.*))?$")
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_SPHINX_FIELDS = _SPHINX_PARAMETERS | frozenset(
    {"type", "returns", "return", "rtype", "raises", "raise", "except", "exception", "yields"}
)
_ENTRY = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*(?:\([^)]*\)[^)]*)*\))?\s*:\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Docstring:
    """The prose before the first section, and the description of each parameter by its name."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse(text: str | None) -> Docstring:
    """Read a docstring; what is in none of the three styles is all description."""
    lines = inspect.cleandoc(text or "").splitlines()
    description: list[str] = []
    found: dict[str, str] = {}
    index = 0
    in_prose = True
    while index < len(lines):
        line = lines[index]
        below = lines[index + 1] if index + 1 < len(lines) else ""
        if line.strip() and _NUMPY.match(below) and not line[0].isspace():
            block, index = _numpy_block(lines, index + 2)
            if _PARAMETERS.match(line.strip()):
                found |= _numpy_entries(block)
            in_prose = False
        elif google := _GOOGLE.match(line):
            block, index = _indented(lines, index + 1)
            if _PARAMETERS.match(google.group(1)):
                found |= _google_entries(block)
            in_prose = False
        elif (sphinx := _SPHINX.match(line)) and sphinx.group(1) in _SPHINX_FIELDS:
            block, index = _indented(lines, index + 1)
            if sphinx.group(1) in _SPHINX_PARAMETERS and sphinx.group(2):
                name = sphinx.group(2).split()[-1].lstrip("*")
                found[name] = _joined([sphinx.group(3) or "", *block])
            in_prose = False
        else:
            if in_prose:
                description.append(line)
            index += 1
    return Docstring("\n".join(description).strip(), {n: t for n, t in found.items() if t})


def _starts_numpy(lines: list[str], index: int) -> bool:
    return (
        index + 1 < len(lines)
        and bool(lines[index].strip())
        and bool(_NUMPY.match(lines[index + 1]))
    )


def _numpy_block(lines: list[str], start: int) -> tuple[list[str], int]:
    """The lines from `start` up to the next underlined title."""
    index = start
    while index < len(lines) and not _starts_numpy(lines, index):
        index += 1
    return lines[start:index], index


def _indented(lines: list[str], start: int) -> tuple[list[str], int]:
    """The lines from `start` that are blank or indented."""
    index = start
    while index < len(lines) and (not lines[index].strip() or lines[index][0].isspace()):
        index += 1
    return lines[start:index], index


def _google_entries(block: list[str]) -> dict[str, str]:
    """`name (type): text`, each continued by lines that are indented deeper."""
    lines = inspect.cleandoc("\n" + "\n".join(block)).splitlines()
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        entry = _ENTRY.match(line)
        if entry:
            current = entries[entry.group(1).lstrip("*")] = [entry.group(2)]
        else:
            current.append(line)
    return {name: _joined(text) for name, text in entries.items()}


def _numpy_entries(block: list[str]) -> dict[str, str]:
    """`name : type` or `a, b : type`, each explained by the indented lines below it."""
    entries: dict[str, str] = {}
    index = 0
    while index < len(block):
        head = block[index]
        text, index = _indented(block, index + 1)
        if not head.strip():
            continue
        for name in head.partition(":")[0].split(","):
            entries[name.strip().lstrip("*")] = _joined(text)
    return entries


def _joined(lines: list[str]) -> str:
    """One paragraph of the lines; blank lines stay as paragraph breaks."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(line.strip() for line in lines).strip())
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)
