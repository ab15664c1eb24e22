"""`setup`, `up` and `doctor` as processes: signals, several at once, odd names, full disks."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

import pytest

from live import Live, scratch


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as made:
        made.environ["PATH"] = f"{made.home}/bin:/usr/bin:/bin"
        yield made


def kimi(live: Live, script: str) -> Path:
    program = live.home / "bin/kimi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_up_registers_for_the_kimi_it_asked_and_names_others(live: Live) -> None:
    program = kimi(live, "echo 2.1.0")
    other = live.home / ".kimi-code/bin/kimi"
    other.parent.mkdir(parents=True)
    other.write_bytes(program.read_bytes())
    other.chmod(0o755)
    ready = live.start("up")
    assert f"hooks in {live.where.kimi_home}/config.toml" in ready
    assert live.stop() == 0
    head, others = live.run("setup", "install").stdout.splitlines()
    assert f"20 hooks for kimi 2.1.0 ({program}), as they were; nothing changed" in head
    assert others.startswith(f"not asked: {other}; if you start one of those")


def opened(fifo: Path) -> BufferedReader:
    """The reading end, once somebody has written to it; never waits for one that does not come."""
    reader = os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb")
    assert select.select([reader], [], [], 20)[0]
    os.set_blocking(reader.fileno(), True)
    return reader


def assert_all_gone(reader: BufferedReader) -> None:
    """A pipe ends when the last that could write to it has gone, and not a minute later."""
    assert select.select([reader], [], [], 20)[0]
    assert reader.read() == b""


@pytest.mark.parametrize("command", [("up",), ("setup", "install")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_kimi_is_asked_leaves_no_kimi(
    live: Live, command: tuple[str, ...], number: signal.Signals
) -> None:
    alive = live.home / "alive"
    os.mkfifo(alive)
    kimi(live, f"exec 9> '{alive}'; echo $$ >&9; /bin/sleep 60 & wait")
    asker = subprocess.Popen(
        [sys.executable, "-m", "kimiaepd", *command],
        env=live.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    with asker, opened(alive) as reader:
        assert int(reader.readline()) > 0
        asker.send_signal(number)
        _, complaint = asker.communicate(timeout=20)
        assert_all_gone(reader)
    if number == signal.SIGINT:
        assert (asker.returncode, complaint.strip()) == (130, b"kimiaepd: interrupted")
    else:
        assert asker.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)
        assert complaint == b""
    assert not (live.where.kimi_home / "config.toml").exists()
    assert not live.where.socket.exists()


def test_up_registers_nothing_in_the_home_of_the_retired_program(live: Live) -> None:
    retired = live.home / ".kimi"
    retired.mkdir()
    done = live.run("up", "--home", str(retired), "--kimi-version", "2.1.0")
    assert done.returncode == 64
    assert done.stderr.startswith(f"kimiaepd: {retired} belongs to another program")
    assert not list(retired.iterdir())


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 130, b"kimiaepd: interrupted\n"),
        (signal.SIGTERM, 143, b""),
        (signal.SIGHUP, 129, b""),
    ],
)
def test_a_doctor_that_is_ended_leaves_no_kimi_and_no_traceback(
    live: Live, number: signal.Signals, status: int, said: bytes
) -> None:
    alive = live.home / "alive"
    os.mkfifo(alive)
    kimi(live, f"exec 9> '{alive}'; echo $$ >&9; /bin/sleep 60 & wait")
    asker = subprocess.Popen(
        [sys.executable, "-m", "kimiaepd", "doctor"],
        env=live.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    with asker, opened(alive) as reader:
        assert int(reader.readline()) > 0
        asker.send_signal(number)
        _, complaint = asker.communicate(timeout=20)
        assert_all_gone(reader)
    assert (asker.returncode, complaint) == (status, said)


@pytest.mark.parametrize("command", [("doctor",), ("setup", "show")])
def test_an_output_that_takes_nothing_is_one_line_and_a_failure(
    live: Live, command: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kimiaepd", *command],
            env=live.environ, stdout=full, stderr=subprocess.PIPE, timeout=30, check=False,
        )  # fmt: skip
    said = b"kimiaepd: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_reader_that_goes_early_is_no_clean_bill_of_health(live: Live) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kimiaepd", "doctor"],
            env=live.environ, stdout=writer, stderr=subprocess.PIPE, timeout=30, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", ["up", "setup install"])
def test_a_kimi_that_is_not_there_is_a_usage_error(live: Live, command: str) -> None:
    done = live.run(*command.split(), "--kimi", "/nowhere/kimi")
    assert done.returncode == 64
    (line,) = done.stderr.splitlines()
    assert "Invalid value for '--kimi': File '/nowhere/kimi' does not exist; see: " in line
    assert line.endswith(f"kimiaepd {command} --help")


def test_a_run_in_another_home_says_how_to_register_there(live: Live) -> None:
    (live.home / "other home").mkdir()
    assert "no hooks yet" in live.start("run", "--home", str(live.home / "other home"))
    live.stop()
    complaint = (live.home / "stderr").read_text()
    assert f"run: kimiaepd setup install --home '{live.home}/other home'" in complaint


def test_a_home_that_the_terminal_cannot_spell_is_a_home(live: Live) -> None:
    home = live.home / os.fsdecode(b"\xff \xc3\xa9")
    live.environ |= {"KIMI_CODE_HOME": str(home), "PYTHONIOENCODING": "utf-8:strict"}
    for words in (["install", "--dry-run"], ["install"], ["show"], ["uninstall"]):
        done = live.run("setup", *words)
        assert done.returncode == 0, done.stderr
        assert "\\udcff" in done.stdout
    assert (home / "config.toml").read_bytes() == b""


def test_several_installs_at_once_leave_one_set(live: Live) -> None:
    config = live.where.kimi_home / "config.toml"
    config.parent.mkdir()
    config.write_text("a = 1\n")
    for words, hooks in ((["install", "--kimi-version", "2.1.0"], 20), (["uninstall"], 0)):
        command = [sys.executable, "-m", "kimiaepd", "setup", *words]
        several = [
            subprocess.Popen(command, env=live.environ, stdout=subprocess.DEVNULL) for _ in range(3)
        ]
        assert [one.wait(30) for one in several] == [0, 0, 0]
        assert config.read_text().count("[[hooks]]") == hooks
        assert live.where.installed_shim.exists() == bool(hooks)
        left = {file.name for file in config.parent.iterdir() if file.suffix != ".bak"}
        assert left == {"config.toml"}
    assert config.read_text() == "a = 1\n"
