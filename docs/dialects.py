"""Write the tables of docs/models.md: where each prefix of `connect` is, and what it can do.

What it can do is asked of its client: an option is taken if `encode` takes it, reasoning goes back
if the body holds it, tokens are counted if there is a method that does. Nothing is sent.

`python docs/dialects.py` writes the tables between their markers; with `--check` it writes nothing
and exits 1 when the page is out of date.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from unittest import mock

from loopctl import ImagePart, Message, ModelRequest, RequestOptions, ThinkingPart, connect
from loopctl.config import ThinkingEffort
from loopctl.errors import ConfigError
from loopctl.messages import ToolCallPart, ToolResultPart
from loopctl.models.client import ToolSchema
from loopctl.models.providers import PROVIDERS, Provider

PAGE = Path(__file__).parent / "models.md"
START = "<!-- {}: written by docs/dialects.py -->"
END = "<!-- /{} -->"

APIS = {
    "openai_responses": "Responses",
    "openai_chat": "Chat Completions",
    "anthropic": "Messages",
    "gemini": "Gemini",
    "bedrock": "Converse",
    "ollama": "Ollama",
}
"""What its vendor calls the API that a dialect speaks."""

MODELS = {
    "azure": ("deployment",),
    "bedrock": ("us.anthropic.claude-sonnet-5-5", "us.amazon.nova-2-lite-v1:0"),
    "ollama": ("qwen3",),
    "openrouter": ("z-ai/glm-5.3",),
}
"""Which models are asked where a prefix has no first choice of its own."""

ANY_SERVER = "https://models.example/v1"

IMAGE = ImagePart("image/png", b"\x89PNG\r\n\x1a\nan image")
SEALED = "c2VhbGVk"
KINDS = (None, "thinking", "reasoning", "reasoning_content", "reasoning_details", "call", "text")
"""The names under which one or another dialect keeps reasoning."""

ADD = ToolSchema(
    name="add",
    description="Add.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
ASKED = Message.user("How much is 1 + 1?")
CALLED = ToolCallPart("call00001", "add", {"a": 1})


@dataclass(frozen=True)
class Row:
    """One client, and what the first column calls it."""

    name: str
    client: Any

    def body(self, *messages: Message, tools: bool = True, **options: Any) -> Any:
        """The body of a request, decoded; `None` if the client refuses an option."""
        request = ModelRequest(
            messages=messages or (ASKED,),
            tools=(ADD,) if tools else (),
            options=RequestOptions(**options),
        )
        try:
            return json.loads(self.client.encode(request).body)
        except ConfigError:
            return None

    def takes(self, *, tools: bool = True, **options: Any) -> bool:
        """Whether the client honours options."""
        return self.body(tools=tools, **options) is not None

    # -- the columns --------------------------------------------------------------------------

    def images(self) -> str:
        """Whether a user's message may hold images."""
        return _yes(_image_in(self.body(Message.user("Look.", IMAGE))))

    def result_images(self) -> str:
        """How the images of a tool result reach the model."""
        result = Message.user(ToolResultPart(CALLED.id, "add", (IMAGE,)))
        body = self.body(ASKED, Message.assistant(CALLED), result)
        path = next((path for path, text in _texts(body) if _is_image(text)), ())
        if not path:
            return "no"
        return "yes" if _in_result(body, path) else "beside it"

    def typed(self) -> str:
        """How a typed answer is asked for while tools are offered."""
        body = self.body(response_schema=SCHEMA)
        if body is None:
            return "in words"
        return "forced tool" if "structured_reply" in json.dumps(body) else "schema"

    def strict(self) -> str:
        """Whether arguments can be held to their schema."""
        return _yes(self.takes(strict_tools=True))

    def forced(self) -> str:
        """Whether the model can be made to call a tool, any or a certain one."""
        some = [self.takes(tool_choice=choice) for choice in ("required", "add")]
        return _yes(all(some)) if all(some) == any(some) else "any"

    def temperature(self) -> str:
        """Whether there is a temperature other than 1."""
        return _yes(self.takes(temperature=0.5))

    def stop(self) -> str:
        """Whether there are stop sequences."""
        return _yes(self.takes(stop=("END",)))

    def efforts(self) -> str:
        """Which thinking efforts there are."""
        known = [each for each in get_args(ThinkingEffort) if self._has(each)]
        return ", ".join(known) or "none to choose"

    def _has(self, effort: str) -> bool:
        return self.takes(tools=False, thinking_effort=effort)

    def reasoning(self) -> str:
        """Whether reasoning goes back to the model, and whether it is bound to its prefix."""
        goes = any(SEALED in json.dumps(self.body(*said)) for said in self._reasoned())
        if not goes:
            return "no"
        plain = self.client.encode(ModelRequest(messages=(ASKED,)))
        return "bound" if plain.prefix is not None else "yes"

    def _reasoned(self) -> Iterator[tuple[Message, ...]]:
        request = ModelRequest(messages=(ASKED,), tools=(ADD,))
        prefix = self.client.encode(request).prefix
        sealed = json.dumps({"type": "reasoning", "id": "rs_1", "encrypted_content": SEALED})
        for kind in KINDS:
            for signature in (SEALED, sealed, json.dumps([{"text": SEALED}]), None):
                thought = ThinkingPart(
                    SEALED if signature is None else "",
                    signature=signature,
                    provider=self.client.provider,
                    model=self.client.model,
                    prefix=prefix,
                    kind=kind,
                )
                result = Message.user(ToolResultPart(CALLED.id, "add", "2"))
                yield ASKED, Message.assistant(thought, CALLED), result

    def cache(self) -> str:
        """What loopctl tells the server's prompt cache."""
        request = ModelRequest(messages=(ASKED,), tools=(ADD,), system="Be brief.")
        body = self.client.encode(request).body
        if b'"cache_control"' in body or b'"cachePoint"' in body:
            return "marks"
        return "key" if b'"prompt_cache_key"' in body else "nothing"

    def counts(self) -> str:
        """Whether the server counts the tokens of a request."""
        return _yes(hasattr(self.client, "count_tokens"))

    def lists(self) -> str:
        """Whether the server lists its models."""
        return _yes(hasattr(self.client, "list_models"))

    def window(self) -> str:
        """The window that is known before anything is sent."""
        window = self.client.context_window
        return "—" if window is None else f"{window:,}"


