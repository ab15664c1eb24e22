"""Socket activation: exactly one listening Unix stream socket, or an error that says why not."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from kimiaepd.errors import ConfigError
from kimiaepd.hook_socket.activation import take

MINE = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "hooks"}

CHILD = """
import os, sys
from pathlib import Path
import trio
from kimiaepd.hook_socket.activation import take

async def main():
    with take(os.environ, Path(sys.argv[1])) as endpoint:
        connection = await endpoint.listener.accept()
        connection.send_nowait(b"served")
        connection.close()
        print(sorted(name for name in os.environ if name.startswith("LISTEN_")))

trio.run(main)
"""


@pytest.fixture
def path() -> Iterator[Path]:
    """A place for a socket, short enough on every platform."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        yield Path(folder, "s")


@pytest.fixture
def given(path: Path) -> Iterator[socket.socket]:
    """A listening socket as a service manager makes it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield listening


def handed_over(made: socket.socket) -> int:
    """A descriptor of its own for the socket: whoever takes it closes it."""
    return made.dup().detach()


async def test_one_socket_is_taken_and_its_file_left_alone(
    path: Path, given: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MINE.items():
        monkeypatch.setenv(name, value)
    fd = handed_over(given)
    os.set_inheritable(fd, True)
    mode = path.lstat().st_mode
    with capture_logs() as logs:
        endpoint = take(os.environ, path, first_fd=fd)
    assert endpoint
    assert not os.get_inheritable(fd)
    assert not [name for name in os.environ if name.startswith("LISTEN_")]
    endpoint.close()
    assert path.lstat().st_mode == mode
    assert logs == []


async def test_the_real_thing(path: Path, given: socket.socket) -> None:
    # The shell is handed the socket as its stdin, and makes a descriptor 3 of it.
    command = 'exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" -c "$1" "$2"'
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:

            async def client() -> None:
                async with await trio.open_unix_socket(path) as stream:
                    assert await stream.receive_some() == b"served"

            nursery.start_soon(client)
            ran = await trio.run_process(
                ["/bin/sh", "-c", command, sys.executable, CHILD, path],
                stdin=given.fileno(),
                capture_stdout=True,
            )
    assert ran.stdout == b"[]\n"
    assert path.is_socket()


@pytest.mark.parametrize("environ", [{}, {"LISTEN_FDNAMES": "x"}])
def test_nothing_is_taken_where_nothing_was_given(path: Path, environ: dict[str, str]) -> None:
    assert take(environ, path) is None


def test_another_processs_sockets_are_left_alone(path: Path, given: socket.socket) -> None:
    with capture_logs() as logs:
        assert take({**MINE, "LISTEN_PID": "1"}, path, first_fd=given.fileno()) is None
    assert [(entry["log_level"], entry["pid"]) for entry in logs] == [("warning", "1")]
    assert given.getsockname() == str(path)


@pytest.mark.parametrize(
    "environ",
    [
        {**MINE, "LISTEN_FDS": "2"},
        {**MINE, "LISTEN_FDS": "0"},
        {**MINE, "LISTEN_FDS": "one"},
        {"LISTEN_PID": MINE["LISTEN_PID"]},
        {"LISTEN_FDS": "1"},
    ],
)
def test_not_exactly_one_is_an_error(
    path: Path, given: socket.socket, environ: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        take(environ, path, first_fd=given.fileno())


def test_a_tcp_socket_is_an_error(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        fd = handed_over(tcp)
        with pytest.raises(ConfigError, match="no Unix socket"):
            take(MINE, path, first_fd=fd)


def test_a_datagram_socket_is_an_error(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        fd = handed_over(datagrams)
        with pytest.raises(ConfigError, match="no stream socket"):
            take(MINE, path, first_fd=fd)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not tell")
def test_a_socket_that_does_not_listen_is_an_error(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as idle:
        fd = handed_over(idle)
        with pytest.raises(ConfigError, match="not listening"):
            take(MINE, path, first_fd=fd)


def test_what_is_no_socket_is_an_error(path: Path) -> None:
    path.write_text("")
    with path.open() as file, pytest.raises(ConfigError, match=f"descriptor {file.fileno()}"):
        take(MINE, path, first_fd=file.fileno())


def test_a_descriptor_that_is_not_open_is_an_error(path: Path) -> None:
    with pytest.raises(ConfigError, match="descriptor 9999"):
        take(MINE, path, first_fd=9999)


async def test_a_socket_where_no_hook_looks_is_told(path: Path, given: socket.socket) -> None:
    with capture_logs() as logs:
        endpoint = take(MINE, path.with_name("elsewhere"), first_fd=handed_over(given))
    assert endpoint
    endpoint.close()
    assert [(entry["log_level"], entry["bound"]) for entry in logs] == [("warning", str(path))]
