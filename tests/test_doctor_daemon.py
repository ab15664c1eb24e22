"""The doctor's look at the daemon: a real one, a stopped one, none, and what else can be there."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from kimiaepd import settings
from kimiaepd.doctor import daemon
from kimiaepd.doctor.check import Level
from kimiaepd.doctor.complaints import complaints
from kimiaepd.hook_socket.wire import encode_reply
from kimiaepd.mapping.json_value import JSON
from kimiaepd.storage.file_safety import lives
from kimiaepd.storage.lock_holder import lock_holder
from live import Live, scratch
from patients import bad, lines, patient

START = "run: kimiaepd run (or kimiaepd service install, to have it always)"

HOLDER = """
import fcntl, os, sys
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write(f"{os.getpid()}\\n")
lock.flush()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as live:
        yield live


@pytest.fixture
def place(live: Live) -> Path:
    """The socket's path, in a state directory that is there."""
    live.where.state_dir.mkdir(mode=0o700, parents=True)
    return live.where.socket


async def see(live: Live) -> list[str]:
    """What is not ok."""
    return bad((await daemon.examine(patient(live.environ))).checks)


@contextmanager
def holder(lock: Path) -> Iterator[int]:
    """Another process that holds the lock and listens nowhere; gives its pid."""
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


@asynccontextmanager
async def listener(path: Path, reply: bytes) -> AsyncIterator[None]:
    listening = trio.socket.socket(socket.AF_UNIX)
    await listening.bind(str(path))
    path.chmod(0o600)
    listening.listen()

    async def talk(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(reply)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, talk, [trio.SocketListener(listening)])
        yield
        nursery.cancel_scope.cancel()


# --- the three that are told apart ---------------------------------------------------------------


async def test_a_running_daemon_is_well_and_says_so(live: Live) -> None:
    live.start()
    assert live.process is not None
    seen = await daemon.examine(patient(live.environ))
    where = live.where
    assert lines(seen.checks) == [
        f"ok state directory: {where.state_dir} is ours alone (mode 0700) -> None",
        f"ok socket: {where.socket} ({len(str(where.socket))} of 103 bytes) is ours alone -> None",
        (
            f"ok daemon: pid {live.process.pid} answers: version 0.1.0, up 0 s, 0 hooks taken in"
            " -> None"
        ),
    ]
    assert seen.status is not None
    assert seen.status["pid"] == live.process.pid


async def test_no_daemon_is_one_finding_and_nothing_was_made(live: Live) -> None:
    seen = await daemon.examine(patient(live.environ))
    assert bad(seen.checks) == [
        f"finding daemon: no daemon is running: hooks do nothing until one does -> {START}"
    ]
    assert seen.status is None
    assert not live.where.state_dir.exists()


async def test_what_a_killed_daemon_left_is_no_second_finding(live: Live) -> None:
    live.start()
    live.kill()
    assert live.where.socket.is_socket()
    assert await see(live) == [
        f"finding daemon: no daemon is running: hooks do nothing until one does -> {START}"
    ]


async def test_a_stopped_daemon_is_a_wedged_one_with_its_pid(
    live: Live, autojump_clock: MockClock
) -> None:
    live.start()
    assert live.process is not None
    pid = live.process.pid
    live.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)  # noqa: ASYNC222 - it stops at once
    assert await see(live) == [
        (
            f"finding daemon: pid {pid} holds the daemon's lock and does not answer within 2 s: it"
            " hangs, is stopped, or is far too busy -> see what it wrote last; then run:"
            f" kill {pid} (kill -9 {pid} if it stays), and start it again: kimiaepd run"
        )
    ]


async def test_a_daemon_whose_socket_is_gone_is_not_an_absent_one(live: Live) -> None:
    live.start()
    assert live.process is not None
    live.where.socket.unlink()
    (line,) = await see(live)
    pid = live.process.pid
    assert line.startswith(
        f"finding daemon: pid {pid} holds {live.where.state_dir / 'daemon.lock'}"
    )
    assert f"run: kill {pid}; then: kimiaepd run" in line


async def test_looking_never_keeps_a_daemon_from_starting(live: Live) -> None:
    """The lock is not even tried: it can be taken at every moment of the look."""
    live.start()
    live.stop()
    lock = live.where.state_dir / "daemon.lock"
    before = lock.stat()

    def tried(*_: object) -> None:
        raise AssertionError("the look took the lock")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", tried)
        patch.setattr(fcntl, "lockf", tried)
        await see(live)
    assert lock.stat().st_mtime_ns == before.st_mtime_ns