def rows() -> list[Row]:
    """The clients that are asked, each for the model of its prefix."""
    made = [
        Row(f"`{prefix}:{model}`", connect(f"{prefix}:{model}", **_given(provider)))
        for prefix, provider in PROVIDERS.items()
        for model in MODELS.get(prefix, (provider.default_model or "model",))
    ]
    other = connect("openai-chat:model", base_url=ANY_SERVER)
    return [*made, Row("`openai-chat:…` anywhere else", other)]


def _given(provider: Provider) -> dict[str, Any]:
    given: dict[str, Any] = {"api_key": "k"}
    if provider.dialect == "bedrock":
        given["region"] = "us-east-1"
    elif not provider.base_url:
        given["base_url"] = ANY_SERVER
    return given


def _yes(found: bool) -> str:
    return "yes" if found else "no"


def _texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every text of a JSON value, and where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, (*path, key))


def _is_image(text: str) -> bool:
    return base64.b64encode(IMAGE.data).decode() in text


def _image_in(body: Any) -> bool:
    return any(_is_image(text) for _, text in _texts(body))


def _in_result(body: Any, path: tuple[Any, ...]) -> bool:
    """Whether what stands there is a part of a tool result, however the API calls it."""
    for key in path:
        body = body[key]
        if key in ("toolResult", "functionResponse"):
            return True
        if isinstance(body, dict) and (
            body.get("type") in ("tool_result", "function_call_output")
            or body.get("role") == "tool"
        ):
            return True
    return False


# -- the page ---------------------------------------------------------------------------------


def where() -> str:
    """Each prefix, its API, and where its key and its address come from."""
    lines = ["| prefix | API | key | address |", "|---|---|---|---|"]
    for prefix, provider in PROVIDERS.items():
        keys = " or ".join(f"`{name}`" for name in provider.keys) or "AWS's own chain"
        if provider.keyless and provider.keys:
            keys += ", if it needs one"
        address = f"<{provider.base_url}>" if provider.base_url else "from what you set"
        if provider.dialect == "bedrock":
            address = "the region's"
        if provider.urls:
            address += ", " + " or ".join(f"`{name}`" for name in provider.urls)
        lines.append(f"| `{prefix}:` | {APIS[provider.dialect]} | {keys} | {address} |")
    return "\n".join(lines)


def _table(asked: list[Row], columns: dict[str, str]) -> str:
    """One line for each client, one column for each question, by the name of its method."""
    lines = [f"| | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    for row in asked:
        cells = [str(getattr(row, method)()) for method in columns.values()]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


TAKES = {
    "images": "images",
    "images in results": "result_images",
    "typed answers": "typed",
    "strict tools": "strict",
    "forced calls": "forced",
    "temperature": "temperature",
    "stop": "stop",
    "thinking efforts": "efforts",
}
KEEPS = {
    "reasoning goes back": "reasoning",
    "prompt cache is told": "cache",
    "counts tokens": "counts",
    "lists models": "lists",
    "window": "window",
}


def tables() -> dict[str, str]:
    """The tables by the name of their place; the environment changes nothing in them."""
    with mock.patch.dict(os.environ, clear=True):
        asked = rows()
        return {"prefixes": where(), "takes": _table(asked, TAKES), "keeps": _table(asked, KEEPS)}


def written(page: str) -> str:
    """The page with the tables of today between their markers."""
    for name, table in tables().items():
        start, end = START.format(name), END.format(name)
        before, found, rest = page.partition(start)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{PAGE.name}: the markers {start} and {end} are missing")
        page = f"{before}{start}\n{table}\n{end}{after}"
    return page


def main(arguments: list[str]) -> int:
    """Refresh the page, or only check it."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = written(page)
    if arguments == ["--check"]:
        if page != fresh:
            print("docs/models.md is out of date: run `python docs/dialects.py`", file=sys.stderr)
        return int(page != fresh)
    if arguments:
        print("usage: python docs/dialects.py [--check]", file=sys.stderr)
        return 2
    PAGE.write_text(fresh, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
