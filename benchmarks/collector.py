"""What our own relay takes, holds and gives, and what it costs the hooks beside it.

    python benchmarks/collector.py [--url URL --token TOKEN [--in-url]] [--events N]

Without a URL it measures `kimiaepd collector` on one core, and then a daemon with its own relay and
without, one after the other. With one it measures that relay alone, whatever it is: so it can stand
beside another; how much memory that one takes is not seen. A client here reads raw bytes, so that
the figures are the relay's own. A relay that has been measured before holds what came then, and
takes the same ids for the same events: begin with a new one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx
import trio
from attrs import frozen

from daemon import cpu_seconds, round_trips, rss_mib
from kimiaepd.collector import place
from kimiaepd.collector.history import EVENT_BYTES, Bounds
from kimiaepd.mapping.json_value import JSONObject
from scratch import daemon, percentiles

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from ws_client import connected

BATCH = 1_000
HOOKS = 4_000
CONSUMERS = (0, 1, 10, 50)
HELD = Bounds().events
"""Of one session; a relay that holds fewer gives fewer back."""

MESSAGE, END = b"\ndata: ", b": replay-complete"

REFUSED: JSONObject = {
    "agent": "kimi-code", "type": ["tool.*", "run.*"], "severity": {"gte": "info"},
    "subject": "what no event says",
}  # fmt: skip
"""A filter that reads four attributes, and wants nothing."""
HELLO: JSONObject = {
    "type": "hello", "versions": ["0.1"], "role": "emitter", "capabilities": {},
    "identity": {"agent": "benchmark", "instance": "1"},
}  # fmt: skip


@frozen
class Relay:
    """One relay.

    Attributes:
        url: its base.
        token: for everything.
        in_url: whether it takes the token in URLs alone, where it is a WebSocket.
        pid: its process; None where it is another's.
    """

    url: str
    token: str
    in_url: bool = False
    pid: int | None = None

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def event(session: str, seq: int, *, full: bool = False) -> bytes:
    """A tool's end; at full it has what a subscriber with a ceiling may not see."""
    data: JSONObject = {
        "tool": {"name": "Bash", "call_id": f"c{seq}"},
        **({"result": "x" * 32} if full else {"result_digest": "0" * 32}),
    }
    made: JSONObject = {
        "aep": "0.1", "id": f"{session}-{seq}", "type": "tool.completed", "subject": "Bash",
        "time": "2026-12-01T00:00:00.000Z", "agent": "kimi-code", "session": session,
        "source": f"aep://host/agent/kimi-code/session/{session}", "seq": seq, "epoch": 1,
        "severity": "notice", "capture": "full" if full else "metadata",
        "run": "01M8RZ9Q6V9N8S3X2W1T0ABCDE", "data": data,
    }  # fmt: skip
    return json.dumps(made, separators=(",", ":")).encode()


async def post(relay: Relay, session: str, events: int, batch: int) -> float:
    """Events a second over POST, so many at once."""
    bodies = [
        b"\n".join(event(session, seq) for seq in range(first, first + batch))
        for first in range(0, events, batch)
    ]
    kind = {"AEP-Version": "0.1", "Content-Type": "application/x-ndjson", **relay.bearer}
    async with httpx.AsyncClient(base_url=relay.url, headers=kind, trust_env=False) as client:
        began = time.perf_counter()
        for body in bodies:
            answer = await client.post("/events", content=body, timeout=60)
            assert answer.status_code == 202, answer
        return events / (time.perf_counter() - began)


async def opened(relay: Relay, **query: str) -> trio.SocketStream:
    """A stream that was answered."""
    request = (
        f"GET /stream?{urlencode(query)} HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\n"
        f"Authorization: Bearer {relay.token}\r\n\r\n"
    )
    stream = await trio.open_tcp_stream("127.0.0.1", relay.port)
    await stream.send_all(request.encode())
    head = bytes(await stream.receive_some(64))
    assert head.startswith(b"HTTP/1.1 200"), head
    return stream


async def read(stream: trio.SocketStream, events: int) -> int:
    """Read until so many came, or all that were held; how many that was."""
    rest, count = b"", 0
    while count < events and END not in rest:
        piece = bytes(await stream.receive_some(1 << 18))
        assert piece, "the relay hung up"
        data = rest + piece
        count += data.count(MESSAGE) - rest.count(MESSAGE)
        rest = data[-len(END) - 16 :]
    return count


async def consume(
    relay: Relay, session: str, events: int, capture: str, *, task_status: trio.TaskStatus[None]
) -> None:
    """A stream of one session, until all of it came."""
    query = {"filter": json.dumps({"session": session})}
    if capture:
        query["capture"] = capture
    async with await opened(relay, **query) as stream:
        task_status.started()
        await read(stream, events)


