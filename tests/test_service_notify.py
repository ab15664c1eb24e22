"""What a service manager hears of the daemon: a datagram a word, and nothing that can hurt."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kimiaepd.service_notify import READY, STOPPING, notify
from live import scratch

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="abstract addresses are Linux's own")


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    """A service manager that listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(10)
        listener.bind(address)
        yield listener


@pytest.fixture
def path() -> Iterator[str]:
    """A place for a socket, short enough on every platform."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        yield str(Path(folder, "n"))


def test_a_word_arrives_as_one_datagram(path: str) -> None:
    with manager(path) as listener:
        notify({"NOTIFY_SOCKET": path}, READY)
        notify({"NOTIFY_SOCKET": path}, STOPPING)
        assert listener.recv(100) == b"READY=1"
        assert listener.recv(100) == b"STOPPING=1"


@LINUX
def test_an_abstract_address_is_meant_by_an_at_sign() -> None:
    name = f"kimiaepd-test-{os.getpid()}"
    with manager(f"\0{name}") as listener:
        notify({"NOTIFY_SOCKET": f"@{name}"}, READY)
        assert listener.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative", "/nowhere/at/all", "@nobody"])
def test_an_address_where_nobody_listens_is_no_error(address: str) -> None:
    notify({"NOTIFY_SOCKET": address}, READY)
    notify({}, READY)


def test_a_dead_socket_and_a_path_too_long_are_no_error(path: str) -> None:
    with manager(path):
        pass
    notify({"NOTIFY_SOCKET": path}, READY)
    notify({"NOTIFY_SOCKET": f"/{'x' * 200}"}, READY)


def test_a_manager_that_does_not_read_holds_nothing_up(path: str) -> None:
    with manager(path) as listener:
        for _ in range(2000):  # more than any queue of datagrams holds
            notify({"NOTIFY_SOCKET": path}, READY)
        assert listener.recv(100) == b"READY=1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_daemon_says_when_it_is_ready_and_when_it_stops(
    path: str, number: signal.Signals
) -> None:
    with manager(path) as listener, scratch(NOTIFY_SOCKET=path) as live:
        live.start()
        assert listener.recv(100) == b"READY=1"
        assert live.ask({"hook_event_name": "Stop", "session_id": "s"}) == b"0\n"
        assert live.process
        live.process.send_signal(number)
        assert listener.recv(100) == b"STOPPING=1"
        assert live.wait() == 0


def test_the_daemon_starts_where_the_manager_is_gone() -> None:
    with scratch(NOTIFY_SOCKET="/nowhere/at/all") as live:
        live.start()
        assert live.stop() == 0
