"""Asking a daemon: an answer, or one of two errors that nobody can mistake for each other."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kimiaepd.errors import ConfigError
from kimiaepd.hook_socket.client import REPLY_BYTES, NotAnswering, NotRunning, request
from kimiaepd.hook_socket.wire import encode_reply

STATUS = encode_reply(b'{"pid":1}')

DAEMON = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path() -> Iterator[Path]:
    """A place for a socket, short enough on every platform."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        yield Path(folder, "s")


@asynccontextmanager
async def answering(path: Path, *pieces: bytes, then_hang: bool = False) -> AsyncIterator[None]:
    """A daemon that says these pieces to everybody."""
    listening = trio.socket.socket(socket.AF_UNIX)
    await listening.bind(str(path))
    listening.listen()

    async def talk(stream: trio.SocketStream) -> None:
        assert await stream.receive_some()
        for piece in pieces:
            await stream.send_all(piece)
        if then_hang:
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, talk, [trio.SocketListener(listening)])
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("pieces", [[STATUS], [bytes([byte]) for byte in STATUS]])
async def test_the_answer_is_given_back(path: Path, pieces: list[bytes]) -> None:
    with trio.fail_after(10):
        async with answering(path, *pieces):
            assert await request(path, "status", timeout=5) == {"pid": 1}


async def test_a_whole_answer_needs_no_hang_up(path: Path) -> None:
    with trio.fail_after(10):
        async with answering(path, STATUS, then_hang=True):
            assert await request(path, "ping", timeout=5) == {"pid": 1}


async def test_nobody_is_there(path: Path) -> None:
    with pytest.raises(NotRunning, match=str(path)) as caught:
        await request(path, "ping", timeout=5)
    assert caught.value.status == 1
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    with pytest.raises(NotRunning):
        await request(path, "ping", timeout=5)


@pytest.mark.parametrize("kind", ["below a file", "datagram", "a circle", "too long"])
async def test_where_no_daemon_can_be_one_line_says_so(path: Path, kind: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        match kind:
            case "below a file":
                path.touch()
                path /= "s"
            case "datagram":
                datagrams.bind(str(path))
            case "a circle":
                path.symlink_to(path)
            case "too long":
                path /= "s" * 120
        with trio.fail_after(10), pytest.raises(NotRunning, match="no daemon can") as caught:
            await request(path, "ping", timeout=5)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_not_answering_is_another_exit_status_than_not_running() -> None:
    statuses = {NotRunning.status, NotAnswering.status}
    assert len(statuses) == 2
    # 0 is success, and 2 is what a hook says to deny.
    assert not statuses & {0, 2}


@pytest.mark.parametrize("pieces", [[], [STATUS[:3]], [STATUS[:-1]]])
async def test_a_daemon_that_hangs_is_given_up_in_time(
    path: Path, pieces: list[bytes], autojump_clock: MockClock
) -> None:
    async with answering(path, *pieces, then_hang=True):
        began = trio.current_time()
        with pytest.raises(NotAnswering, match=r"within 2\.5 s"):
            await request(path, "ping", timeout=2.5)
        assert trio.current_time() - began == pytest.approx(2.5)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        STATUS[:-1],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        encode_reply(b"[]"),
        encode_reply(b"{"),
        encode_reply(b""),
        b"%d\n" % (REPLY_BYTES + 1),
        b"2\n{}}",
    ],
)
async def test_what_is_no_answer_is_not_answering(path: Path, said: bytes) -> None:
    with trio.fail_after(10):
        async with answering(path, said):
            with pytest.raises(NotAnswering):
                await request(path, "ping", timeout=5)


@pytest.fixture
def stopped_daemon(path: Path) -> Iterator[Path]:
    """The socket of a process that was stopped after it began to listen."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", DAEMON, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        try:
            assert daemon.stdout
            assert daemon.stdout.readline() == b"ready\n"
            daemon.send_signal(signal.SIGSTOP)
            yield path
        finally:
            daemon.kill()


async def test_a_stopped_daemon_is_not_answering(stopped_daemon: Path) -> None:
    with trio.fail_after(10), pytest.raises(NotAnswering):
        await request(stopped_daemon, "ping", timeout=0.1)


async def test_a_full_backlog_is_not_answering(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as wedged, socket.socket(socket.AF_UNIX) as first:
        wedged.bind(str(path))
        wedged.listen(0)
        first.connect(str(path))
        expected, match = (
            (NotAnswering, "is busy") if sys.platform == "linux" else (NotRunning, "no daemon")
        )
        with trio.fail_after(10), pytest.raises(expected, match=match):
            await request(path, "ping", timeout=0.1)


async def test_another_users_socket_is_told_as_such(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("trio._socket._SocketType.connect", refuse)
    with pytest.raises(ConfigError, match="another user"):
        await request(path, "ping", timeout=1)
