"""The contract of model clients: ours keep it, broken ones are caught."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from loopctl.config import RequestOptions
from loopctl.errors import ConnectError, StreamIncomplete
from loopctl.messages import Message
from loopctl.models.client import ModelRequest
from loopctl.models.openai_chat import OpenAIChatClient
from loopctl.replies import ModelResponse
from loopctl.testing import Playable, ScriptedClient, Stall, chat_reply, threaded
from loopctl.testing.byte_script import Close
from loopctl.testing.contracts import Bench, Broken, ModelClientContract, Served


def as_scripted(reply: Served) -> Any:
    if isinstance(reply, Message):
        return reply
    if isinstance(reply.by, Stall):
        stall = reply.by

        async def hang(_: ModelRequest) -> str:
            stall.reached = True
            await anyio.sleep_forever()
            return ""

        return hang
    return StreamIncomplete if isinstance(reply.by, Close) else ConnectError


class TestScriptedClient(ModelClientContract):
    serves_bytes = False
    kind: type[ScriptedClient] = ScriptedClient

    @contextmanager
    def serve(self, *replies: Served) -> Generator[Bench, None, None]:
        yield Bench(client=self.kind(*map(as_scripted, replies)))


def as_chat_completions(reply: Served) -> Playable:
    if isinstance(reply, Message):
        return chat_reply(reply)
    return chat_reply(reply.message, broken_by=reply.by)


@pytest.mark.usefixtures("no_threads_or_sockets_left")
class TestOpenAIChatClient(ModelClientContract):
    unsupported = RequestOptions(stop=("a", "b", "c", "d", "e"))

    @contextmanager
    def serve(self, *replies: Served) -> Generator[Bench, None, None]:
        with threaded(*map(as_chat_completions, replies)) as server:
            client = OpenAIChatClient("m", base_url=f"{server.url}/v1", api_key="k")
            yield Bench(client=client, server=server)


def test_a_client_whose_ways_differ_is_caught() -> None:
    """MOD-4: complete() and stream() must agree."""

    class Shouts(ScriptedClient):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            await super().complete(request)
            return ModelResponse(message=Message.assistant("WHAT"))

    contract = TestScriptedClient()
    contract.kind = Shouts
    with pytest.raises(AssertionError):
        contract.test_complete_and_stream_give_what_was_said("asyncio", "text")


def test_a_client_that_takes_half_for_the_whole_is_caught() -> None:
    """MOD-8: half a reply must not be success."""

    class Hopeful(ScriptedClient):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            try:
                return await super().complete(request)
            except StreamIncomplete:
                return ModelResponse(message=Message.assistant("I guess"))

    contract = TestScriptedClient()
    contract.kind = Hopeful
    with pytest.raises(pytest.fail.Exception):
        contract.test_half_a_reply_is_no_success("asyncio", "complete", Close())


def test_a_client_that_drops_an_option_in_silence_is_caught() -> None:
    """MOD-3: an option is honoured or refused."""
    contract = TestScriptedClient()
    contract.unsupported = RequestOptions(temperature=1)
    with pytest.raises(AssertionError):
        contract.test_an_option_that_it_cannot_honour_is_refused_before_any_byte("asyncio")


def test_a_client_that_cannot_be_cancelled_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENG-18: a call that ignores cancellation must not hang the suite."""
    monkeypatch.setattr("loopctl.testing.contracts.PATIENCE", 0.2)

    class Deaf(ScriptedClient):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            self.requests.append(request)
            await anyio.sleep_forever()
            raise AssertionError

    contract = TestScriptedClient()
    contract.kind = Deaf
    with pytest.raises(TimeoutError):
        contract.test_it_can_be_used_again_after_it_was_closed("trio")


def test_a_subclass_must_say_how_its_client_is_served() -> None:
    with pytest.raises(NotImplementedError, match="how its client is served"):
        ModelClientContract().serve(Broken(Message.assistant("x"), Close()))
