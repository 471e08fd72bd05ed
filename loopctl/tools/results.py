"""What any value becomes on its way to the model, and the one place that caps it (TOL-5, TOL-11).

Every result passes through here: tools' values, errors, denials, what layers and servers answer.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TypeAlias, cast

from loopctl import _json
from loopctl.messages import ImagePart, TextPart
from loopctl.tools.types import ToolOutput

Content: TypeAlias = str | tuple[TextPart | ImagePart, ...]
"""What a tool result holds: text, or text and image parts."""

DONE = "Done. The tool returned nothing."
"""What a tool that returns `None` says."""

EMPTY = "(The tool returned an empty result.)"
"""What stands for a result without any visible text or image."""

MAX_IMAGES = 20
"""How many images one result may hold; they do not count as characters."""


def to_output(value: object) -> ToolOutput:
    """Turn whatever a tool returned into its output; never raises and is never empty."""
    if isinstance(value, ToolOutput):
        content = _visible(value.content)
        if content is value.content:
            return value
        return ToolOutput(content, value.is_error, value.display_hint, value.retention)
    if value is None:
        return ToolOutput(DONE)
    if isinstance(value, str):
        return ToolOutput(_visible(str(value)))
    if isinstance(value, (TextPart, ImagePart)):
        return ToolOutput(_visible((value,)))
    if isinstance(value, (list, tuple)) and _holds_parts(cast("Iterable[object]", value)):
        return to_output(ToolOutput(cast("Iterable[TextPart | ImagePart]", value)))
    plain = _json.to_plain(value)
    return ToolOutput(_visible(plain if isinstance(plain, str) else _json.dumps(plain)))


def capped(content: Content, limit: int) -> Content:
    """Cut content to `limit` characters as `cut` does; only the first `MAX_IMAGES` images stay."""
    return cut(content if isinstance(content, str) else _few_images(content), limit)


def cut(content: Content, limit: int) -> Content:
    """Cut content to `limit` characters: its head, a marker with counts, its tail.

    The marker counts too. Two thirds of the room go to the head. Cuts never fall inside what a
    reader sees as one character. Images do not count and stay.
    """
    if isinstance(content, str):
        return content if len(content) <= limit else _cut_text(content, limit)
    texts = [part.text for part in content if isinstance(part, TextPart)]
    if sum(map(len, texts)) <= limit:
        return content
    joined = "".join(texts)
    head, marker, tail = _cuts(joined, limit)
    made: list[TextPart | ImagePart] = []
    start = 0
    for part in content:
        if isinstance(part, ImagePart):
            made.append(part)
            continue
        end = start + len(part.text)
        text = joined[start : min(end, head)]
        if start <= head < end:
            text += marker
        text += joined[max(start, tail) : end]
        if text.strip():
            made.append(TextPart(text))
        start = end
    return tuple(made)


def _cut_text(text: str, limit: int) -> str:
    head, marker, tail = _cuts(text, limit)
    return text[:head] + marker + text[tail:]


def _cuts(text: str, limit: int) -> tuple[int, str, int]:
    """Where the head ends, the marker, and where the tail starts."""
    total = len(text)
    room = limit - len(_marker(total, total))
    head = _back(text, room * 2 // 3)
    tail = _forth(text, total - (room - room * 2 // 3))
    return head, _marker(tail - head, total), tail


def _marker(left_out: int, total: int) -> str:
    return f"\n[… {left_out:,} of {total:,} characters left out …]\n"


_LONGEST_CLUSTER = 32


def _back(text: str, index: int) -> int:
    for at in range(index, max(index - _LONGEST_CLUSTER, 0), -1):
        if not _inside(text, at):
            return at
    return index


def _forth(text: str, index: int) -> int:
    for at in range(index, min(index + _LONGEST_CLUSTER, len(text))):
        if not _inside(text, at):
            return at
    return index


def _inside(text: str, index: int) -> bool:
    """Whether a cut before `index` would part what is read as one character."""
    if not 0 < index < len(text):
        return False
    before, after = text[index - 1], text[index]
    if after.isascii():
        return before == "\r" and after == "\n"
    return (
        unicodedata.category(after) in ("Mn", "Mc", "Me")
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or "\u200d" in (before, after)  # joined emoji
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or (_is_regional(before) and _is_regional(after))  # flags
    )


def _is_regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _visible(content: Content) -> Content:
    if isinstance(content, str):
        return content if content.strip() else EMPTY
    if all(isinstance(part, ImagePart) or part.text.strip() for part in content) and content:
        return content
    kept = tuple(part for part in content if isinstance(part, ImagePart) or part.text.strip())
    return kept or EMPTY


def _holds_parts(items: Iterable[object]) -> bool:
    found = False
    for item in items:
        if isinstance(item, (TextPart, ImagePart)):
            found = True
        elif not isinstance(item, str):
            return False
    return found


def _few_images(parts: tuple[TextPart | ImagePart, ...]) -> tuple[TextPart | ImagePart, ...]:
    images = sum(isinstance(part, ImagePart) for part in parts)
    if images <= MAX_IMAGES:
        return parts
    kept: list[TextPart | ImagePart] = []
    seen = 0
    for part in parts:
        seen += isinstance(part, ImagePart)
        if isinstance(part, TextPart) or seen <= MAX_IMAGES:
            kept.append(part)
    return (*kept, TextPart(f"[{images - MAX_IMAGES} of {images} images left out]"))
