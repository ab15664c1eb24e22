"""What our own relay takes, holds and gives, and what it costs the hooks beside it.

    python benchmarks/collector.py [--url URL --token TOKEN [--pid PID]] [--events N]

Without a URL it measures `kimiaepd collector` on one core, and then a daemon with its own relay and
without, one after the other. With one it measures that relay alone, whatever it is: so it can stand
beside another. Bind both to one core, and this program to another (`taskset`). What a relay uses of
its core and of memory is seen where its process is named.

A client here reads raw bytes, so that the figures are the relay's own. Where the relay is fast, the
client is the slower of the two: then what the relay's CPU spends on an event says more than the
events a second. A relay that has been measured before holds what came then, and takes the same ids
for the same events: begin with a new one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trio

from daemon import cpu_seconds, round_trips, rss_mib
from kimiaepd.collector import place
from kimiaepd.collector.history import EVENT_BYTES, Bounds
from relay_client import (
    REFUSED,
    Cost,
    Relay,
    clock,
    consume,
    drink,
    event,
    opened,
    poster,
    read,
    send,
    subscribed,
)
from scratch import daemon, percentiles

BATCH = 1_000
HOOKS = 4_000
CONSUMERS = (0, 1, 10, 50)
HELD = Bounds().events
"""Of one session; a relay that holds fewer gives fewer back."""


async def post(relay: Relay, session: str, events: int, batch: int) -> Cost:
    """Over POST, so many at once."""
    bodies = [
        b"\n".join(event(session, seq) for seq in range(first, first + batch))
        for first in range(0, events, batch)
    ]
    async with poster(relay) as client:
        cost = clock(relay)
        for body in bodies:
            answer = await client.post("/events", content=body)
            assert answer.status_code == 202, answer
        return cost(events)


async def fan_out(
    relay: Relay,
    session: str,
    events: int,
    consumers: int,
    *,
    full: bool = False,
    capture: str = "",
) -> Cost:
    """Until every consumer has all of them."""
    lines = [event(session, seq, full=full).decode() for seq in range(events)]
    async with trio.open_nursery() as reading_nursery:
        consumer = partial(consume, relay, session, events, capture)
        await subscribed(reading_nursery, relay, session, [consumer] * consumers)
        cost = clock(relay)
        await send(relay, lines)
    return cost(events)


async def beside(relay: Relay, session: str, events: int, consumers: int) -> Cost:
    """Where so many look at every event, and want none."""
    lines = [event(session, seq).decode() for seq in range(events)]
    async with trio.open_nursery() as reading_nursery:
        consumer = partial(drink, relay, REFUSED)
        await subscribed(reading_nursery, relay, session, [consumer] * consumers)
        cost = clock(relay)
        await send(relay, lines)
        took = cost(events)
        reading_nursery.cancel_scope.cancel()
    return took


async def replay(relay: Relay, session: str) -> Cost:
    """What is held of a session."""
    cost = clock(relay)
    query = {"filter": json.dumps({"session": session}), "from": "all", "live": "0"}
    async with await opened(relay, **query) as stream:
        return cost(await read(stream, HELD))


async def measure(relay: Relay, events: int) -> None:
    at_first = rss_mib(relay.pid) if relay.pid else 0
    print("| way | consumers | events/s | relay CPU µs an event |\n|---|---|---|---|")
    print(f"| POST, {BATCH} at once | 0 | {(await post(relay, 'batch', events, BATCH)).row} |")
    print(f"| POST, one by one | 0 | {(await post(relay, 'single', events // 10, 1)).row} |")
    for consumers in CONSUMERS:
        share = events if consumers < 10 else events // 4
        cost = await fan_out(relay, f"fan-{consumers}", share, consumers)
        print(f"| WebSocket | {consumers} | {cost.row} |", flush=True)
    print(f"| replay | 1 | {(await replay(relay, 'batch')).row} |")
    await extras(relay, events // 4)
    if relay.pid:
        await memory(relay, relay.pid, at_first)


async def memory(relay: Relay, pid: int, at_first: float) -> None:
    """What events that are held cost, where the process had all else it needs before."""
    before = rss_mib(pid)
    for number in range(4):
        await post(relay, f"held-{number}", HELD, BATCH)
    after = rss_mib(pid)
    each = (after - before) * 2**20 / (4 * HELD)
    line = len(event("held-0", 1000))
    print(f"\nMemory in MiB: {at_first:.0f} at first, then {before:.0f}, then {after:.0f}.")
    print(
        f"The last {4 * HELD} events took {each:.0f} bytes each; ours reckons {line + EVENT_BYTES}."
    )


async def extras(relay: Relay, events: int) -> None:
    """What a filter costs, and a ceiling: each beside the same without it."""
    print(
        "\n| what | microseconds an event without | with | for each consumer |\n|---|---|---|---|"
    )
    bare, looked = [await beside(relay, f"look-{many}", events, many) for many in (0, 50)]
    row("50 filters of four attributes, which want nothing", bare, looked, 50)
    whole = await fan_out(relay, "whole", events, 1, full=True)
    lower = await fan_out(relay, "lower", events, 1, full=True, capture="metadata")
    row("down to metadata, one consumer", whole, lower, 1)


def row(what: str, without: Cost, having: Cost, consumers: int) -> None:
    bare, full = without.seconds * 1e6, having.seconds * 1e6
    print(f"| {what} | {bare:.0f} | {full:.0f} | {(full - bare) / consumers:.1f} |")


@contextmanager
def alone(core: int) -> Iterator[Relay]:
    """`kimiaepd collector` on one core."""
    with tempfile.TemporaryDirectory(prefix="kb", dir="/tmp") as home:
        environ = {"HOME": home, "PATH": os.environ["PATH"]}
        ours = [sys.executable, "-m", "kimiaepd"]
        command = ["taskset", "-c", str(core), *ours, "collector", "--port", "0"]
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        with process:
            assert process.stdout is not None
            url = process.stdout.readline().partition("ready: ")[2].partition(",")[0]
            shown = subprocess.run(
                [*ours, "token", "show"], env=environ, capture_output=True, text=True, check=True
            )
            try:
                yield Relay(url, shown.stdout.strip(), pid=process.pid)
            finally:
                process.terminate()


async def hooks_beside(core: int) -> None:
    """One hook after the other, at a daemon with its own relay and without, and with consumers."""
    print("\n| the daemon's own relay | p50 ms | p95 ms | p99 ms | daemon CPU ms a hook |")
    print("|---|---|---|---|---|")
    for name, consumers, flag in (
        ("off", 0, "0"),
        ("on", 0, "1"),
        ("on, 10 consumers", 10, "1"),
    ):
        with daemon(core=core, KIMIAEPD_COLLECTOR=flag) as made:
            async with trio.open_nursery() as consumer_nursery:
                if consumers:
                    url = place.read(made.where.state_dir) or ""
                    token = (made.where.state_dir / "collector-token").read_text().strip()
                    relay = Relay(url, token)
                    drinkers = [partial(drink, relay, {})] * consumers
                    await subscribed(consumer_nursery, relay, "marks", drinkers)
                cpu = cpu_seconds(made.pid)
                # The pause is what it takes to deliver a hook's event.
                ask = partial(round_trips, str(made.where.socket), HOOKS, pause=0.002)
                times = await trio.to_thread.run_sync(ask)
                cpu = (cpu_seconds(made.pid) - cpu) / HOOKS * 1000
                p50, p95, p99 = percentiles(times)
                print(f"| {name} | {p50:.3f} | {p95:.3f} | {p99:.3f} | {cpu:.3f} |")
                consumer_nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url")
    parser.add_argument("--token", default="")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--events", type=int, default=20_000)
    said = parser.parse_args()
    if said.url:
        trio.run(measure, Relay(said.url, said.token, said.pid), said.events)
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    with alone(cores[0]) as relay:
        trio.run(measure, relay, said.events)
    trio.run(hooks_beside, cores[0])


if __name__ == "__main__":
    main()
