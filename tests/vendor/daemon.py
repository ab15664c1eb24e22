"""The daemon under test, as its user has it: `kimiaepd` in a process of its own.

And one that is none: a listener that answers as it was told, for what a healthy daemon never does.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio
from attrs import define, field

from kimiaepd.hook_socket.client import request
from vendor.kimi import Kimi
from vendor.place import Place
from vendor.waiting import until

PROGRAM = Path(sys.executable).with_name("kimiaepd")
COMMAND_DEADLINE_S = 60
STATUS_DEADLINE_S = 10
STOP_DEADLINE_S = 20


def environ(kimi: Kimi, place: Place) -> Mapping[str, str]:
    """The CLI's environment and our own variables; the hooks themselves get only the CLI's."""
    return {
        **place.environ(kimi.programs),
        "KIMIAEPD_STATE_DIR": str(place.state_dir),
        "AEP_LOG_DIR": str(place.log_dir),
    }


def ask(kimi: Kimi, place: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `kimiaepd` once, as the place's user does: with this version's `kimi` on PATH."""
    return subprocess.run(
        [PROGRAM, *arguments],
        env=environ(kimi, place),
        cwd=place.root,
        capture_output=True,
        text=True,
        timeout=COMMAND_DEADLINE_S,
        check=False,
    )


def register(kimi: Kimi, place: Place, config: bytes) -> bytes:
    """The config.toml that `kimiaepd setup install` makes of this one, for the `kimi` on PATH."""
    place.renew(config)
    done = ask(kimi, place, "setup", "install")
    assert done.returncode == 0, done.stderr
    assert kimi.version in done.stdout, done.stdout
    return place.config_file.read_bytes()


def hooks_taken(place: Place) -> int:
    """How many hooks the running daemon has taken in since its start."""
    counted = trio.run(partial(request, place.socket, "status", timeout=STATUS_DEADLINE_S))["hooks"]
    assert isinstance(counted, int)
    return counted


@contextmanager
def running(kimi: Kimi, place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """`kimiaepd run`, ready; stopped at the end by SIGTERM, and that it stops is part of it.

    A test may kill it, and nothing else does.
    """
    out, err = place.root / "daemon.out", place.root / "daemon.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [PROGRAM, "run"],
            env=environ(kimi, place),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )

    def looked() -> bool:
        assert process.poll() is None, f"the daemon ended: {err.read_text()}"
        return "ready" in out.read_text()

    with process:
        try:
            until(looked, "the daemon's ready line")
            yield process
        finally:
            # A test may have stopped it with SIGSTOP.
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert process.returncode in (0, -signal.SIGKILL), err.read_text()
    assert "Traceback" not in err.read_text(), err.read_text()


@define
class Impostor:
    """Something that listens on the daemon's socket and answers each request with fixed bytes.

    Attributes:
        heard: what was sent to it, one entry a connection.
    """

    place: Place
    answer: bytes
    heard: list[bytes] = field(factory=list)

    @contextmanager
    def listening(self) -> Iterator[Impostor]:
        self.place.state_dir.mkdir(exist_ok=True)
        self.place.socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.place.socket))
            listener.listen(64)
            thread = threading.Thread(target=self._serve, args=(listener,))
            thread.start()
            try:
                yield self
            finally:
                # shutdown, because a close alone does not wake an accept in another thread.
                with contextlib.suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                thread.join()
                self.place.socket.unlink()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                peer.settimeout(5)
                self.heard.append(_request(peer))
                peer.sendall(self.answer)


def _request(peer: socket.socket) -> bytes:
    """One request, read to its announced length."""
    said = b""
    while chunk := peer.recv(1 << 16):
        said += chunk
        header, newline, body = said.partition(b"\n")
        if newline and len(body) >= int(header.split()[-1]):
            break
    return said