# --- strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", encode_reply(b"[]"), encode_reply(b"{}")]
)
async def test_a_stranger_that_listens_there_is_called_one(
    place: Path, live: Live, reply: bytes
) -> None:
    async with listener(place, reply):
        assert await see(live) == [
            (
                f"finding daemon: what listens at {place} is not kimiaepd: it gives no answer of"
                " ours, and nobody holds the daemon's lock -> stop that program, or set socket to"
                " another path"
            )
        ]


async def test_a_stranger_that_says_nothing_is_no_wedged_daemon(
    place: Path, live: Live, autojump_clock: MockClock
) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        place.chmod(0o600)
        listening.listen()
        (line,) = await see(live)
    assert "is not kimiaepd" in line


async def test_a_daemon_with_a_defect_is_not_called_a_stranger(place: Path, live: Live) -> None:
    async with listener(place, encode_reply(b'{"error":"status failed\\u001b[0m"}')):
        (line,) = await see(live)
    assert line.startswith("finding daemon: the daemon (pid unknown) cannot say its status: status")
    assert "\x1b" not in line


def make_file(path: Path) -> None:
    path.write_text("mine")


def make_link(path: Path) -> None:
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (make_file, "a regular file"),
        (Path.mkdir, "a directory"),
        (make_link, "a symbolic link"),
        (os.mkfifo, "a FIFO"),
    ],
)
async def test_anything_but_a_socket_is_named(
    place: Path, live: Live, make: Callable[[Path], None], kind: str
) -> None:
    make(place)
    assert await see(live) == [
        (
            f"finding socket: {place} is {kind} and not a socket; no daemon can listen there ->"
            " move it away, or set socket to another path"
        ),
        f"finding daemon: no daemon is running: hooks do nothing until one does -> {START}",
    ]


# --- permissions and lengths ---------------------------------------------------------------------


async def test_a_socket_that_others_can_use_is_a_finding(live: Live) -> None:
    live.start()
    live.where.socket.chmod(0o666)
    assert await see(live) == [
        (
            f"finding socket: {live.where.socket} has mode 0666, and must have 0600 -> run:"
            f" chmod 600 {live.where.socket}"
        )
    ]


