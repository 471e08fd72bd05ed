"""What the model says to the user, taken out of the function that it says it with.

The native way lets the model choose one function for each reply, and `reply(text)` is the one
for plain text: so the server holds every reply, calls and text alike, to its grammar, and a tiny
model cannot leave the format. This module turns such a call back into streamed text.
"""

from __future__ import annotations

import json
import re

from loopctl.models.client import ToolSchema

REPLY = "reply"
"""The function's name; no tool may have it."""

REPLY_TOOL = ToolSchema(
    name=REPLY,
    description="Say something to the user.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)

_OPENING = re.compile(r'\s*\{\s*"text"\s*:\s*"')
_HEX2, _HIGH, _LOW = "[0-9a-fA-F]{2}", "[dD][89abAB]", "[dD][c-fC-F]"
# A first half of a surrogate pair is complete when what follows shows whether its other half came.
_WHOLE = re.compile(
    rf'(?:[^"\\]|\\["\\/bfnrt]|\\u(?!{_HIGH}){_HEX2}{_HEX2}|\\u{_HIGH}{_HEX2}\\u{_LOW}{_HEX2}'
    rf"|\\u{_HIGH}{_HEX2}(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F]))*"
)


class ReplyText:
    """Decodes `{"text": "…"}` while it comes in pieces; the result does not depend on the cuts."""

    def __init__(self) -> None:
        self._rest = ""
        self._open = False

    def feed(self, fragment: str) -> str:
        """The text that is complete with this fragment."""
        self._rest += fragment
        if not self._open:
            opening = _OPENING.match(self._rest)
            if opening is None:
                return ""
            self._open = True
            self._rest = self._rest[opening.end() :]
        whole = _WHOLE.match(self._rest)
        text = whole[0] if whole is not None else ""
        self._rest = self._rest[len(text) :]
        return str(json.loads(f'"{text}"', strict=False))
