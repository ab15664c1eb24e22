"""The watchdog: fed by a round trip through the accept loop, and by nothing else."""

from __future__ import annotations

import errno
import os
import signal
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kimiaepd import watchdog
from kimiaepd.hook_socket import endpoint
from kimiaepd.hook_socket.client import NotAnswering
from kimiaepd.hook_socket.server import Limits, serve
from kimiaepd.watchdog import Pace, feed, pace
from live import scratch
from stub_handler import Stub

PATIENCE = 30.0


@define
class Manager:
    """A service manager's clock: when it was fed, and whether it would have lost its patience."""

    patience: float = PATIENCE
    fed_at: list[float] = field(factory=list)
    longest: float = 0.0
    _last: float = 0.0

    def fed(self) -> None:
        now = trio.current_time()
        self.fed_at.append(now)
        self.longest = max(self.longest, now - self._last)
        self._last = now


async def _for(seconds: float, ping: Callable[[float], Awaitable[object]]) -> Manager:
    """What a manager hears in so many seconds of virtual time, counted from 0."""
    manager = Manager()
    began = trio.current_time()
    manager._last = began
    with trio.move_on_after(seconds):
        await feed(Pace.within(PATIENCE), ping, manager.fed)
    manager.fed_at = [round(at - began, 3) for at in manager.fed_at]
    return manager


# --- whether and how often ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": ""},
        {"WATCHDOG_PID": str(os.getpid())},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "x"},
    ],
)
def test_a_manager_that_does_not_watch_this_process_is_not_fed(environ: dict[str, str]) -> None:
    assert pace(environ) is None


@pytest.mark.parametrize("environ", [{}, {"WATCHDOG_PID": ""}, {"WATCHDOG_PID": str(os.getpid())}])
def test_the_pace_is_half_of_what_the_manager_says(environ: dict[str, str]) -> None:
    found = pace({"WATCHDOG_USEC": "30000000", **environ})
    assert found
    assert found.between == 15
    assert found.between + found.trip + found.again + found.trip < PATIENCE


@pytest.mark.parametrize("said", ["soon", "-1", "1.5", "²", "0x10", " 1", "0", "00"])
def test_a_number_that_is_none_is_said_and_feeds_nothing(said: str) -> None:
    with capture_logs() as logs:
        assert pace({"WATCHDOG_USEC": said}) is None
    assert [line["log_level"] for line in logs] == ["warning"]


# --- feeding -----------------------------------------------------------------------------------


async def test_an_answer_feeds_and_half_the_patience_passes(autojump_clock: MockClock) -> None:
    async def answers(_: float) -> None:
        await trio.sleep(1)

    manager = await _for(50, answers)
    assert manager.fed_at == [16, 32, 48]


async def test_a_failing_trip_feeds_nothing_is_said_once_and_is_tried_again_soon(
    autojump_clock: MockClock,
) -> None:
    trips: list[float] = []

    async def fails(seconds: float) -> None:
        trips.append(trio.current_time())
        await trio.sleep(seconds)
        raise NotAnswering("no")

    with capture_logs() as logs:
        began = trio.current_time()
        manager = await _for(1000, fails)
    assert manager.fed_at == []
    assert [round(at - began, 3) for at in trips[:2]] == [15, 22.5]
    assert [line["event"] for line in logs] == ["the hook socket does not answer; watchdog not fed"]


async def test_a_short_trouble_does_not_cost_the_daemon_its_life(
    autojump_clock: MockClock,
) -> None:
    began = trio.current_time()

    async def busy_for_a_while(seconds: float) -> None:
        if 15 <= trio.current_time() - began < 26:
            raise NotAnswering("busy")

    with capture_logs() as logs:
        manager = await _for(100, busy_for_a_while)
    assert manager.longest < PATIENCE
    assert [line["log_level"] for line in logs] == ["warning", "info"]


async def test_a_lack_of_descriptors_ends_nothing(autojump_clock: MockClock) -> None:
    async def no_descriptor(_: float) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with capture_logs() as logs:
        assert (await _for(100, no_descriptor)).fed_at == []
    assert "Too many open files" in logs[0]["why"]


