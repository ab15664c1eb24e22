"""What delivery can take: events a second to the relay's proof, the lag of each, and memory.

    python benchmarks/relay.py [events]

The daemon runs on one core; the relay (the tests' own, in Python) and the clients share the others,
so a relay that is faster, or elsewhere, can only make the figures better. An event is delivered
when the relay has answered a ping that was sent after it. The lag is from the moment at which a
client sends its hook to the moment at which the relay has the event that it became.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict, deque
from functools import partial
from pathlib import Path

import trio

from daemon import FEW, MANY, cpu_seconds, frame, round_trips, rss_mib, work
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSON, JSONObject
from scratch import Scratch, daemon, percentiles

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fake_relay import TOKEN, FakeRelay, Switches

WORKERS = 4
RATE = 100
SECONDS = 30
HOOKS = 2000


async def relay_status(scratch: Scratch) -> JSONObject:
    status = await request(scratch.where.socket, "status", timeout=10.0)
    return status["relay"] if isinstance(status["relay"], dict) else {}


async def until_delivered(scratch: Scratch, events: int) -> None:
    """Wait until so many are proven; the looks are far apart beside what is measured."""
    delivered: JSON = None
    while delivered != events:
        delivered = (await relay_status(scratch)).get("delivered")
        await trio.sleep(0.02)


def logged(scratch: Scratch) -> int:
    return sum(
        file.read_bytes().count(b"\n") for file in scratch.where.log_dir.glob("*.jsonl")
    )  # fmt: skip


def send_hooks(scratch: Scratch, events: int, sessions: int) -> None:
    path = str(scratch.where.socket)
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.starmap(work, [(path, n, WORKERS, events, sessions) for n in range(WORKERS)])


class Measured:
    """The daemon's CPU time and the clock, from here on."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.cpu, self.began = cpu_seconds(scratch.pid), time.perf_counter()

    def row(self, name: str, sessions: int, events: int) -> None:
        took = time.perf_counter() - self.began
        cpu = (cpu_seconds(self.scratch.pid) - self.cpu) / events * 1000
        print(
            f"| {name} | {sessions} | {events} | {events / took:.0f} | {cpu:.3f} "
            f"| {rss_mib(self.scratch.pid):.1f} |"
        )


def delivering(url: str | None) -> dict[str, str]:
    """The variables of a daemon that delivers there; to nobody, its own relay included, if None."""
    return {"AEP_RELAY_URL": url, "AEP_TOKEN": TOKEN} if url else {"KIMIAEPD_COLLECTOR": "0"}


async def from_hooks(url: str | None, hooks: int, sessions: int, core: int) -> None:
    """Hooks as fast as they are taken, and each event at the relay; without one for comparison."""
    with daemon(core=core, **delivering(url)) as scratch:
        measured = Measured(scratch)
        await trio.to_thread.run_sync(send_hooks, scratch, hooks, sessions)
        events = logged(scratch)
        if url:
            await until_delivered(scratch, events)
        measured.row("hooks to the relay" if url else "hooks, no relay", sessions, events)


async def from_log(relay: FakeRelay, hooks: int, sessions: int, core: int) -> None:
    """What was logged while the relay was away."""
    port = relay.port
    absent = FakeRelay(port=port + 1, keep=relay.keep)
    with daemon(core=core, AEP_RELAY_URL=absent.url, AEP_TOKEN=TOKEN) as scratch:
        await trio.to_thread.run_sync(send_hooks, scratch, hooks, sessions)
        events = logged(scratch)
        async with trio.open_nursery() as nursery:
            measured = Measured(scratch)
            await nursery.start(absent.run)
            os.kill(scratch.pid, signal.SIGUSR1)
            await until_delivered(scratch, events)
            measured.row("log to the relay", sessions, events)
            nursery.cancel_scope.cancel()


async def one_hook(scratch: Scratch, number: int, sessions: int) -> None:
    async with await trio.open_unix_socket(str(scratch.where.socket)) as stream:
        await stream.send_all(frame(number, sessions))
        await stream.receive_some(64)


async def lag(relay: FakeRelay, sessions: int, core: int) -> None:
    """How long after its hook each event is there; within a session the order tells which is it."""
    sent: dict[str, deque[float]] = defaultdict(deque)
    lags: list[float] = []

    def took(text: str) -> None:
        if waiting := sent.get(json.loads(text).get("session")):
            lags.append((time.perf_counter() - waiting.popleft()) * 1000)

    relay.took = took
    with daemon(core=core, AEP_RELAY_URL=relay.url, AEP_TOKEN=TOKEN) as scratch:
        began = trio.current_time()
        for number in range(RATE * SECONDS):
            await trio.sleep_until(began + number / RATE)
            sent[f"session_{number % sessions}"].append(time.perf_counter())
            await one_hook(scratch, number, sessions)
        await until_delivered(scratch, logged(scratch))
    relay.took = lambda _: None
    p50, p95, p99 = percentiles(lags)
    print(f"| {RATE} | {sessions} | {len(lags)} | {p50:.2f} | {p95:.2f} | {p99:.2f} |")


def in_a_process(path: str) -> list[float]:
    """Not in this one, where the relay would be in the way."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(round_trips, (path, HOOKS))


async def hook_latency(name: str, core: int, relay: FakeRelay | None, backlog: int = 0) -> None:
    """What a hook waits, one after the other, while the relay is so."""
    with daemon(core=core, **delivering(relay.url if relay else None)) as scratch:
        if relay and backlog:
            relay.switches = Switches(refuse=503)
            await trio.to_thread.run_sync(send_hooks, scratch, backlog, FEW)
            relay.switches = Switches()
            os.kill(scratch.pid, signal.SIGUSR1)
        times = await trio.to_thread.run_sync(in_a_process, str(scratch.where.socket))
        behind = (await relay_status(scratch)).get("lag_events", 0)
    p50, p95, p99 = percentiles(times)
    print(f"| {name} | {p50:.2f} | {p95:.2f} | {p99:.2f} | {behind} |")


async def main(events: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    core = cores[0]
    with tempfile.TemporaryFile() as kept:
        relay = FakeRelay(keep=kept)
        async with trio.open_nursery() as nursery:
            await nursery.start(relay.run)
            print("| way | sessions | events | events a second | daemon CPU ms each | MiB after |")
            print("|---|---|---|---|---|---|")
            for url in (None, relay.url):
                await from_hooks(url, events, FEW, core)
            for sessions in (FEW, MANY):
                await from_log(relay, events, sessions, core)
            print("\n| events a second | sessions | events | lag p50 ms | p95 ms | p99 ms |")
            print("|---|---|---|---|---|---|")
            await lag(relay, FEW, core)
            print("\n| relay | hook p50 ms | p95 ms | p99 ms | events behind after |")
            print("|---|---|---|---|---|")
            await hook_latency("none", core, None)
            await hook_latency("good", core, relay)
            await hook_latency("gets what it missed", core, relay, events)
            relay.switches = Switches(stop_reading=True)
            await hook_latency("stops reading", core, relay)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(partial(main, int(sys.argv[1]) if len(sys.argv) > 1 else 50_000))
