"""The client of the local model (MOD-25): Chat Completions to a server that starts when needed.

Natively, each reply is one function call under the server's grammar: a call of a tool, or of
`reply`, which is turned into text here. The history that is sent is the true conversation; the
chat template writes it in the form that the model is shown.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from loopctl._threads import Threads
from loopctl.errors import ConfigError
from loopctl.messages import Role
from loopctl.models.client import HttpRequest, ModelRequest, ToolSchema
from loopctl.models.local.reply_text import REPLY, REPLY_TOOL, ReplyText
from loopctl.models.local.server import SHARED, LocalServer, Running, ServerOptions
from loopctl.models.openai_chat.client import OpenAIChatClient
from loopctl.models.openai_chat.facts import LLAMA_CPP
from loopctl.replies import ModelResponse, StopReason
from loopctl.wire.accumulator import Accumulator
from loopctl.wire.stream_events import PartDelta, PartStart, PartStop, Stop, StreamEvent

if TYPE_CHECKING:
    from loopctl._http import HttpClient

MODEL = "smollm2-135m-instruct"
PROVIDER = "local"


_ASKED = {"logit_bias": [[REPLY, -1.5]]}
_ANSWERED = {"logit_bias": [[REPLY, 1.5], ['"}', 1.5]]}
"""What is added to the log-odds of tokens, before and after results. As measured: asked something
new, the model likes to talk too much; with a result in hand it likes to call again, and once it
talks it does not find the end."""


class LocalClient:
    """A `ModelClient` of the local model.

    Making one opens nothing: the server starts with the first request, in a process of its own,
    and is shared by all clients with equal options. `aclose()` of the last one stops it.
    Requests without `temperature` are sent with 0, without `max_output_tokens` with
    `max_output_tokens`: left alone, so small a model may never end.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        max_output_tokens: int,
        http_client: HttpClient | None = None,
    ) -> None:
        self._options = options
        self._max_output_tokens = max_output_tokens
        self._http_client = http_client
        self._threads = Threads()
        self._server: LocalServer | None = None
        self._running: Running | None = None
        self._chat = self._connect("http://127.0.0.1:0", "")
        self._offered: tuple[tuple[ToolSchema, ...], tuple[ToolSchema, ...]] = ((), ())

    @property
    def model(self) -> str:
        """The model's name."""
        return self._options.model

    @property
    def provider(self) -> str:
        """`"local"`."""
        return PROVIDER

    @property
    def context_window(self) -> int:
        """Tokens that one request may fill: what the server said, once it runs."""
        if self._running is not None:
            return self._running.context_window
        return self._options.context_window

    @property
    def server_pid(self) -> int | None:
        """The process id of the server that this client uses, `None` before it starts."""
        return None if self._server is None else self._server.pid

    def encode(self, request: ModelRequest, *, stream: bool = False) -> HttpRequest:
        """The exact request; before the server starts its address is not known and has port 0."""
        return self._chat.encode(self._adapted(request), stream=stream)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole reply at once."""
        reply = Accumulator()
        async with self.stream(request) as events:
            async for event in events:
                reply.feed(event)
        return reply.response()

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        """The reply as it comes; starts the server if it does not run."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        adapted = self._adapted(request)
        chat = await self._started()
        async with chat.stream(adapted) as events:
            yield _spoken(events) if REPLY_TOOL in adapted.tools else events

    async def aclose(self) -> None:
        """Close the connections, and stop the server if no other client uses it."""
        await self._chat.aclose()
        server, self._server, self._running = self._server, None, None
        if server is not None and (last := SHARED.release(self._options)) is not None:
            await self._threads.run(last.stop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _started(self) -> OpenAIChatClient:
        if self._server is None:
            self._server = SHARED.acquire(self._options)
        running = self._server.running
        if running is None:
            running = await self._threads.run(self._server.start)
        if running != self._running:
            self._running = running
            former, self._chat = self._chat, self._connect(running.address, running.key)
            await former.aclose()
        return self._chat

    def _connect(self, address: str, key: str) -> OpenAIChatClient:
        return OpenAIChatClient(
            self._options.model,
            api_key=key,
            base_url=f"{address}/v1",
            profile=LLAMA_CPP,
            provider=PROVIDER,
            http_client=self._http_client,
        )

    def _adapted(self, request: ModelRequest) -> ModelRequest:
        """The request as it is sent: with defaults, closed schemas and the reply function.

        Raises `ConfigError` for what the model cannot do.
        """
        options = request.options
        if options.model not in (None, self._options.model):
            raise ConfigError(f"RequestOptions.model={options.model!r}: there is one local model")
        changes: dict[str, Any] = {"strict_tools": False}  # the grammar is always strict
        if options.temperature is None:
            changes["temperature"] = 0
        if options.max_output_tokens is None:
            changes["max_output_tokens"] = self._max_output_tokens
        tools: tuple[ToolSchema, ...] = ()
        if request.tools and options.tool_choice != "none":
            if self._options.template is None:
                raise ConfigError('tools: made with tools="emulated"; use EmulatedTools around it')
            if options.response_schema is not None:
                raise ConfigError(
                    "RequestOptions.response_schema: the local model takes no schema beside tools"
                )
            tools = self._offer(request.tools, options.tool_choice)
            changes["tool_choice"] = "required"
            leaning = _ANSWERED if _results_wait(request) else _ASKED
            changes["extra_body"] = {**leaning, **(options.extra_body or {})}
        else:
            changes["tool_choice"] = None
        return replace(request, tools=tools, options=replace(options, **changes))

    def _offer(self, tools: tuple[ToolSchema, ...], choice: str | None) -> tuple[ToolSchema, ...]:
        if self._offered[0] is not tools:
            if any(tool.name == REPLY for tool in tools):
                raise ConfigError(
                    f"a tool called {REPLY!r} cannot be offered to the local model: it speaks with"
                    " a function of this name; rename the tool"
                )
            self._offered = (tools, (*map(_closed, tools), REPLY_TOOL))
        offered = self._offered[1]
        if choice in (None, "auto"):
            return offered
        if choice == "required":
            return offered[:-1]
        named = tuple(tool for tool in offered[:-1] if tool.name == choice)
        if not named:
            raise ConfigError(f"RequestOptions.tool_choice={choice!r}: no tool has this name")
        return named


def _results_wait(request: ModelRequest) -> bool:
    """Whether results have come since the model spoke last."""
    for message in reversed(request.messages):
        if message.role is Role.ASSISTANT:
            return False
        if message.results:
            return True
    return False


def _closed(tool: ToolSchema) -> ToolSchema:
    """The tool with no room for arguments that it does not name: the model would invent some."""
    if "additionalProperties" in tool.input_schema:
        return tool
    schema = {**tool.input_schema, "additionalProperties": False}
    return ToolSchema(name=tool.name, description=tool.description, input_schema=schema)


async def _spoken(events: AsyncIterator[StreamEvent]) -> AsyncGenerator[StreamEvent]:
    """The same events, with calls of the reply function as text."""
    texts: dict[int, ReplyText] = {}
    calls = False
    async for event in events:
        match event:
            case PartStart(kind="tool_call", name=name):
                if name == REPLY:
                    texts[event.index] = ReplyText()
                    yield PartStart("text", event.index)
                    continue
                calls = calls or event.index not in texts
            case PartDelta(kind="tool_call") if event.index in texts:
                if text := texts[event.index].feed(event.text):
                    yield PartDelta("text", event.index, text)
                continue
            case PartStop(kind="tool_call") if event.index in texts:
                yield PartStop("text", event.index)
                continue
            case Stop(reason=StopReason.TOOL_CALLS) if not calls:
                yield Stop(StopReason.END, event.raw)
                continue
            case _:
                pass
        yield event
