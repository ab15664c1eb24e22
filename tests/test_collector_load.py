"""A thousand events a second, fifty consumers, five of which read nothing: who pays for whom.

The relay is a process of its own, and its memory is the kernel's word. Speed is asserted nowhere:
the pace is what is asked for, and on a slow machine it all takes longer.

By how much it may grow: what is held of the events, `HARD_BYTES` for each that is stuck, and
`CONNECTION_BYTES` for every connection. Those that read need no share: what they wait for is the
same text, which is held once.
"""

from __future__ import annotations

import json
import re
import socket
import tracemalloc
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from attrs import define, field

from conftest import ROOT
from kimiaepd.collector.history import EVENT_BYTES, Bounds
from kimiaepd.collector.outgoing import ALL_BYTES, HARD_BYTES, Budget, Outgoing
from kimiaepd.collector.routes import MOST_CONNECTIONS
from kimiaepd.mapping.json_value import JSON, JSONObject
from live import scratch
from test_collector_cli import collector
from ws_client import connected

EVENTS = 3_000
PER_SECOND = 1_000
CONSUMERS = 50
STUCK = 5
SIZE = 300
"""Bytes of an event's content."""

SUBSCRIPTIONS = 24
"""Of each that is stuck, so that far more waits for it than a queue and the kernel hold."""

HELLO: JSONObject = {
    "type": "hello", "versions": ["0.1"], "role": "consumer", "capabilities": {},
    "identity": {"agent": "test", "instance": "1"},
}  # fmt: skip


def subscribe(name: str) -> JSONObject:
    return {"type": "subscribe", "id": name, "filter": {}}


ASKED_AT = 250
"""Events after which the emitter asks whether they were taken: it is never far ahead."""

LEFT_AT = 2_000
"""Events after which all that are stuck must be gone from the fan-out: by then each of them was
owed 36 MiB, and its queue with both kernel buffers holds half of that at most."""

CONNECTION_BYTES = 256 << 10
"""A connection with its tasks, its parser, and the message that is being sent."""

MESSAGE_BYTES = 96
"""What a message that waits costs beside its characters: its object, and its place in the queue."""

SEQ = re.compile(rb'"seq":(\d+),')


def event(seq: int) -> JSONObject:
    return {
        "aep": "0.1", "id": f"e-{seq}", "type": "tool.requested", "subject": "Bash",
        "time": "2026-12-01T00:00:00.000Z", "session": "s", "seq": seq, "epoch": 1,
        "source": "aep://test/agent/kimi-code/session/s", "agent": "kimi-code",
        "severity": "notice", "capture": "full",
        "data": {"tool": {"name": "Bash", "call_id": f"c{seq}"}, "input": "x" * SIZE},
    }  # fmt: skip


@define(eq=False)
class Reader:
    """A consumer that looks at the raw bytes: what it got, in order."""

    stream: trio.SocketStream
    got: list[int] = field(factory=list)
    _rest: bytes = b""

    async def read(self, count: int) -> None:
        """Read until so many events came, or the connection is over."""
        while len(self.got) < count:
            data = bytes(await self.stream.receive_some(1 << 18))
            if not data:
                return
            data = self._rest + data
            found = list(SEQ.finditer(data))
            self.got += [int(match[1]) for match in found]
            self._rest = data[found[-1].end() if found else max(0, len(data) - 64) :]


async def opened(url: str, request: bytes) -> trio.SocketStream:
    """A stream that was answered."""
    stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
    await stream.send_all(request)
    head = b""
    while b": here" not in head:
        head += bytes(await stream.receive_some())
    assert head.startswith(b"HTTP/1.1 200"), head
    return stream