async def test_a_defect_is_not_hidden(autojump_clock: MockClock) -> None:
    async def defect(_: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await _for(100, defect)


# --- through a real socket ----------------------------------------------------------------------


@contextmanager
def ears(path: Path) -> Iterator[socket.socket]:
    """A service manager's notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(10)
        listener.bind(str(path))
        yield listener


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as made:
        yield Path(made)


QUICK = Pace(between=0.01, trip=0.05, again=0.01, look=1)


async def test_a_serving_accept_loop_is_fed_and_a_stop_ends_it(folder: Path) -> None:
    stopping = trio.Event()
    listening = endpoint.bind(folder / "s")
    environ = {"NOTIFY_SOCKET": str(folder / "n")}
    with ears(folder / "n") as manager, trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve, listening, Stub(), Limits(), stopping=stopping))
            await nursery.start(watchdog.run, QUICK, environ, listening.path, stopping)
            for _ in range(2):
                said = await trio.to_thread.run_sync(manager.recv, 100)
                assert said == b"WATCHDOG=1"
            stopping.set()


async def test_a_wedged_accept_loop_is_not_fed_though_everything_else_runs(folder: Path) -> None:
    """The kernel still accepts for it, so a bare connection would prove nothing."""
    stopping = trio.Event()
    listening = endpoint.bind(folder / "s")
    environ = {"NOTIFY_SOCKET": str(folder / "n")}
    with ears(folder / "n") as manager, trio.fail_after(10), capture_logs() as logs, listening:
        manager.setblocking(False)
        async with trio.open_nursery() as nursery:
            await nursery.start(watchdog.run, QUICK, environ, listening.path, stopping)
            while not logs:
                await trio.lowlevel.checkpoint()
            stopping.set()
        with pytest.raises(BlockingIOError):
            manager.recv(100)
    assert "did not answer within" in logs[0]["why"]


async def test_a_stop_does_not_wait_for_a_trip_that_hangs(
    folder: Path, autojump_clock: MockClock
) -> None:
    stopping = trio.Event()
    slow = Pace(between=1, trip=1000, again=1, look=1)
    with endpoint.bind(folder / "s") as listening:
        async with trio.open_nursery() as nursery:
            await nursery.start(watchdog.run, slow, {}, listening.path, stopping)
            await trio.sleep(2)
            await wait_all_tasks_blocked()
            began = trio.current_time()
            stopping.set()
        assert trio.current_time() == began


# --- the daemon --------------------------------------------------------------------------------


def test_the_daemon_tells_its_manager_all_its_life(folder: Path) -> None:
    with (
        ears(folder / "n") as manager,
        scratch(NOTIFY_SOCKET=str(folder / "n"), WATCHDOG_USEC="600000") as live,
    ):
        live.start()
        assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        assert live.process
        live.process.send_signal(signal.SIGHUP)
        said = []
        while b"READY=1" not in said:
            said.append(manager.recv(100))
        assert [word for word in said if word != b"WATCHDOG=1"] == [b"RELOADING=1", b"READY=1"]
        live.process.send_signal(signal.SIGTERM)
        while (word := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert word == b"STOPPING=1"
        assert live.wait() == 0
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)


def test_a_deleted_socket_is_there_again_before_the_manager_loses_its_patience(
    folder: Path,
) -> None:
    with (
        ears(folder / "n") as manager,
        scratch(NOTIFY_SOCKET=str(folder / "n"), WATCHDOG_USEC="1500000") as live,
    ):
        live.start()
        assert manager.recv(100) == b"READY=1"
        live.where.socket.unlink()
        manager.settimeout(1.5)
        assert manager.recv(100) == b"WATCHDOG=1"
        assert live.where.socket.is_socket()
        assert live.stop() == 0


def test_a_watchdog_that_is_anothers_is_not_fed(folder: Path) -> None:
    environ = {"WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}
    with ears(folder / "n") as manager, scratch(NOTIFY_SOCKET=str(folder / "n"), **environ) as live:
        live.start()
        assert live.stop() == 0
        assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"]
