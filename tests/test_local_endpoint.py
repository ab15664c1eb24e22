"""The socket's file: private from the first moment, never stolen, removed by its maker alone."""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from kimiaepd.errors import BusyError, ConfigError
from kimiaepd.hook_socket.endpoint import adopt, bind
from kimiaepd.hook_socket.peer import Peer, peer_uid, uid_of_ucred, uid_of_xucred

OWNER = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private directory whose name leaves room for a socket's, on every platform."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:
        yield Path(name)


def connect(path: Path) -> socket.socket:
    """A client, connected."""
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def leave_stale(path: Path) -> None:
    """A socket file whose owner is dead."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_it_is_ours_alone_whatever_the_umask(folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with bind(folder / "new/s") as endpoint:
            assert stat.S_IMODE(endpoint.path.lstat().st_mode) == 0o600
            assert stat.S_IMODE(endpoint.path.parent.lstat().st_mode) == 0o700
    finally:
        os.umask(before)


async def test_it_is_private_before_anybody_can_connect(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "s"
    modes = []
    listen = socket.socket.listen

    def look_first(listening: socket.socket, backlog: int) -> None:
        modes.append(stat.S_IMODE(path.lstat().st_mode))
        with pytest.raises(ConnectionRefusedError):
            connect(path)
        listen(listening, backlog)

    monkeypatch.setattr(socket.socket, "listen", look_first)
    with bind(path):
        connect(path).close()
    assert modes == [0o600]


async def test_a_connection_comes_through(folder: Path) -> None:
    with trio.fail_after(10), bind(folder / "s") as endpoint, connect(endpoint.path) as client:
        connection = await endpoint.listener.accept()
        client.sendall(b"hello")
        assert await connection.receive_some() == b"hello"
        connection.close()
        assert client.recv(10) == b""


async def test_an_open_directory_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod 700"):
        bind(folder / "s")
    assert list(folder.iterdir()) == []


async def test_a_stale_socket_is_replaced(folder: Path) -> None:
    leave_stale(folder / "s")
    with bind(folder / "s") as endpoint:
        connect(endpoint.path).close()


@pytest.fixture
def stopped_owner(folder: Path) -> Iterator[Path]:
    """The path of a socket whose owner lives and is stopped."""
    path = folder / "s"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", OWNER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        try:
            assert owner.stdout
            assert owner.stdout.readline() == b"ready\n"
            owner.send_signal(signal.SIGSTOP)
            yield path
        finally:
            owner.kill()


async def test_a_stopped_owner_is_never_displaced(stopped_owner: Path) -> None:
    inode = stopped_owner.lstat().st_ino
    with pytest.raises(BusyError, match="another program listens"):
        bind(stopped_owner)
    assert stopped_owner.lstat().st_ino == inode


@pytest.mark.skipif(sys.platform != "linux", reason="macOS refuses there; the lock is what helps")
async def test_a_full_backlog_is_an_owner_that_lives(folder: Path) -> None:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(path))
        owner.listen(0)
        inode = path.lstat().st_ino
        with connect(path), pytest.raises(BusyError):
            bind(path)
        assert path.lstat().st_ino == inode


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_what_is_no_socket_is_never_removed(folder: Path, kind: str) -> None:
    path = folder / "s"
    leave_stale(folder / "stale")
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("stale")
    with pytest.raises(ConfigError, match=str(path)):
        bind(path)
    assert os.path.lexists(path)
    assert (folder / "stale").is_socket()


@pytest.mark.parametrize("step", ["chmod", "listen"])
async def test_a_start_that_fails_leaves_no_socket(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr({"chmod": Path, "listen": socket.socket}[step], step, fail)
    with pytest.raises(ConfigError, match="No space left"):
        bind(folder / "s")
    assert list(folder.iterdir()) == []


async def test_a_stale_socket_that_cannot_be_removed_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    leave_stale(folder / "s")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", fail)
        with pytest.raises(ConfigError, match="Read-only"):
            bind(folder / "s")


async def test_a_file_that_is_gone_before_we_know_it_is_anothers_doing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = socket.socket.listen

    def remove_first(listening: socket.socket, backlog: int) -> None:
        (folder / "s").unlink()
        listen(listening, backlog)

    monkeypatch.setattr(socket.socket, "listen", remove_first)
    with bind(folder / "s") as endpoint:
        assert endpoint.standing() == "gone"


async def test_the_longest_path_is_103_bytes(folder: Path) -> None:
    name = "ü" * ((103 - len(str(folder)) - 1) // 2)
    fits = folder / (name + "s" * (103 - len(os.fsencode(folder / name))))
    assert len(os.fsencode(fits)) == 103
    with bind(fits):
        pass
    with pytest.raises(ConfigError, match="103 bytes"):
        bind(folder / (fits.name + "s"))


async def test_closing_removes_the_file_and_can_be_repeated(folder: Path) -> None:
    endpoint = bind(folder / "s")
    assert endpoint.still_mine()
    endpoint.close()
    endpoint.close()
    assert endpoint.standing() == "gone"
    assert list(folder.iterdir()) == []
    with pytest.raises(trio.ClosedResourceError):
        await endpoint.listener.accept()


async def test_a_file_that_cannot_be_removed_does_not_spoil_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    endpoint = bind(folder / "s")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", fail)
        endpoint.close()
    with pytest.raises(ConnectionRefusedError):
        connect(endpoint.path)
    bind(endpoint.path).close()


async def test_a_file_that_took_our_place_is_not_removed(folder: Path) -> None:
    path = folder / "s"
    old = bind(path)
    path.unlink()
    with bind(path) as new:
        assert (old.standing(), new.standing()) == ("taken", "mine")
        old.close()
        assert new.still_mine()
        connect(path).close()


async def test_after_a_deletion_it_listens_again(folder: Path) -> None:
    with trio.fail_after(10), bind(folder / "s") as endpoint:
        with connect(endpoint.path) as early:
            endpoint.path.unlink()
            assert endpoint.standing() == "gone"
            old = endpoint.rebind()
            assert endpoint.still_mine()
            assert stat.S_IMODE(endpoint.path.lstat().st_mode) == 0o600
            with connect(endpoint.path) as late:
                for listener, client in ((old, early), (endpoint.listener, late)):
                    connection = await listener.accept()
                    client.sendall(b"x")
                    assert await connection.receive_some() == b"x"
                    connection.close()
        old.close()


async def test_after_a_deletion_of_its_directory_it_makes_that_again_too(folder: Path) -> None:
    with bind(folder / "below/s") as endpoint:
        endpoint.path.unlink()
        endpoint.path.parent.rmdir()
        endpoint.rebind().close()
        assert endpoint.still_mine()
        assert stat.S_IMODE(endpoint.path.parent.lstat().st_mode) == 0o700
        connect(endpoint.path).close()


async def test_it_does_not_listen_again_where_the_directory_is_something_else(
    folder: Path,
) -> None:
    endpoint = bind(folder / "below/s")
    endpoint.path.unlink()
    endpoint.path.parent.rmdir()
    endpoint.path.parent.touch()
    with pytest.raises(ConfigError, match="below"):
        endpoint.rebind()
    endpoint.close()


async def test_it_does_not_listen_again_where_another_does(folder: Path) -> None:
    with bind(folder / "s") as endpoint:
        endpoint.path.unlink()
        with bind(endpoint.path), pytest.raises(BusyError, match="taken"):
            endpoint.rebind()


async def test_touching_keeps_it_from_looking_old(folder: Path) -> None:
    with bind(folder / "s") as endpoint:
        os.utime(endpoint.path, (0, 0))
        endpoint.touch()
        assert endpoint.path.lstat().st_mtime > 0


async def test_an_adopted_socket_keeps_its_file(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "s"))
        made.listen()
        with adopt(folder / "s", made.dup()) as endpoint:
            os.utime(folder / "s", (0, 0))
            endpoint.touch()
            assert endpoint.still_mine()
        assert (folder / "s").lstat().st_mtime == 0


async def test_a_connection_whose_peer_goes_breaks(folder: Path) -> None:
    with trio.fail_after(10), bind(folder / "s") as endpoint:
        client = connect(endpoint.path)
        connection = await endpoint.listener.accept()
        assert connection.send_nowait(b"unread") == b""
        client.close()
        with pytest.raises(trio.BrokenResourceError):
            connection.receive_nowait()
        with pytest.raises(trio.BrokenResourceError):
            connection.send_nowait(b"more")
        with pytest.raises(trio.BrokenResourceError):
            await connection.send_all(b"more")
        await connection.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await connection.receive_some()


async def test_the_kernel_says_who_connected(folder: Path) -> None:
    with trio.fail_after(10), bind(folder / "s") as endpoint, connect(endpoint.path):
        connection = await endpoint.listener.accept()
        assert peer_uid(connection) == os.geteuid()
        connection.close()


@pytest.mark.parametrize(
    ("platform", "answer", "uid"),
    [
        ("linux", struct.pack("iII", 1234, 501, 20), 501),
        ("darwin", struct.pack("II", 0, 501) + bytes(68), 501),
        ("freebsd14", b"", None),
    ],
)
def test_each_platform_is_asked_in_its_own_way(
    monkeypatch: pytest.MonkeyPatch, platform: str, answer: bytes, uid: int | None
) -> None:
    class Connected:
        def getsockopt(self, level: int, option: int, length: int, /) -> bytes:
            assert length == len(answer)
            return answer

    monkeypatch.setattr(sys, "platform", platform)
    assert peer_uid(Connected()) == uid


def test_credentials_are_read_as_each_kernel_writes_them() -> None:
    assert uid_of_ucred(struct.pack("iII", 1234, 501, 20)) == 501
    assert uid_of_xucred(struct.pack("II", 0, 501) + bytes(68)) == 501
    assert uid_of_xucred(struct.pack("II", 1, 501) + bytes(68)) is None


async def test_gone_waits_for_the_hang_up_and_drops_what_else_is_said(folder: Path) -> None:
    with trio.fail_after(10), bind(folder / "s") as endpoint:
        client = connect(endpoint.path)
        connection = await endpoint.listener.accept()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Peer(connection).gone)
            client.sendall(b"babble")
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            client.close()
        connection.close()