async def drink(relay: Relay, wanted: JSONObject, *, task_status: trio.TaskStatus[None]) -> None:
    """A consumer for good, which throws away what comes."""
    async with await opened(relay, filter=json.dumps(wanted)) as stream:
        task_status.started()
        while await stream.receive_some(1 << 18):
            pass


async def send(relay: Relay, lines: list[str]) -> None:
    """Over the WebSocket, a few at once, until they have been taken."""
    headers = () if relay.in_url else ((b"authorization", f"Bearer {relay.token}".encode()),)
    target = f"/socket?access_token={relay.token}" if relay.in_url else "/socket"
    async with connected(relay.port, *headers, target=target) as emitter:
        await emitter.say(HELLO)
        await emitter.until("hello")
        for first in range(0, len(lines), 64):
            await emitter.say(*lines[first : first + 64], {"type": "ping", "t": first})
            while (await emitter.hear()).get("t") != first:
                pass


async def fan_out(
    relay: Relay,
    session: str,
    events: int,
    consumers: int,
    *,
    full: bool = False,
    capture: str = "",
) -> float:
    """Seconds an event, until every consumer has all of them."""
    lines = [event(session, seq, full=full).decode() for seq in range(events)]
    async with trio.open_nursery() as reading_nursery:
        for _ in range(consumers):
            await reading_nursery.start(consume, relay, session, events, capture)
        began = time.perf_counter()
        await send(relay, lines)
    return (time.perf_counter() - began) / events


async def beside(relay: Relay, session: str, events: int, consumers: int) -> float:
    """Seconds an event, where so many look at it and want none."""
    lines = [event(session, seq).decode() for seq in range(events)]
    async with trio.open_nursery() as reading_nursery:
        for _ in range(consumers):
            await reading_nursery.start(drink, relay, REFUSED)
        began = time.perf_counter()
        await send(relay, lines)
        took = time.perf_counter() - began
        reading_nursery.cancel_scope.cancel()
    return took / events


async def replay(relay: Relay, session: str) -> float:
    """Events a second of what is held of a session."""
    began = time.perf_counter()
    query = {"filter": json.dumps({"session": session}), "from": "all", "live": "0"}
    async with await opened(relay, **query) as stream:
        count = await read(stream, HELD)
    return count / (time.perf_counter() - began)


async def measure(relay: Relay, events: int) -> None:
    print("| way in | consumers | events/s | messages/s |\n|---|---|---|---|")
    print(f"| POST, {BATCH} at once | 0 | {await post(relay, 'batch', events, BATCH):.0f} | |")
    print(f"| POST, one by one | 0 | {await post(relay, 'single', events // 10, 1):.0f} | |")
    for consumers in CONSUMERS:
        count = events if consumers < 10 else events // 4
        one = await fan_out(relay, f"fan-{consumers}", count, consumers)
        print(f"| WebSocket | {consumers} | {1 / one:.0f} | {max(1, consumers) / one:.0f} |")
    print(f"\nReplay: {await replay(relay, 'batch'):.0f} events a second.")
    await extras(relay, events // 4)
    if relay.pid:
        await memory(relay, relay.pid)


async def memory(relay: Relay, pid: int) -> None:
    """What events that are held cost, where the process had all else it needs before."""
    before = rss_mib(pid)
    for number in range(4):
        await post(relay, f"held-{number}", HELD, BATCH)
    each = (rss_mib(pid) - before) * 2**20 / (4 * HELD)
    line = len(event("held-0", 1000))
    print(f"\nMemory: {each:.0f} bytes an event held; reckoned {line} + {EVENT_BYTES}.")


async def extras(relay: Relay, events: int) -> None:
    """What a filter costs, and a ceiling: each beside the same without it."""
    print(
        "\n| what | microseconds an event without | with | for each consumer |\n|---|---|---|---|"
    )
    bare, looked = [await beside(relay, f"look-{count}", events, count) for count in (0, 50)]
    row("50 filters of four attributes, which want nothing", bare, looked, 50)
    whole = await fan_out(relay, "whole", events, 1, full=True)
    lower = await fan_out(relay, "lower", events, 1, full=True, capture="metadata")
    row("down to metadata, one consumer", whole, lower, 1)


def row(what: str, without: float, having: float, consumers: int) -> None:
    each = (having - without) / consumers * 1e6
    print(f"| {what} | {without * 1e6:.0f} | {having * 1e6:.0f} | {each:.1f} |")


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
                    for _ in range(consumers):
                        await consumer_nursery.start(drink, Relay(url, token), {})
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
    parser.add_argument("--in-url", action="store_true")
    parser.add_argument("--events", type=int, default=20_000)
    said = parser.parse_args()
    if said.url:
        trio.run(measure, Relay(said.url, said.token, said.in_url), said.events)
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    with alone(cores[0]) as relay:
        trio.run(measure, relay, said.events)
    trio.run(hooks_beside, cores[0])


if __name__ == "__main__":
    main()