def rss(pid: int, name: str) -> int:
    """Bytes; `VmRSS` is what the process has, `VmHWM` the most that it ever had."""
    (line,) = re.findall(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024


def test_at_worst_all_of_it_is_what_the_page_of_performance_says() -> None:
    assert MOST_CONNECTIONS * HARD_BYTES > ALL_BYTES  # which is why there is one bound for all
    assert Bounds().bytes + ALL_BYTES == 384 << 20
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert "384 MiB: 128 of events that are held, 256 of messages that wait" in page


def test_what_waits_for_many_takes_no_more_memory_than_the_budget() -> None:
    budget = Budget(most=4 << 20)
    queues = [Outgoing(budget) for _ in range(16)]
    tracemalloc.start()
    try:
        for number in range(10 * budget.most // (SIZE * len(queues))):
            for queue in queues:
                queue.put(f"{number:0{SIZE}}")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert any(queue.over.is_set() for queue in queues)
    assert budget.most / 2 < budget.size <= budget.most
    assert taken < budget.most * (SIZE + MESSAGE_BYTES) / SIZE


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.slow
async def test_fifty_consumers_of_which_five_read_nothing() -> None:
    with scratch() as live, collector(live) as (process, url):
        token = live.run("token", "show").stdout.strip()
        port = int(url.rpartition(":")[2])
        bearer = (b"authorization", f"Bearer {token}".encode())
        request = (
            f"GET /stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        ).encode()
        readers: list[Reader] = []
        async with trio.open_nursery() as nursery:
            for _ in range(STUCK):
                await nursery.start(partial(_subscribed, port, bearer, SUBSCRIPTIONS))
            for number in range(CONSUMERS - STUCK):
                if number % 2:
                    reader = Reader(await opened(url, request))
                else:
                    client = await nursery.start(partial(_subscribed, port, bearer))
                    reader = Reader(client)
                readers.append(reader)
            before = rss(process.pid, "VmRSS")
            with trio.fail_after(90):
                async with trio.open_nursery() as reading:
                    for reader in readers:
                        reading.start_soon(reader.read, EVENTS)
                    fan_out = await _send(port, bearer, url, token)
            # The weight of what waited did it: no clock decides when a consumer is owed no more.
            assert fan_out == len(readers)
            # Each of the others has everything, once, in order.
            assert [len(reader.got) for reader in readers] == [EVENTS] * len(readers)
            assert all(reader.got == list(range(EVENTS)) for reader in readers)
            # Those that read nothing were hung up on, and the relay goes on.
            with trio.fail_after(30):
                while (await _health(url, token))["connections"] != len(readers):
                    pass
            nursery.cancel_scope.cancel()
        for reader in readers:
            await reader.stream.aclose()
        held = EVENTS * (EVENT_BYTES + SIZE + 500)
        assert held < Bounds().bytes
        grown = rss(process.pid, "VmHWM") - before
        assert grown < held + STUCK * HARD_BYTES + (CONSUMERS + 1) * CONNECTION_BYTES
        process.terminate()
        assert await trio.to_thread.run_sync(process.wait, 10) == 0


async def _subscribed(
    port: int,
    bearer: tuple[bytes, bytes],
    subscriptions: int = 1,
    *,
    task_status: trio.TaskStatus[trio.SocketStream],
) -> None:
    """A WebSocket that has subscribed, held until the end; what comes is read raw."""
    async with connected(port, bearer) as client:
        # So that the kernel takes little for one that reads nothing, wherever this runs.
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
        await client.say(HELLO, *(subscribe(str(number)) for number in range(subscriptions)))
        for _ in range(subscriptions):
            await client.until("subscribed")
        task_status.started(client.stream)
        await trio.sleep_forever()


async def _send(port: int, bearer: tuple[bytes, bytes], url: str, token: str) -> JSON:
    """All events, as an emitter says them, at the pace or as fast as they are taken.

    Returns:
        The subscriptions that the relay still had at `LEFT_AT`.
    """
    left: JSON = None
    async with connected(port, bearer) as emitter:
        await emitter.say({**HELLO, "role": "emitter"})
        await emitter.until("hello")
        began = trio.current_time()
        for seq in range(EVENTS):
            await trio.sleep_until(began + seq / PER_SECOND)
            await emitter.say(json.dumps(event(seq), separators=(",", ":")))
            if (count := seq + 1) % ASKED_AT == 0:
                await emitter.say({"type": "ping", "t": count})
                while (await emitter.hear()).get("t") != count:
                    pass
            if count == LEFT_AT:
                left = (await _health(url, token))["subscriptions"]
    return left


async def _health(url: str, token: str) -> JSONObject:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as asking:
        answer = await asking.get("/healthz", timeout=30)
    health: JSONObject = answer.json()
    return health
