"""One emitter and many consumers of a relay, whatever it is, as a benchmark of one needs them.

Rules:
- What comes is read as raw bytes, and counted: so that as little as can be of a figure is the
  client's.
- Nothing is sent before every consumer is known to be subscribed (`subscribed`).

What it does not do: it is no client for anything but a benchmark. It reads no event, and reconnects
to nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from math import nan
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx
import trio
from attrs import frozen

from daemon import cpu_seconds
from kimiaepd.mapping.json_value import JSONObject

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from ws_client import connected

MESSAGE, END = b"event: tool.completed\n", b": replay-complete"

MARK_SECONDS = 0.05
"""Between two marks (`subscribed`): an event that consumers hear, and do not count."""

Consumer = Callable[..., Awaitable[None]]
"""Given a `task_status`, it says that it has started when it has heard something."""

REFUSED: JSONObject = {
    "agent": "kimi-code", "type": ["tool.*", "run.*"], "severity": {"gte": "info"},
    "subject": "what no event says",
}  # fmt: skip
"""A filter that reads four attributes, and wants nothing but marks."""
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
        pid: its process; None where that is not known.
    """

    url: str
    token: str
    pid: int | None = None

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    def cpu(self) -> float:
        """Seconds of CPU that it has had, in steps of 10 ms."""
        return cpu_seconds(self.pid) if self.pid else nan

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@frozen
class Cost:
    """What each of some events took.

    Attributes:
        seconds: by the clock.
        cpu: seconds of the relay's CPU; not a number where its process is not known.
    """

    seconds: float
    cpu: float

    @property
    def row(self) -> str:
        return f"{1 / self.seconds:.0f} | {self.cpu * 1e6:.0f}"


def clock(relay: Relay) -> Callable[[int], Cost]:
    """Begin to measure; what is returned says what each of so many events has cost since."""
    began, spent = time.perf_counter(), relay.cpu()

    def cost(events: int) -> Cost:
        return Cost((time.perf_counter() - began) / events, (relay.cpu() - spent) / events)

    return cost


def event(
    session: str, seq: int, *, full: bool = False, changed: JSONObject | None = None
) -> bytes:
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
        "run": "01M8RZ9Q6V9N8S3X2W1T0ABCDE", "data": data, **(changed or {}),
    }  # fmt: skip
    return json.dumps(made, separators=(",", ":")).encode()


def poster(relay: Relay) -> httpx.AsyncClient:
    kind = {"AEP-Version": "0.1", "Content-Type": "application/x-ndjson", **relay.bearer}
    return httpx.AsyncClient(base_url=relay.url, headers=kind, trust_env=False, timeout=60)


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
    rest, came = b"", 0
    while came < events and END not in rest:
        piece = bytes(await stream.receive_some(1 << 18))
        assert piece, "the relay hung up"
        data = rest + piece
        came += data.count(MESSAGE) - rest.count(MESSAGE)
        rest = data[-len(END) - 16 :]
    return came


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


async def mark(relay: Relay, session: str) -> None:
    """An event of the session every now and then, which every filter here lets through."""
    changed: JSONObject = {"type": "tool.requested", "subject": REFUSED["subject"], "epoch": 0}
    async with poster(relay) as client:
        for seq in count():
            await trio.sleep(MARK_SECONDS)
            made = event(session, seq, changed={**changed, "id": f"{session}-mark-{seq}"})
            (await client.post("/events", content=made)).raise_for_status()


async def subscribed(
    nursery: trio.Nursery, relay: Relay, session: str, consumers: Sequence[Consumer]
) -> None:
    """Start consumers in the nursery, until each has heard something.

    Only then is it known that a consumer is subscribed: a relay may say nothing at all, its head
    neither, before it has an event for it.
    """
    async with trio.open_nursery() as marking_nursery:
        marking_nursery.start_soon(mark, relay, session)
        async with trio.open_nursery() as starting_nursery:
            for consumer in consumers:
                starting_nursery.start_soon(nursery.start, consumer)
        marking_nursery.cancel_scope.cancel()


async def send(relay: Relay, lines: list[str]) -> None:
    """Over the WebSocket, a few at once, until they have been taken."""
    bearer = (b"authorization", f"Bearer {relay.token}".encode())
    async with connected(relay.port, bearer) as emitter:
        await emitter.say(HELLO)
        await emitter.until("hello")
        for first in range(0, len(lines), 64):
            await emitter.say(*lines[first : first + 64], {"type": "ping", "t": first})
            while (await emitter.hear()).get("t") != first:
                pass
