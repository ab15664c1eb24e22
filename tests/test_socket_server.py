"""The hook server on real sockets: who gets in, what becomes of the file, and how it stops."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kimiaepd import shim as shim_room
from kimiaepd.errors import BusyError, ConfigError, UserError
from kimiaepd.hook_socket.endpoint import Endpoint, adopt, bind
from kimiaepd.hook_socket.peer import Peer
from kimiaepd.hook_socket.server import DRAIN_SECONDS, Limits, raise_descriptor_limit, serve
from kimiaepd.hook_socket.wire import encode_request
from kimiaepd.mapping.json_value import JSONObject, parse
from stub_handler import Stub

FRAME = encode_request("hook", 7, b"body")
MIB = 1 << 20


@define
class Handler(Stub):
    """Counts hooks; holds those whose body is "hold" until it is let go."""

    hooks: int = 0
    over: list[int] = field(factory=list)
    let_go: trio.Event = field(factory=trio.Event)

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> bytes:
        self.hooks += 1
        if body == b"hold":
            await self.let_go.wait()
        return b""

    def oversized(self, head: bytes, size: int, started_ns: int) -> None:
        self.over.append(size)


@define
class Served:
    """A server that runs in the test's own Trio."""

    path: Path
    handler: Handler
    stopping: trio.Event

    async def connect(self) -> trio.SocketStream:
        """A client."""
        return await trio.open_unix_socket(self.path)

    async def ask(self, frame: bytes = FRAME) -> bytes:
        """One exchange, to the server's hang-up."""
        async with await self.connect() as client:
            return await exchange(client, frame)

    async def counters(self) -> JSONObject:
        """What status says of connections."""
        _, _, body = (await self.ask(encode_request("status", 7))).partition(b"\n")
        answer = parse(body)
        assert isinstance(answer, dict)
        assert isinstance(answer["connections"], dict)
        return answer["connections"]


async def exchange(client: trio.SocketStream, frame: bytes) -> bytes:
    """Send, and read to the end; a server that throws it away answers nothing."""
    said = b""
    try:
        await client.send_all(frame)
        async for piece in client:
            said += piece
    except trio.BrokenResourceError:
        pass
    return said


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private directory whose name leaves room for a socket's, on every platform."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:
        yield Path(name)


@asynccontextmanager
async def serving(
    folder: Path, limits: Limits | None = None, endpoint: Endpoint | None = None
) -> AsyncIterator[Served]:
    """A server until the block ends; then it is stopped as SIGTERM stops it."""
    endpoint = endpoint or bind(folder / "s")
    served = Served(endpoint.path, Handler(), trio.Event())
    run = partial(serve, endpoint, served.handler, limits or Limits(), stopping=served.stopping)
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield served
        served.stopping.set()


async def test_it_answers_and_cleans_up_after_itself(folder: Path) -> None:
    with trio.fail_after(10):
        async with serving(folder) as served:
            for _ in range(3):
                assert await served.ask() == b"0\n"
            assert await served.counters() == {"open": 1, "hook": 3, "status": 1}
        assert list(folder.iterdir()) == []


async def test_the_real_shim_is_understood(folder: Path) -> None:
    shim = Path(shim_room.__file__)
    with trio.fail_after(10):
        async with serving(folder) as served:
            ran = await trio.run_process(
                [sys.executable, "-I", "-S", shim, served.path, "5"],
                stdin=b"body",
                capture_stdout=True,
                capture_stderr=True,
            )
            assert (ran.stdout, ran.stderr) == (b"", b"")
            assert served.handler.hooks == 1


async def test_garbage_of_every_kind_ends_nothing(folder: Path) -> None:
    with trio.fail_after(10):
        async with serving(folder) as served:
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, b"AEPD1 hook x 1\n", b"\n"):
                assert await served.ask(garbage) == b""
            assert await served.ask() == b"0\n"
            assert (await served.counters())["garbage"] == 4


async def test_64_mib_are_refused_without_being_read(folder: Path) -> None:
    with trio.fail_after(10):
        async with serving(folder) as served:
            said = await served.ask(encode_request("hook", 7, bytes(64 * MIB)))
            assert said in (b"0\n", b"")
            assert served.handler.over == [64 * MIB]
            assert await served.ask() == b"0\n"


