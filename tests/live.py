"""A real daemon in a process of its own, on a scratch home under /tmp; and ways to send it hooks.

`Live.start` waits for the ready line; `Live.ask` is a hook as a bare socket client sends it, fast;
`Live.shim` runs the whole registered command, as the vendor does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import define

from kimiaepd import paths, shim
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.setup.command import OBSERVED, Command


@define
class Live:
    """One instance: its places, and the daemon that runs on them now.

    Attributes:
        home: its HOME.
        environ: what the daemon is started with.
        process: the daemon; None while none runs.
    """

    home: Path
    environ: dict[str, str]
    process: subprocess.Popen[str] | None = None

    @property
    def where(self) -> paths.Paths:
        """All its places."""
        return paths.resolve(self.environ)

    def configure(self, text: str) -> None:
        """Write its settings file."""
        self.where.config_file.parent.mkdir(parents=True, exist_ok=True)
        self.where.config_file.write_text(text, encoding="utf-8")

    def start(self, *arguments: str) -> str:
        """Start the daemon; gives back its ready line."""
        command = [sys.executable, "-m", "kimiaepd", *(arguments or ("run",))]
        with (self.home / "stderr").open("a") as stderr:
            self.process = subprocess.Popen(
                command, env=self.environ, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "ready" in line:
                return line
        raise AssertionError(f"no ready line; stderr: {(self.home / 'stderr').read_text()}")

    def run(self, *arguments: str, timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a kimiaepd command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "kimiaepd", *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def kill(self) -> None:
        """SIGKILL, and the funeral."""
        self._end(signal.SIGKILL)

    def stop(self, timeout: float = 10.0) -> int:
        """SIGTERM; gives back the exit status."""
        return self._end(signal.SIGTERM, timeout)

    def wait(self, timeout: float = 10.0) -> int:
        """Wait for the daemon's end; gives back its exit status."""
        process, self.process = self.process, None
        assert process is not None
        assert process.stdout is not None
        with process.stdout:
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

    def _end(self, number: signal.Signals, timeout: float = 10.0) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait(timeout)

    def ask(self, payload: Mapping[str, JSON], *, timeout: float = 5.0) -> bytes:
        """One hook over the socket; the whole answer of the daemon."""
        return self.ask_raw(json.dumps(payload).encode(), timeout=timeout)

    def ask_raw(self, body: bytes, *, timeout: float = 5.0) -> bytes:
        """One hook of any bytes over the socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout)
            client.connect(str(self.where.socket))
            client.sendall(b"AEPD1 hook %d %d\n%b" % (time.time_ns(), len(body), body))
            answer = b""
            while chunk := client.recv(65536):
                answer += chunk
            return answer

    def shim(
        self, body: bytes, *, seconds: float = OBSERVED.seconds
    ) -> subprocess.CompletedProcess[bytes]:
        """One hook through the registered command, as the vendor runs it."""
        command = Command(
            socket=str(self.where.socket),
            shim=shim.__file__,
            python=os.path.realpath(sys.executable),
            seconds=seconds,
        )
        return subprocess.run(
            ["/bin/sh", "-c", command.render()],
            input=body,
            env={},
            capture_output=True,
            timeout=20,
            check=False,
        )

    def log_files(self) -> list[Path]:
        """The log's files."""
        return sorted(self.where.log_dir.glob("*.jsonl"))

    def events(self, session: str) -> list[JSONObject]:
        """What the log of a session with a plain name holds."""
        file = self.where.log_dir / f"{session}.jsonl"
        return [json.loads(line) for line in file.read_bytes().splitlines()]


def bare_seconds() -> float:
    """How long this machine takes right now to start and end an interpreter that does nothing."""
    began = time.monotonic()
    subprocess.run([os.path.realpath(sys.executable), "-I", "-S", "-c", ""], check=True)
    return time.monotonic() - began


@contextmanager
def scratch(**environ: str) -> Iterator[Live]:
    """A scratch instance; whatever still runs at the end is killed."""
    home = Path(tempfile.mkdtemp(prefix="kt", dir="/tmp"))
    live = Live(home, {"HOME": str(home), "PATH": os.environ["PATH"], **environ})
    try:
        yield live
    finally:
        if live.process:
            live.kill()
        shutil.rmtree(home, ignore_errors=True)
