"""A relay that is away for 200 000 events: memory stays where it was, and then it gets them all.

    python tests/test_relay_outage.py FOLDER PORT

is the process whose memory is looked at: a log and its delivery, and nothing of a daemon beside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from fake_relay import FakeRelay
from relay_program import first_arrivals, relay_program
from test_relay_sender import post

EVENTS, MORE = 200_000, 5_000
SESSIONS, BATCH = 40, 10
FILLER = 190
"""Bytes of an event's payload, so that a line has 400."""

MOST_KIB = 32 << 10


async def log_and_deliver(folder: Path, port: int) -> None:
    """Log while nobody listens, then until everything was delivered; say how memory stands."""
    async with post(folder, FakeRelay(port=port), rotate_bytes=1 << 20) as p:
        await until(lambda: p.sender.status()["link"] == "down")
        say("before", "VmRSS")
        for number in range(EVENTS // BATCH):
            p.log(f"s{number % SESSIONS}", BATCH, FILLER)
            await trio.lowlevel.checkpoint()
        say("logged", "VmHWM")
        await until(lambda: p.sender.is_up)
        for number in range(MORE // BATCH):
            p.log(f"s{number % (2 * SESSIONS)}", BATCH, FILLER)
            await trio.sleep(0.001)
        await until(lambda: p.sender.outbox.is_settled)
        say("delivered", "VmHWM")


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(240):
        while not condition():  # noqa: ASYNC110 - what is asked here tells nobody that it changed
            await trio.sleep(0.01)


def say(when: str, what: str) -> None:
    """Print how much memory this process has, or had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith(what))
    os.write(1, json.dumps({"when": when, "kib": kib}).encode() + b"\n")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a process's peak of memory is read from /proc")
def test_a_long_outage_takes_no_memory_and_loses_nothing(tmp_path: Path) -> None:
    with relay_program(tmp_path) as relay:
        driver = subprocess.Popen(
            [sys.executable, __file__, str(tmp_path), str(relay.port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        kib = {}
        with driver:
            assert driver.stdout is not None
            for line in driver.stdout:
                if not line.startswith("{"):
                    continue  # the sender's own words
                said = json.loads(line)
                kib[said["when"]] = said["kib"]
                if said["when"] == "logged":
                    relay.start()
        assert driver.returncode == 0
        assert kib["logged"] - kib["before"] <= MOST_KIB, kib
        assert kib["delivered"] - kib["before"] <= MOST_KIB, kib
        arrived = relay.lines()
    logged = {
        line
        for file in (tmp_path / "log").glob("*.jsonl")
        for line in file.read_bytes().split(b"\n")
    } - {b""}
    assert len(logged) == EVENTS + MORE
    assert set(first_arrivals(arrived).values()) == logged


if __name__ == "__main__":
    trio.run(log_and_deliver, Path(sys.argv[1]), int(sys.argv[2]))
