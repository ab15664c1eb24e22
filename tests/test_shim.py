"""The hook program as a real process, run by the very command that setup registers.

Whatever is wrong on either side: exit status 0, zero bytes on stdout and stderr, in time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from attrs import define, field

import kimiaepd
from kimiaepd.hook_socket.wire import NEED_DATA, Request, RequestReader, encode_reply
from live import bare_seconds

PYTHON = os.path.realpath(sys.executable)
SHIM = Path(kimiaepd.__file__).with_name("shim.py")
PAYLOAD = b'{"hook_event_name":"PreToolUse","session_id":"s1"}'
SECONDS = 0.25
SLACK = 1.0
"""What a hook may take beyond its deadline and an interpreter that does nothing on this machine."""

Script = Callable[[socket.socket], None]


def hook_command(
    path: Path, seconds: float = SECONDS, *, shim: Path = SHIM, python: str = PYTHON
) -> str:
    """The command as it is registered in config.toml."""
    return (
        f"trap '' TERM; [ -S '{path}' ] && [ -f '{shim}' ] && [ -r '{shim}' ] && [ -x '{python}' ]"
        f" || exit 0; exec '{python}' -I -S '{shim}' '{path}' {seconds}"
    )


@define
class Ran:
    """How a hook ended, and how long it took."""

    status: int
    out: bytes
    err: bytes
    seconds: float


def run_hook(command: str, payload: bytes = PAYLOAD, env: dict[str, str] | None = None) -> Ran:
    """Run a hook as the vendor does; an unread stdin would raise BrokenPipeError here."""
    began = time.monotonic()
    with subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
    ) as hook:
        assert hook.stdin
        assert hook.stdout
        assert hook.stderr
        hook.stdin.write(payload)
        hook.stdin.close()
        out, err = hook.stdout.read(), hook.stderr.read()
    return Ran(hook.returncode, out, err, time.monotonic() - began)


def assert_silent(ran: Ran, within: float = SECONDS) -> None:
    """Exit 0, zero bytes, in time: the agent noticed nothing."""
    assert (ran.status, ran.out, ran.err) == (0, b"", b"")
    assert ran.seconds < within + bare_seconds() + SLACK


@pytest.fixture
def path() -> Iterator[Path]:
    """A place for a socket, short enough on every platform."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        yield Path(folder, "s")


@define
class Daemon:
    """A daemon of one connection that keeps what it was sent."""

    requests: list[Request] = field(factory=list)
    errors: list[OSError] = field(factory=list)

    def converse(self, connection: socket.socket, script: Script) -> None:
        """Read one frame, then do what the script says."""
        reader = RequestReader(frame_bytes=64 << 20)
        with connection:
            connection.settimeout(10)
            try:
                while chunk := connection.recv(1 << 16):
                    said = reader.feed(chunk)
                    if said is not NEED_DATA:
                        assert isinstance(said, Request)
                        self.requests.append(said)
                        break
                script(connection)
            except OSError as error:
                self.errors.append(error)