async def test_a_socket_of_another_user_is_a_finding(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.start()
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    _, line = await see(live)
    assert line == (
        f"finding socket: {live.where.socket} belongs to uid {mine}, and this is uid 12345 -> set"
        " socket to a path in a directory of your own"
    )


async def test_a_state_directory_that_others_can_write_to_is_a_finding(live: Live) -> None:
    live.start()
    live.where.state_dir.chmod(0o777)
    assert await see(live) == [
        (
            f"finding state directory: {live.where.state_dir} can be written by others (mode 0777)"
            f" -> run: chmod 700 {live.where.state_dir}"
        )
    ]


async def test_a_state_directory_behind_a_link_is_a_finding(live: Live) -> None:
    live.where.state_dir.parent.mkdir(parents=True)
    live.where.state_dir.symlink_to(live.home)
    line, _ = await see(live)
    assert line == (
        f"finding state directory: {live.where.state_dir} is a symbolic link -> give the directory"
        " that it leads to"
    )


async def test_a_file_in_the_way_of_the_state_directory_is_a_finding(live: Live) -> None:
    (live.home / ".local").write_text("")
    line, _ = await see(live)
    assert line.startswith(
        f"finding state directory: {live.where.state_dir} is not there and canno"
    )


async def test_a_socket_outside_of_the_state_directory_needs_a_private_place(live: Live) -> None:
    shared = live.home / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    live.environ["KIMIAEPD_SOCKET"] = str(shared / "s")
    line, _ = await see(live)
    assert line == (
        f"finding socket: {shared} can be written by others (mode 1777) -> run: chmod 700 {shared}"
    )


async def test_a_path_that_is_too_long_is_a_finding(live: Live) -> None:
    someone = patient(live.environ)
    long = live.home / ("x" * 100)
    someone = evolve(
        someone,
        settings=evolve(someone.settings, paths=evolve(someone.settings.paths, socket=long)),
    )
    line, _ = bad((await daemon.examine(someone)).checks)
    assert line == (
        f"finding socket: {long} is {len(str(long))} bytes long, and at most 103 can be bound ->"
        " set socket to a shorter path"
    )


# --- what it says against itself -----------------------------------------------------------------


async def test_hooks_that_were_not_understood_are_a_warning_not_a_finding(live: Live) -> None:
    live.start()
    live.ask_raw(b"{nope")
    assert await see(live) == [
        (
            "warning daemon: hooks not understood: malformed 1 since it started -> the error.raised"
            " events in the log say which"
        )
    ]


async def test_hooks_that_were_turned_away_are_a_warning(live: Live) -> None:
    live.configure("[hooks]\nconnections = 1\n")
    live.start()
    with socket.socket(socket.AF_UNIX) as idle:
        idle.connect(str(live.where.socket))
        idle.sendall(b"A")  # it has the only place
        while True:
            with socket.socket(socket.AF_UNIX) as hook:
                hook.connect(str(live.where.socket))
                hook.sendall(b"AEPD1 hook 1 2\n{}")
                if not hook.recv(10):  # let go unserved
                    break
        found = await see(live)
    assert any(
        line.startswith("warning daemon: hooks turned away, because too many came at once: 1 since")
        for line in found
    )


def test_every_count_that_should_be_zero_is_told() -> None:
    where = settings.load({"HOME": "/h"})
    status: dict[str, JSON] = {
        "version": "0.0.1",
        "log_dir": "/elsewhere",
        "events": {"lost": 3},
        "log": {"failed_syncs": 1},
        "relay": {"crashes": 1, "own": {"crashes": 8}},
        "unsynced": 2,
        "connections": {"not_accepted": 4, "foreign_user": 5, "handler_error": 6, "gone": 9},
        "not_understood": {"too-large": 7},
    }
    told = [check.said for check in complaints("daemon", where, status)]
    assert told == [
        "it runs version 0.0.1, and version 0.1.0 is installed",
        f"it writes to /elsewhere, and the settings here say {where.paths.log_dir}",
        "events lost, because they could not be written: 3 since it started",
        "syncs that the disk refused (a power cut may lose events): 1 since it started",
        "times without a free file descriptor for a hook: 4 since it started",
        "connections of another user refused: 5 since it started",
        "requests that met a defect of kimiaepd: 6 since it started",
        "times that delivery failed by a defect of kimiaepd: 1 since it started",
        "times that our own relay failed by a defect of kimiaepd: 8 since it started",
        (
            'hooks back before their events were on disk, although log.sync is "always": 2 since it'
            " started"
        ),
    ]


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
members = [
    *("version", "log_dir", "events", "log", "connections", "relay", "not_understood", "unsynced"),
]


@given(st.dictionaries(st.sampled_from(members), any_json))
def test_no_status_breaks_the_look(status: dict[str, JSON]) -> None:
    for check in complaints("daemon", settings.load({"HOME": "/h"}), status):
        assert check.level is Level.WARNING
        assert "\n" not in check.said


# --- who holds a lock ----------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [True, False])
def test_the_holder_is_found_with_the_systems_list_and_without(
    tmp_path: Path, listed: bool
) -> None:
    lock = tmp_path / "daemon.lock"
    where = {} if listed else {"locks": tmp_path / "no list"}
    assert lock_holder(lock, **where) is None
    with holder(lock) as pid:
        assert lock_holder(lock, **where) == pid
    assert lock_holder(lock, **where) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists its locks")
def test_a_pid_that_another_process_has_got_since_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "daemon.lock"
    lock.write_text(f"{os.getpid()}\n")
    assert lock_holder(lock) is None


def test_a_holder_in_another_container_is_known_by_its_file(tmp_path: Path) -> None:
    lock = tmp_path / "daemon.lock"
    lock.write_text("4711\n")
    listed = tmp_path / "locks"
    listed.write_text(
        "1: POSIX  ADVISORY  READ 12 00:1a:77 128 128\n"
        "1: -> FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 0 fe:00:{lock.stat().st_ino} 0 EOF\n"
    )
    assert lock_holder(lock, locks=listed) == 4711


@pytest.mark.parametrize("content", ["", "x", "-1", "0", "99999999999999999999"])
def test_a_lock_file_with_anything_in_it_is_read(tmp_path: Path, content: str) -> None:
    lock = tmp_path / "daemon.lock"
    lock.write_text(content)
    assert lock_holder(lock, locks=tmp_path / "no list") is None


def test_a_fifo_in_the_place_of_the_lock_does_not_hang_the_look(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "daemon.lock")
    assert lock_holder(tmp_path / "daemon.lock") is None


def test_who_lives() -> None:
    assert lives(os.getpid())
    assert lives(1)
    assert not lives(0)
    assert not lives(-1)
    assert not lives(2**40)
