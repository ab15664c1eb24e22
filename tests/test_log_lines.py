"""What the daemon says on stderr never holds it up and never ends it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import structlog

from kimiaepd.log_lines import LONGEST_VALUE, configure, tame
from live import Live, scratch


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as made:
        yield made


def start(live: Live, stderr: int | IO[bytes]) -> None:
    """Start the daemon with this stderr, and wait until it answers."""
    live.process = subprocess.Popen(
        [sys.executable, "-m", "kimiaepd", "run", "--verbose"],
        env=live.environ,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    assert live.process.stdout
    assert "ready" in live.process.stdout.readline()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_traceback_shows_no_value(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    try:
        configure(verbose=False)
        fail_with("a-token-of-ours")
    finally:
        structlog.configure(**before)
    said = capfd.readouterr().err
    assert "a defect" in said
    assert "a-token-of-ours" not in said


def fail_with(token: str) -> None:
    try:
        refuse({"Authorization": token})
    except RuntimeError:
        structlog.get_logger().exception("it failed")


def refuse(headers: dict[str, str]) -> None:
    raise RuntimeError(f"a defect at {len(headers)} header")


def make_it_speak(live: Live) -> None:
    for body in (b"[]", b"", b"{", b"7"):
        assert live.ask_raw(body) == b"0\n"


def test_a_stderr_on_a_full_disk_ends_nothing(live: Live) -> None:
    with Path("/dev/full").open("wb") as full:
        start(live, full)
    make_it_speak(live)
    assert live.stop() == 0


def test_a_stderr_whose_reader_has_gone_ends_nothing(live: Live) -> None:
    reader, writer = os.pipe()
    start(live, writer)
    os.close(writer)
    os.close(reader)
    make_it_speak(live)
    assert live.stop() == 0


def test_a_stderr_that_nobody_reads_holds_nothing_up(live: Live) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"x" * 4096):
            pass
    os.set_blocking(writer, True)
    start(live, writer)
    os.close(writer)
    make_it_speak(live)
    assert live.stop() == 0
    os.close(reader)


def test_a_ready_line_that_nobody_takes_ends_nothing(live: Live) -> None:
    with Path("/dev/full").open("wb") as full:
        live.process = subprocess.Popen(
            [sys.executable, "-m", "kimiaepd", "run"],
            env=live.environ,
            stdout=full,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    deadline = time.monotonic() + 10
    while not live.where.socket.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert live.ask({"hook_event_name": "SessionStart"}) == b"0\n"
    live.process.terminate()
    assert live.process.wait(10) == 0
    live.process = None


def test_closed_standard_streams_end_nothing_and_are_nobody_elses(live: Live) -> None:
    command = ["sh", "-c", 'exec "$0" -m kimiaepd run <&- >&- 2>&-', sys.executable]
    live.process = subprocess.Popen(command, env=live.environ, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 10
    while not live.where.socket.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    make_it_speak(live)
    pid = live.process.pid
    assert [str(Path(f"/proc/{pid}/fd/{n}").readlink()) for n in range(3)] == ["/dev/null"] * 3
    assert live.stop() == 0
    assert "ready" not in (live.where.state_dir / "daemon.lock").read_text()


def test_a_log_that_cannot_be_opened_again_ends_nothing(live: Live) -> None:
    live.start()
    live.ask({"hook_event_name": "SessionStart", "session_id": "s"})
    live.where.log_dir.rename(live.home / "moved")
    live.where.log_dir.write_text("in the way")
    assert live.process
    live.process.send_signal(1)
    deadline = time.monotonic() + 10
    while "not opened again" not in (live.home / "stderr").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    live.where.log_dir.unlink()
    assert live.ask({"hook_event_name": "SessionStart", "session_id": "t"}) == b"0\n"
    assert [event["type"] for event in live.events("t")] == ["session.started"]
    assert live.stop() == 0


def test_a_terminal_is_told_no_control_characters_and_no_novels() -> None:
    assert tame("a\x1b]0;title\x07b\nc") == "a\ufffd]0;title\ufffdb c"
    assert len(tame("x" * 10_000)) == LONGEST_VALUE
