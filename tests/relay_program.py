"""The tests' relay as a process of its own, which keeps what it got in a file and may be killed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define

import fake_relay
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.storage.journal import Position
from kimiaepd.storage.log_reader import position_of
from live import Live


@define
class RelayProgram:
    """A relay on a port that stays its own.

    Attributes:
        file: where it keeps every line, in the order of arrival.
        port: where it listens, or will.
        process: it; None while it does not run.
    """

    file: Path
    port: int
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        """Start it on what it kept."""
        self.process = subprocess.Popen(
            [sys.executable, fake_relay.__file__, str(self.port), str(self.file)],
            stdout=subprocess.PIPE,
            text=True,
        )
        if wait:
            assert self.process.stdout is not None
            assert self.process.stdout.readline().startswith("ready")

    def kill(self) -> None:
        """SIGKILL, and the funeral."""
        process, self.process = self.process, None
        assert process is not None
        assert process.stdout is not None
        ended = process.poll()
        process.kill()
        process.wait()
        process.stdout.close()
        assert ended is None, "the relay ended by itself"

    def lines(self) -> list[bytes]:
        """The events of sessions that it kept, repetitions too."""
        return [line for line in self.file.read_bytes().splitlines() if b'"session":' in line]


@contextmanager
def relay_program(folder: Path) -> Iterator[RelayProgram]:
    """A relay that does not run yet; whatever runs at the end is killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    made = RelayProgram(folder / "relay.jsonl", port)
    try:
        yield made
    finally:
        if made.process:
            made.kill()


def logged_lines(live: Live) -> list[bytes]:
    """Every line of a daemon's log."""
    return [line for file in live.log_files() for line in file.read_bytes().splitlines()]


def first_arrivals(lines: list[bytes]) -> dict[JSON, bytes]:
    """What arrived, by id: each repetition must be the same bytes, and what is new in order."""
    first: dict[JSON, bytes] = {}
    last: dict[JSON, Position] = {}
    for line in lines:
        event: JSONObject = json.loads(line)
        before = first.setdefault(event["id"], line)
        assert before == line, "an event came again with other bytes"
        if before is not line:
            continue
        at, session = position_of(event), event["session"]
        assert at is not None
        assert at > last.get(session, (0, -1)), f"{event} came after {last[session]}"
        last[session] = at
    return first
