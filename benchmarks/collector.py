"""What our own relay takes and gives: ingest, fan-out, and what it costs the hooks beside it.

    python benchmarks/collector.py [--url URL --token TOKEN [--in-url]] [--events N]

Without a URL it measures `kimiaepd collector` on one core, and then a daemon with its own relay and
without, one after the other. With one it measures that relay alone, whatever it is: so it can stand
beside another. A client here reads raw bytes, so that the figures are the relay's own.
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
from urllib.parse import urlsplit

import httpx
import trio
from attrs import frozen

from daemon import cpu_seconds, round_trips
from kimiaepd.collector import place
from kimiaepd.mapping.json_value import JSONObject
from scratch import daemon, percentiles

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from ws_client import connected

BATCH = 1_000
HOOKS = 4_000
CONSUMERS = (0, 1, 10, 50)
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
    """

    url: str
    token: str
    in_url: bool = False

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def event(session: str, seq: int) -> bytes:
    made = {
        "aep": "0.1", "id": f"{session}-{seq}", "type": "tool.completed", "subject": "Bash",
        "time": "2026-12-01T00:00:00.000Z", "agent": "kimi-code", "session": session,
        "source": f"aep://host/agent/kimi-code/session/{session}", "seq": seq, "epoch": 1,
        "severity": "notice", "capture": "metadata", "run": "01M8RZ9Q6V9N8S3X2W1T0ABCDE",
        "data": {"tool": {"name": "Bash", "call_id": f"c{seq}"}, "result_digest": "0" * 32},
    }  # fmt: skip
    return json.dumps(made, separators=(",", ":")).encode()


async def post(relay: Relay, events: int, batch: int) -> float:
    """Events a second over POST, so many at once."""
    session = f"post-{batch}"
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


async def consume(
    relay: Relay, session: str, events: int, *, task_status: trio.TaskStatus[None]
) -> None:
    """A stream of one session, until all of it came."""
    query = f"filter=%7B%22session%22%3A%22{session}%22%7D"
    request = (
        f"GET /stream?{query} HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\n"
        f"Authorization: Bearer {relay.token}\r\n\r\n"
    )
    async with await trio.open_tcp_stream("127.0.0.1", relay.port) as stream:
        await stream.send_all(request.encode())
        head = bytes(await stream.receive_some())
        assert head.startswith(b"HTTP/1.1 200"), head
        task_status.started()
        rest, count = b"", 0
        while count < events:
            data = rest + bytes(await stream.receive_some(1 << 18))
            assert data != rest, "the relay hung up"
            count += data.count(b"\ndata: ")
            rest = data[-6:] if not data.endswith(b"\ndata: ") else b""


async def fan_out(relay: Relay, events: int, consumers: int) -> tuple[float, float]:
    """Events a second over the WebSocket until every consumer has them; and messages a second."""
    session = f"fan-{consumers}"
    lines = [event(session, seq).decode() for seq in range(events)]
    headers = () if relay.in_url else ((b"authorization", f"Bearer {relay.token}".encode()),)
    target = f"/socket?access_token={relay.token}" if relay.in_url else "/socket"
    async with connected(relay.port, *headers, target=target) as emitter:
        await emitter.say(HELLO)
        await emitter.until("hello")
        async with trio.open_nursery() as reading_nursery:
            for _ in range(consumers):
                await reading_nursery.start(consume, relay, session, events)
            began = time.perf_counter()
            for first in range(0, events, 64):
                await emitter.say(*lines[first : first + 64], {"type": "ping", "t": first})
                while (await emitter.hear()).get("t") != first:
                    pass
        took = time.perf_counter() - began
    return events / took, events * max(1, consumers) / took


async def measure(relay: Relay, events: int) -> None:
    print("| way in | consumers | events/s | messages/s |\n|---|---|---|---|")
    print(f"| POST, {BATCH} at once | 0 | {await post(relay, events, BATCH):.0f} | |")
    print(f"| POST, one by one | 0 | {await post(relay, events // 10, 1):.0f} | |")
    for consumers in CONSUMERS:
        came, went = await fan_out(relay, events if consumers < 10 else events // 4, consumers)
        print(f"| WebSocket | {consumers} | {came:.0f} | {went:.0f} |")


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
                yield Relay(url, shown.stdout.strip())
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
                        await consumer_nursery.start(drink, Relay(url, token))
                cpu = cpu_seconds(made.pid)
                # The pause is what it takes to deliver a hook's event.
                ask = partial(round_trips, str(made.where.socket), HOOKS, pause=0.002)
                times = await trio.to_thread.run_sync(ask)
                cpu = (cpu_seconds(made.pid) - cpu) / HOOKS * 1000
                p50, p95, p99 = percentiles(times)
                print(f"| {name} | {p50:.3f} | {p95:.3f} | {p99:.3f} | {cpu:.3f} |")
                consumer_nursery.cancel_scope.cancel()


async def drink(relay: Relay, *, task_status: trio.TaskStatus[None]) -> None:
    """A consumer of everything, which throws it away."""
    request = (
        f"GET /stream HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\n"
        f"Authorization: Bearer {relay.token}\r\n\r\n"
    )
    async with await trio.open_tcp_stream("127.0.0.1", relay.port) as stream:
        await stream.send_all(request.encode())
        await stream.receive_some()
        task_status.started()
        while await stream.receive_some(1 << 18):
            pass


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