@contextmanager
def listening(path: Path, backlog: int = 8) -> Iterator[socket.socket]:
    """A listening socket at the path; nobody accepts."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(backlog)
        yield listener


@contextmanager
def answering(path: Path, script: Script) -> Iterator[Daemon]:
    """A daemon that takes one hook and answers as the script says."""
    daemon = Daemon()
    with listening(path) as listener:
        listener.settimeout(10)
        thread = threading.Thread(
            target=lambda: daemon.converse(listener.accept()[0], script), daemon=True
        )
        thread.start()
        yield daemon
        thread.join(timeout=10)
        assert not thread.is_alive()


def say(*pieces: bytes) -> Script:
    """Answer with these pieces, then hang up."""

    def script(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)

    return script


def until_gone(connection: socket.socket) -> None:
    """Hold the hook until it goes."""
    while connection.recv(1 << 16):
        pass


def test_the_payload_arrives_whole_and_the_reply_is_written_out(path: Path) -> None:
    reply = b'{"message":"hold on"}'
    payload = b'{"half":"\\ud83d", "raw":"\xff\xfe\x00"}'
    before = time.time_ns()
    with answering(path, say(encode_reply(reply)[:4], encode_reply(reply)[4:])) as daemon:
        ran = run_hook(hook_command(path), payload)
    assert (ran.status, ran.out, ran.err) == (0, reply, b"")
    (request,) = daemon.requests
    assert (request.kind, request.body) == ("hook", payload)
    assert before < request.started_ns < time.time_ns()


@pytest.mark.parametrize("payload", [b"", b"[", b"\xff" * 70_000])
def test_what_stdin_says_is_not_looked_at(path: Path, payload: bytes) -> None:
    with answering(path, say(b"0\n")) as daemon:
        assert_silent(run_hook(hook_command(path), payload))
    assert daemon.requests[0].body == payload


@pytest.mark.parametrize(
    "env",
    [{}, {"LC_ALL": "C", "PYTHONIOENCODING": "cp932", "PYTHONHOME": "/nowhere", "PATH": "/x"}],
)
def test_the_environment_changes_nothing(path: Path, env: dict[str, str]) -> None:
    reply = '{"message":"ünï"}'.encode()
    odd = path.with_name("ü s")
    with answering(odd, say(encode_reply(reply))) as daemon:
        ran = run_hook(hook_command(odd), PAYLOAD, env)
    assert (ran.status, ran.out, ran.err) == (0, reply, b"")
    assert daemon.requests[0].body == PAYLOAD


@pytest.mark.parametrize("megabytes", [8, 40])
def test_a_huge_payload_arrives(path: Path, megabytes: int) -> None:
    payload = os.urandom(1 << 20) * megabytes
    with answering(path, say(b"0\n")) as daemon:
        assert_silent(run_hook(hook_command(path, 5), payload), within=5)
    assert daemon.requests[0].body == payload


def test_a_reply_larger_than_a_pipe_is_written_whole(path: Path) -> None:
    reply = b'{"message":"' + b"m" * 300_000 + b'"}'
    with answering(path, say(encode_reply(reply))):
        assert run_hook(hook_command(path, 5)).out == reply


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(say(b"0\n"), id="nothing to say"),
        pytest.param(say(b"2\n{}"), id="an empty object"),
        pytest.param(say(b"5\n{ }\r\n"), id="an empty object in white space"),
        pytest.param(say(b"2\n\n "), id="white space"),
        pytest.param(say(), id="hangs up"),
        pytest.param(say(b"20"), id="dies in the header"),
        pytest.param(say(b'20\n{"message":'), id="dies in the body"),
        pytest.param(say(b'5\n{"message":"more than announced"}'), id="too much"),
        pytest.param(say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), id="another protocol"),
        pytest.param(say(b"\n\n\n"), id="no length"),
        pytest.param(say(b"-1\nx"), id="a negative length"),
        pytest.param(say(b"+4\nabcd"), id="a sign"),
        pytest.param(say(b"1_0\n0123456789"), id="an underscore"),
        pytest.param(say(b"9" * 6000 + b"\n"), id="a length beyond reason"),
        pytest.param(say(b"x" * (3 << 20)), id="a flood"),
        pytest.param(until_gone, id="never answers"),
    ],
)
def test_every_odd_reply_is_silence(path: Path, script: Script) -> None:
    with answering(path, script):
        assert_silent(run_hook(hook_command(path)))


def test_the_deadline_is_for_the_whole_reply_not_for_each_read(path: Path) -> None:
    def drip(connection: socket.socket) -> None:
        with suppress(BrokenPipeError):
            while True:
                connection.sendall(b"1")
                time.sleep(0.05)

    with answering(path, drip):
        assert_silent(run_hook(hook_command(path)))


def test_a_late_reply_is_not_written(path: Path) -> None:
    def late(connection: socket.socket) -> None:
        until_gone(connection)
        connection.sendall(encode_reply(b'{"message":"late"}'))

    with answering(path, late) as daemon:
        assert_silent(run_hook(hook_command(path)))
    assert [type(error) for error in daemon.errors] == [BrokenPipeError]


def test_a_hold_is_as_long_as_the_command_says(path: Path) -> None:
    def hold(connection: socket.socket) -> None:
        time.sleep(0.6)
        connection.sendall(encode_reply(b"deny"))

    with answering(path, hold):
        assert run_hook(hook_command(path, 5)).out == b"deny"


def test_without_a_daemon_the_guard_ends_it(path: Path) -> None:
    assert_silent(run_hook(hook_command(path), b""), within=0)


def test_a_dead_socket_is_silence_and_stdin_is_read_all_the_same(path: Path) -> None:
    with listening(path):
        pass
    assert_silent(run_hook(hook_command(path), b"x" * (8 << 20)))


def test_a_daemon_that_never_reads_does_not_hold_a_large_payload(path: Path) -> None:
    with listening(path):
        assert_silent(run_hook(hook_command(path), b"x" * (8 << 20)))


def test_a_full_backlog_does_not_hold(path: Path) -> None:
    with listening(path, backlog=0), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(path))
        assert_silent(run_hook(hook_command(path)))


def test_a_daemon_that_hangs_up_at_once_breaks_no_pipe(path: Path) -> None:
    with listening(path) as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        assert_silent(run_hook(hook_command(path), b"x" * (8 << 20)))
        thread.join()


def test_a_slow_writer_is_not_cut(path: Path) -> None:
    payload = PAYLOAD * 2
    with answering(path, say(b"0\n")) as daemon:
        hook = subprocess.Popen(
            ["/bin/sh", "-c", hook_command(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert hook.stdin
        for start in range(0, len(payload), 3):
            hook.stdin.write(payload[start : start + 3])
            hook.stdin.flush()
            time.sleep(1.2 / (len(payload) / 3))
        assert hook.communicate(timeout=10)[0] == b""
    assert daemon.requests[0].body == payload


def test_a_writer_that_never_closes_is_cut_and_what_came_is_sent(path: Path) -> None:
    # The limit is in the source; the test runs a copy that has less patience.
    source = SHIM.read_text()
    hasty = path.with_name("shim.py")
    hasty.write_text(source.replace("STDIN_SECONDS = 5.0", "STDIN_SECONDS = 0.3"))
    assert hasty.read_text() != source
    reply = encode_reply(b"heard")
    with answering(path, say(reply)) as daemon:
        began = time.monotonic()
        hook = subprocess.Popen(
            ["/bin/sh", "-c", hook_command(path, shim=hasty)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert hook.stdin
        assert hook.stdout
        assert hook.stderr
        hook.stdin.write(PAYLOAD)
        hook.stdin.flush()
        assert hook.wait(timeout=10) == 0
        took = time.monotonic() - began
        assert 0.3 < took < 0.3 + SECONDS + bare_seconds() + SLACK
        assert (hook.stdout.read(), hook.stderr.read()) == (b"heard", b"")
        for pipe in (hook.stdin, hook.stdout, hook.stderr):
            pipe.close()
    assert daemon.requests[0].body == PAYLOAD


@pytest.mark.parametrize(
    "arguments", ["", "{path}", "{path} x", "{path} nan", "{path} inf", "{path} 1 2", "'' 1"]
)
def test_bad_arguments_are_silence_after_stdin_was_read(path: Path, arguments: str) -> None:
    with listening(path):
        command = f"exec '{PYTHON}' -I -S '{SHIM}' {arguments.format(path=path)}"
        assert_silent(run_hook(command, b"x" * (1 << 20)))


@pytest.mark.parametrize("seconds", ["0", "-1"])
def test_no_time_at_all_is_still_a_deadline(path: Path, seconds: str) -> None:
    with listening(path):
        command = f"exec '{PYTHON}' -I -S '{SHIM}' {path} {seconds}"
        assert_silent(run_hook(command), within=0)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_are_silence(path: Path, closed: str) -> None:
    with answering(path, say(b"0\n")) as daemon:
        assert_silent(run_hook(hook_command(path) + f" {closed}", b""))
    assert len(daemon.requests) == 1


def test_a_reply_for_a_closed_stdout_goes_nowhere(path: Path) -> None:
    with answering(path, say(encode_reply(b"answer"))):
        assert_silent(run_hook(hook_command(path) + " >&-"))


@pytest.mark.skipif(sys.platform != "linux", reason="macOS knows no limit of address space")
def test_what_memory_cannot_hold_is_read_and_dropped(path: Path) -> None:
    with answering(path, say(b"0\n")) as daemon:
        command = f"ulimit -v 40000; {hook_command(path)}"
        assert_silent(run_hook(command, b"x" * (40 << 20)))
    assert daemon.requests[0].body == b""


@contextmanager
def held(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Daemon, threading.Event]]:
    """A hook that a daemon holds until the event is set, or until it goes."""
    arrived, let_go = threading.Event(), threading.Event()

    def hold(connection: socket.socket) -> None:
        arrived.set()
        let_go.wait(10)
        connection.sendall(encode_reply(b"deny"))

    with (
        answering(path, hold) as daemon,
        subprocess.Popen(
            ["/bin/sh", "-c", hook_command(path, 30)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as hook,
    ):
        assert hook.stdin
        hook.stdin.write(PAYLOAD)
        hook.stdin.close()
        hook.stdin = None
        assert arrived.wait(10)
        yield hook, daemon, let_go
        let_go.set()


def test_the_guard_makes_it_outlive_a_term(path: Path) -> None:
    with held(path) as (hook, _, let_go):
        hook.send_signal(signal.SIGTERM)
        let_go.set()
        assert hook.communicate(timeout=10) == (b"deny", b"")
        assert hook.returncode == 0


def test_an_interrupt_ends_it_in_silence(path: Path) -> None:
    with held(path) as (hook, daemon, let_go):
        hook.send_signal(signal.SIGINT)
        assert hook.communicate(timeout=10) == (b"", b"")
        assert hook.returncode == 0
        let_go.set()
    assert len(daemon.requests) == 1


def test_a_kill_shows_the_daemon_that_it_is_gone(path: Path) -> None:
    gone = threading.Event()
    arrived = threading.Event()

    def watch(connection: socket.socket) -> None:
        arrived.set()
        until_gone(connection)
        gone.set()

    with (
        answering(path, watch),
        subprocess.Popen(
            ["/bin/sh", "-c", hook_command(path, 30)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as hook,
    ):
        assert arrived.wait(10)
        assert not gone.is_set()
        hook.kill()
        assert gone.wait(10)


def remove(file: Path) -> None:
    """Delete it."""
    file.unlink()


def corrupt(file: Path) -> None:
    """Cut it in the middle of a word, as a full disk would."""
    file.write_text(SHIM.read_text()[:1000] + "\ndef (")


def lock_away(file: Path) -> None:
    """Take every permission away."""
    file.chmod(0)


def folder_instead(file: Path) -> None:
    """Put a folder in its place."""
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("part", "harm"),
    [
        ("shim.py", remove),
        ("shim.py", corrupt),
        ("shim.py", lock_away),
        ("shim.py", folder_instead),
        ("python", remove),
        ("python", lock_away),
        ("python", folder_instead),
    ],
)
def test_a_harmed_install_never_exits_2(
    path: Path, part: str, harm: Callable[[Path], None]
) -> None:
    shim, python = path.with_name("shim.py"), path.with_name("python")
    shim.write_bytes(SHIM.read_bytes())
    python.write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    python.chmod(0o700)
    harm(path.with_name(part))
    with listening(path):
        ran = run_hook(hook_command(path, shim=shim, python=str(python)), b"")
    assert ran.status != 2
    assert ran.out == b""


def test_it_imports_one_module_beyond_the_bare_interpreter() -> None:
    def modules(*arguments: str) -> set[str]:
        ran = subprocess.run(
            [PYTHON, "-I", "-S", "-X", "importtime", *arguments],
            input=b"",
            capture_output=True,
            check=True,
        )
        return {line.rsplit(b"|")[-1].strip().decode() for line in ran.stderr.splitlines()}

    extra = modules(str(SHIM), "/nowhere", "1") - modules("-c", "pass")
    assert extra - {"posix", "time", "_signal"} == {"_socket"}


def test_it_stays_short() -> None:
    assert len(SHIM.read_text().splitlines()) < 100