async def test_32_mib_are_read(folder: Path) -> None:
    with trio.fail_after(10):
        async with serving(folder) as served:
            assert await served.ask(encode_request("hook", 7, bytes(32 * MIB))) == b"0\n"


async def test_a_thousand_idle_clients_cost_their_places_and_nothing_else(
    folder: Path, autojump_clock: MockClock
) -> None:
    raise_descriptor_limit(4096)
    async with serving(folder) as served:
        idle = [await served.connect() for _ in range(1000)]
        await wait_all_tasks_blocked()
        assert await served.ask() == b""
        await trio.sleep(1)
        assert await served.ask() == b""
        assert await served.ask(encode_request("ping", 7))
        await trio.sleep(4.1)
        assert await served.ask() == b"0\n"
        counters = await served.counters()
        assert (counters["slow_read"], counters["over_limit"]) == (264, 738)
        for client in idle:
            await client.aclose()


STRANGER = """
import os, socket, sys
if os.geteuid() == 0:
    os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
try:
    client.sendall(b"AEPD1 hook 7 4\\nbody")
    print(client.recv(100))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
"""


async def test_another_users_process_is_turned_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = bind(folder / "s")
    # What normally keeps others out is opened up, so that the kernel's word alone is left.
    folder.chmod(0o755)
    endpoint.path.chmod(0o666)
    mine = os.geteuid()
    if mine != 0:
        # Only root can become another user; else we say that we are one.
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with trio.fail_after(10):
        async with serving(folder, endpoint=endpoint) as served:
            ran = await trio.run_process(
                [sys.executable, "-I", "-S", "-c", STRANGER, endpoint.path], capture_stdout=True
            )
            assert ran.stdout == b"b''\n"
            assert served.handler.hooks == 0
            assert mine != 0 or (await served.counters())["foreign_user"] == 1


async def test_stopping_lets_every_held_hook_go(folder: Path) -> None:
    with trio.fail_after(10):
        async with serving(folder) as served:
            replies: list[bytes] = []

            async def hold(client: trio.SocketStream) -> None:
                async with client:
                    replies.append(await exchange(client, encode_request("hook", 7, b"hold")))

            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(hold, await served.connect())
                await wait_all_tasks_blocked()
                assert served.handler.hooks == 50
                began = trio.current_time()
                served.stopping.set()
                served.handler.let_go.set()
            assert replies == [b"0\n"] * 50
            assert trio.current_time() - began < 1
    assert list(folder.iterdir()) == []


async def test_who_came_before_the_stop_is_still_served(folder: Path) -> None:
    with trio.fail_after(10):
        async with serving(folder) as served, await served.connect() as late:
            served.stopping.set()
            assert await exchange(late, FRAME) == b"0\n"


async def test_after_the_stop_nobody_finds_the_socket(
    folder: Path, autojump_clock: MockClock
) -> None:
    async with serving(folder) as served, await served.connect() as held:
        await held.send_all(encode_request("hook", 7, b"hold"))
        await wait_all_tasks_blocked()
        served.stopping.set()
        await wait_all_tasks_blocked()
        with pytest.raises(FileNotFoundError):
            await served.connect()
        served.handler.let_go.set()


@pytest.mark.parametrize("grace", [0.5, 5.0])
async def test_the_grace_is_one_deadline_for_all(
    folder: Path, autojump_clock: MockClock, grace: float
) -> None:
    with capture_logs() as logs:
        async with serving(folder, Limits(stop_seconds=grace)) as served:
            clients = [await served.connect() for _ in range(5)]
            for client in clients:
                await client.send_all(encode_request("hook", 7, b"hold"))
            await wait_all_tasks_blocked()
            began = trio.current_time()
        took = trio.current_time() - began
    assert grace <= took <= grace + DRAIN_SECONDS + 0.01
    assert [entry["event"] for entry in logs] == ["stopped before every request was answered"]
    for client in clients:
        assert await client.receive_some() == b""
        await client.aclose()


