"""ENG-19: a signal that comes just before the event loop falls asleep is not slept over."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import anyio
import pytest

from loopctl.cli.interrupts import Alarm, Interrupts

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_a_signal_wakes_a_sleeping_event_loop(anyio_backend: str) -> None:
    """ENG-19: the interpreter writes to the wake-up socket, and the event loop reads it."""
    loop, woken = asyncio.get_running_loop(), anyio.Event()
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    alarm = Alarm(loop)
    try:
        written = signal.set_wakeup_fd(-1)
        assert written not in (-1, before)
        assert loop.remove_reader(alarm._awake)
        loop.add_reader(alarm._awake, woken.set)
        os.write(written, b"\x02")  # what the interpreter does when a signal comes
        with anyio.fail_after(10):
            await woken.wait()
    finally:
        alarm.close()
    after = signal.set_wakeup_fd(before)
    assert after == before


async def test_an_interrupt_stops_the_run_that_it_meets(anyio_backend: str) -> None:
    """ENG-19: a real signal to this process, while nothing else happens."""
    stopped = anyio.Event()
    handler = signal.getsignal(signal.SIGINT)
    with Interrupts(stopped.set):
        os.kill(os.getpid(), signal.SIGINT)
        with anyio.fail_after(10):
            await stopped.wait()
    assert signal.getsignal(signal.SIGINT) == handler


def test_nothing_stays_open_afterwards(anyio_backend: str) -> None:
    """ENG-19: sockets and the wake-up descriptor are given back."""

    async def once() -> tuple[socket.socket, socket.socket]:
        alarm = Alarm(asyncio.get_running_loop())
        alarm.close()
        return alarm._awake, alarm._bell

    for end in anyio.run(once):
        assert end.fileno() == -1


async def test_an_interrupt_that_stopped_nothing_is_not_the_first_of_two(
    anyio_backend: str,
) -> None:
    """ENG-19: what cleared a line does not make the next one exit at once."""
    send, receive = anyio.create_memory_object_stream[str](3)
    with send, receive, Interrupts(lambda: send.send_nowait("stop")) as interrupts:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            with anyio.fail_after(10):
                await receive.receive()
            interrupts.rearm()


async def test_the_terminal_is_put_back_before_it_exits_at_once(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    monkeypatch.setattr(os, "write", lambda fd, data: done.append(data))
    monkeypatch.setattr(os, "_exit", lambda code: done.append(int(code)))
    stopping = Interrupts(lambda: None, last_words=b"bye", restore=lambda: done.append("put back"))
    with stopping:
        stopping._vanish()
    assert done == ["put back", b"bye", 130]
