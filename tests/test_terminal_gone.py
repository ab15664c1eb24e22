"""A daemon whose terminal is closed stops; one that is told to reload goes on."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from live import Live, scratch


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as made:
        yield made


def in_a_terminal(live: Live) -> int:
    """Start the daemon as the session leader of a terminal; gives back the terminal's other end."""
    ours, theirs = pty.openpty()
    live.process = subprocess.Popen(
        [sys.executable, "-m", "kimiaepd", "run"],
        env=live.environ,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads here
    )
    os.close(theirs)
    assert live.process.stdout
    assert "ready" in live.process.stdout.readline()
    return ours


def test_a_closed_terminal_is_a_stop(live: Live) -> None:
    os.close(in_a_terminal(live))
    assert live.wait() == 0
    assert not live.where.socket.exists()


def test_a_hangup_by_hand_is_a_reload(live: Live) -> None:
    terminal = in_a_terminal(live)
    assert live.process
    live.process.send_signal(signal.SIGHUP)
    said = b""
    deadline = time.monotonic() + 10
    while b"reloaded" not in said:
        assert time.monotonic() < deadline
        said += os.read(terminal, 4096)
    assert live.ask({"hook_event_name": "SessionStart"}) == b"0\n"
    os.close(terminal)
    assert live.wait() == 0