async def test_cancelling_ends_at_once_and_leaves_no_file(
    folder: Path, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        handler = Handler()
        await nursery.start(serve, bind(folder / "s"), handler, Limits())
        client = await trio.open_unix_socket(folder / "s")
        await client.send_all(encode_request("hook", 7, b"hold"))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await client.aclose()
    assert trio.current_time() == began
    assert list(folder.iterdir()) == []


async def test_a_deleted_socket_is_back_within_30_seconds(
    folder: Path, autojump_clock: MockClock
) -> None:
    async with serving(folder) as served, await served.connect() as held:
        await held.send_all(encode_request("hook", 7, b"hold"))
        await wait_all_tasks_blocked()
        for _ in range(3):
            served.path.unlink()
            await trio.sleep(30.1)
            assert await served.ask() == b"0\n"
        served.handler.let_go.set()
        assert await exchange(held, b"") == b"0\n"
    assert list(folder.iterdir()) == []


async def test_who_waited_in_the_deleted_socket_is_still_served(
    folder: Path, autojump_clock: MockClock
) -> None:
    async with serving(folder) as served:
        await trio.sleep(29.99)
        async with await served.connect() as client:
            served.path.unlink()
            await trio.sleep(1)
            assert await exchange(client, FRAME) == b"0\n"


async def expect_the_end(folder: Path, error: type[UserError], match: str) -> None:
    """Serve until the server ends by itself, as it must within 30 s."""
    with trio.fail_after(31), pytest.raises(error, match=match):
        await serve(bind(folder / "s"), Handler(), Limits())


@pytest.mark.parametrize("kind", ["socket", "file"])
async def test_another_programs_file_ends_the_server_and_stays(
    folder: Path, autojump_clock: MockClock, kind: str
) -> None:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as other:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_the_end, folder, BusyError, "another program")
            await wait_all_tasks_blocked()
            path.unlink()
            if kind == "socket":
                other.bind(str(path))
            else:
                path.write_text("precious")
            inode = path.lstat().st_ino
        assert path.lstat().st_ino == inode


async def test_a_deleted_directory_is_back_within_30_seconds(
    folder: Path, autojump_clock: MockClock
) -> None:
    async with serving(folder, endpoint=bind(folder / "below/s")) as served:
        await wait_all_tasks_blocked()
        served.path.unlink()
        served.path.parent.rmdir()
        await trio.sleep(30.1)
        assert await served.ask() == b"0\n"


async def test_a_file_in_the_directorys_place_ends_the_server(
    folder: Path, autojump_clock: MockClock
) -> None:
    below = folder / "below"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_the_end, below, ConfigError, "below")
        await wait_all_tasks_blocked()
        (below / "s").unlink()
        below.rmdir()
        below.touch()


async def test_an_adopted_socket_is_not_looked_after(
    folder: Path, autojump_clock: MockClock
) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "s"))
        made.listen()
        async with serving(folder, endpoint=adopt(folder / "s", made.dup())) as served:
            assert await served.ask() == b"0\n"
            (folder / "s").rename(folder / "elsewhere")
            await trio.sleep(100)
            served.path = folder / "elsewhere"
            assert await served.ask() == b"0\n"
    assert (folder / "elsewhere").is_socket()


async def test_without_descriptors_it_tries_again(
    folder: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # As in a program that never heard of logging: then Python writes errors to stderr.
    trios = logging.getLogger("trio.serve_listeners")
    monkeypatch.setattr(trios, "propagate", True)
    for logger in (trios, logging.getLogger("trio"), logging.getLogger()):
        monkeypatch.setattr(logger, "handlers", [])
    accept = socket.socket.accept
    failures = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]

    def poor(listening: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise OSError(failures.pop(), "none left")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", poor)
    with capture_logs() as lines:
        async with serving(folder) as served:
            began = trio.current_time()
            assert await served.ask() == b"0\n"
            assert trio.current_time() - began == pytest.approx(0.3)
            assert (await served.counters())["not_accepted"] == 3
    assert [line["kind"] for line in lines] == ["not_accepted"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((256, 10_000), (768, 10_000)),
        ((256, 500), (500, 500)),
        ((256, resource.RLIM_INFINITY), (768, resource.RLIM_INFINITY)),
        ((1024, 10_000), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_limit_of_descriptors_is_raised_where_it_must_be(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: tuple[int, int] | None
) -> None:
    said: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: said.append(limits))
    raise_descriptor_limit(768)
    assert said == ([after] if after else [])


def test_a_limit_that_cannot_be_raised_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 10_000))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    with capture_logs() as logs:
        raise_descriptor_limit(768)
    assert [(entry["log_level"], entry["limit"]) for entry in logs] == [("warning", 256)]
