"""What watching `kimi web` costs the hooks beside it: a quiet server, a flood, frames of 5 MB.

    python benchmarks/web.py

The server is the tests' scripted one, in a process of its own, with one live session; the daemon is
a real one on one core, in primary. Hooks of another session are sent one by one, 2 ms apart, while
the server says so much. The first row has no server at all.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import trio

from daemon import cpu_seconds, round_trips, rss_mib
from scratch import Scratch, daemon, percentiles

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from kap_journal import KapHome
from kap_server import KapServer, serving

HOOKS = 2_000
LOADS = ("no server", "quiet", "volatile flood", "10 durable/s", "500 durable/s", "5 MB frames")


async def _say(server: KapServer, load: str) -> None:
    if load == "volatile flood":
        while True:
            await server.flood("s1", 10_000)
            await server.drained(60)
    rate = {"10 durable/s": 10, "500 durable/s": 500}.get(load)
    while rate:
        server.say("s1", "context.spliced", {"start": 0})
        await trio.sleep(1 / rate)
    while load == "5 MB frames":
        server.say("s1", "context.spliced", {"messages": "x" * (5 << 20)})
        await server.drained(60)
        await trio.sleep(0.5)
    await trio.sleep_forever()


async def _serve(home: Path, load: str, told: Connection) -> None:
    async with serving(KapHome(home)) as server:
        server.session("s1")
        await server.subscribed("s1", 60)
        told.send("watched")
        await _say(server, load)


def _run(home: Path, load: str, told: Connection) -> None:
    trio.run(_serve, home, load, told)


@contextmanager
def loaded(scratch: Scratch, load: str) -> Iterator[None]:
    """A server that says so much, once the daemon watches it."""
    if load == "no server":
        yield
        return
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(scratch.where.kimi_home, load, theirs)
    )
    process.start()
    try:
        assert ours.recv() == "watched"
        yield
    finally:
        process.terminate()
        process.join()


def main() -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    print("| the server says | p50 ms | p95 ms | p99 ms | daemon CPU % | MiB before | after |")
    print("|---|---|---|---|---|---|---|")
    for load in LOADS:
        with daemon(core=cores[0], AEP_KIMI_WEB_MODE="primary", KIMIAEPD_COLLECTOR="0") as made:
            before = rss_mib(made.pid)
            with loaded(made, load):
                cpu, began = cpu_seconds(made.pid), time.perf_counter()
                times = round_trips(str(made.where.socket), HOOKS, pause=0.002)
                share = (cpu_seconds(made.pid) - cpu) / (time.perf_counter() - began) * 100
                p50, p95, p99 = percentiles(times)
            print(
                f"| {load} | {p50:.3f} | {p95:.3f} | {p99:.3f} | {share:.0f} | {before:.1f} "
                f"| {rss_mib(made.pid):.1f} |"
            )


if __name__ == "__main__":
    main()
