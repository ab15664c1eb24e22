"""A program that is asked ends with us, whatever ends us and whenever."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from io import BufferedReader
from pathlib import Path

import pytest

from kimiaepd.setup import leashed
from kimiaepd.setup.leashed import output

LONG = 60.0
"""Seconds that no test here waits for."""


def test_what_it_says_and_what_of_it_does_not_count() -> None:
    assert output(["/bin/sh", "-c", "echo hello; echo oh >&2"], {}, LONG) == b"hello\n"
    assert output(["/bin/sh", "-c", "echo hello; exit 1"], {}, LONG) == b""
    assert output(["/nowhere"], {}, LONG) == b""


def test_a_thread_can_ask_too() -> None:
    said: list[bytes] = []
    thread = threading.Thread(target=lambda: said.append(output(["/bin/echo", "x"], {}, LONG)))
    thread.start()
    thread.join()
    assert said == [b"x\n"]


def test_the_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in leashed._ENDINGS]
    output(["/bin/echo"], {}, LONG)
    assert [signal.getsignal(number) for number in leashed._ENDINGS] == before


def assert_all_gone(reader: BufferedReader) -> None:
    """A pipe ends when the last that could write to it has gone, and not a minute later."""
    assert select.select([reader], [], [], 20)[0]
    assert reader.read() == b""


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP), (signal.SIGINT, 130)],
)
def test_a_signal_ends_the_program_and_then_us(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    # A child that holds the pipe, as a wrapper script's would.
    script = f"exec 9> '{alive}'; echo started >&9; /bin/sleep 60 & wait"
    asking = (
        "import sys\nfrom kimiaepd.setup.leashed import output\n"
        "try: output(['/bin/sh', '-c', sys.argv[1]], {}, 60)\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    asker = subprocess.Popen([sys.executable, "-c", asking, script])
    with alive.open("rb") as reader:
        assert reader.readline() == b"started\n"
        asker.send_signal(number)
        assert asker.wait(LONG) == status
        assert_all_gone(reader)


def test_a_signal_that_comes_while_it_starts_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen
    started: list[subprocess.Popen[bytes]] = []

    def signalled(*arguments: object, **more: object) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **more))  # type: ignore[call-overload]
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", signalled)
    with pytest.raises(KeyboardInterrupt):
        output(["/bin/sleep", "5"], {}, LONG)
    assert started[0].returncode == -signal.SIGKILL
