"""Each check that the standard's live checker makes of an endpoint, as a test of our own.

The names are those of `conformance/live.js` (agenteventprotocol/agent-event-protocol), and a client
comes as that one does: with its token in a header over HTTP, and in the URL for the socket.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
import trio
from attrs import define

from collector_room import Place, collecting
from judge import judge
from kimiaepd.collector.access import Role
from kimiaepd.collector.history import Bounds
from kimiaepd.mapping.json_value import JSON, JSONObject, dump
from target_room import Target, targeting
from test_collector_hub import command, event
from ws_client import Client, DeniedError, connected

SUBSCRIBE_CODES = ("invalid-filter", "unknown-dialect", "unauthorized", "limit-exceeded")
"""AEP-0003 section 6.5: there are no others."""

HELLO: JSONObject = {"type": "hello", "versions": ["0.1"], "role": "consumer", "capabilities": {}}
EMITTER: JSONObject = {
    **HELLO,
    "role": "emitter",
    "identity": {"agent": "target", "instance": "here"},
    "capabilities": {
        "emits": ["session"],
        "control": {"accepts": ["control.cancel"], "ack_window_ms": 7_000},
    },
}
RESPOND = "control.attention.respond"


def started(session: str = "s", seq: int = 0, **more: JSON) -> JSONObject:
    data: JSON = {"client": {"name": "checker"}}
    return event(session, seq, type="session.started", data=data, **more)


@define
class Feed:
    """What comes over `GET /stream`, as it comes: no client library in between."""

    stream: trio.SocketStream
    _came: bytes = b""

    async def line(self) -> str:
        """The next line, of the response's headers too."""
        with trio.fail_after(5):
            while b"\n" not in self._came:
                data = bytes(await self.stream.receive_some())
                assert data, "the stream has ended"
                self._came += data
        line, _, self._came = self._came.partition(b"\n")
        return line.decode()

    async def next(self) -> JSONObject:
        """The next event."""
        while not (line := await self.line()).startswith("data: "):
            pass
        found: JSONObject = json.loads(line.removeprefix("data: "))
        return found


@define
class Checker:
    """A client of a collector.

    Attributes:
        place: the collector.
        token: one that ends with it.
    """

    place: Place
    token: str

    async def get(self, path: str, **query: str) -> httpx.Response:
        async with self.place.client(self.token) as client:
            return await client.get(path, params=query)

    async def post(self, *events: JSONObject, version: str = "0.1") -> httpx.Response:
        headers = {"AEP-Version": version, "Content-Type": "application/x-ndjson"}
        async with self.place.client(self.token) as client:
            return await client.post("/events", content=lines(*events), headers=headers)

    @asynccontextmanager
    async def following(self, query: Mapping[str, JSON]) -> AsyncIterator[Feed]:
        """A live stream; it is there when the block begins."""
        said = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in query.items()
        }
        async with await trio.open_tcp_stream("127.0.0.1", self.place.port) as stream:
            ask = (
                f"GET /stream?{urlencode(said)} HTTP/1.1\r\nHost: 127.0.0.1:{self.place.port}\r\n"
                f"Authorization: Bearer {self.token}\r\n\r\n"
            )
            await stream.send_all(ask.encode())
            feed = Feed(stream)
            while await feed.line() != ": here":
                pass
            yield feed

    @asynccontextmanager
    async def talking(self, hello: JSONObject | None = HELLO) -> AsyncIterator[Client]:
        """A socket; hello was said and answered where there is one."""
        target = f"/socket?access_token={self.token}"
        async with connected(self.place.port, target=target) as talk:
            if hello is not None:
                await talk.say(hello)
                assert (await talk.hear())["type"] == "hello"
            yield talk


def lines(*events: JSONObject) -> bytes:
    return b"".join(dump(one) + b"\n" for one in events)


@asynccontextmanager
async def checking(folder: Path, bounds: Bounds | None = None) -> AsyncIterator[Checker]:
    async with collecting(folder, bounds) as place:
        yield Checker(place, place.collector.access.grant(Role.CONTROL))


@pytest.fixture
async def checker(tmp_path: Path) -> AsyncIterator[Checker]:
    async with checking(tmp_path / "state") as made:
        yield made


# --- HTTP ----------------------------------------------------------------------------------------


async def test_discovery(checker: Checker) -> None:
    answer = await checker.get("/events")
    found = answer.json()
    assert answer.status_code == 200
    assert "0.1" in found["aep"]
    assert {"events", "stream", "socket"} <= found["endpoints"].keys()
    assert (await checker.get("/.well-known/aep")).json() == found


async def test_version_gate(checker: Checker) -> None:
    answer = await checker.post(started(), version="9.9")
    assert (answer.status_code, answer.json()["versions"]) == (426, ["0.1"])
    assert checker.place.collector.hub.taken == 0


async def test_reject_invalid(checker: Checker) -> None:
    nameless = {name: value for name, value in started().items() if name != "id"}
    answer = await checker.post(nameless)
    assert answer.status_code == 400
    assert isinstance(answer.json()["error"], str)


STORY = [
    started(),
    event(seq=1, type="tool.completed", data={"tool": {"name": "x"}, "status": "success"},
          cause="s-0"),
    event(seq=2, type="session.ended", data={"reason": "normal"}),
]  # fmt: skip


async def test_ingest_fanout(checker: Checker) -> None:
    async with checker.following({"filter": {"session": "s"}}) as feed:
        assert (await checker.post(event("other"), *STORY)).status_code == 202
        got = [await feed.next() for _ in STORY]
    assert got == STORY
    judge(got)


async def test_resume(checker: Checker) -> None:
    await checker.post(*STORY)
    since: JSON = [{"session": "s", "epoch": 1, "seq": 0}]
    async with checker.following({"filter": {"session": "s"}, "from": since}) as feed:
        assert [(await feed.next())["seq"] for _ in range(2)] == [1, 2]
        await checker.post(event(seq=3))
        assert (await feed.next())["seq"] == 3, "nothing comes twice"


async def test_capture_downlevel(checker: Checker) -> None:
    prompt = event(
        type="run.started",
        run="r",
        capture="redacted",
        data={"trigger": "user", "prompt": "CANARY"},
    )
    async with checker.following({"filter": {"session": "s"}, "capture": "metadata"}) as feed:
        await checker.post(prompt)
        got = await feed.next()
    assert got == {**prompt, "capture": "metadata", "data": {"trigger": "user"}}


async def test_replay_all(checker: Checker) -> None:
    await checker.post(started(), event(seq=1), started("t"))
    answer = await checker.get("/stream", **{"from": "all", "live": "0"})
    got = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [(one["session"], one["seq"]) for one in got] == [("s", 0), ("s", 1), ("t", 0)]
    assert "replay-exhausted" not in answer.text


# --- eviction: what is gone is said, and what is left is what was posted -------------------------

HELD = 16
FLOOD = [event(seq=seq) for seq in range(HELD + 8)]


@define
class Replays:
    """What a flooded session's replay is on both bindings, from a position that is gone."""

    stream: list[str]
    socket: list[str]


@pytest.fixture
async def flooded(tmp_path: Path) -> AsyncIterator[Replays]:
    since: JSON = [{"session": "s", "epoch": 1, "seq": 0}]
    async with checking(tmp_path / "state", Bounds(events=HELD)) as checker:
        buffer = (await checker.get("/events")).json()["capabilities"]["replay"]["buffer"]
        assert buffer == HELD
        assert (await checker.post(*FLOOD)).status_code == 202
        answer = await checker.get("/stream", **{"from": json.dumps(since), "live": "0"})
        async with checker.talking() as talk:
            await talk.say({"type": "subscribe", "id": "x", "from": since})
            assert await talk.hear() == {"type": "subscribed", "id": "x"}
            heard = [await talk.text() for _ in range(HELD + 1)]
        yield Replays(answer.text.splitlines(), heard)


async def test_evict_replay_exhausted(flooded: Replays) -> None:
    said = [line for line in flooded.stream if line.startswith((":", "data: "))]
    assert said[1] == f": replay-exhausted s 1:{len(FLOOD) - HELD}"
    assert json.loads(flooded.socket[0]) == {
        "type": "replay-exhausted",
        "sub": "x",
        "session": "s",
        "earliest": {"epoch": 1, "seq": len(FLOOD) - HELD},
    }
    got = [json.loads(line[6:])["seq"] for line in said if line.startswith("data: ")]
    assert got == [one["seq"] for one in FLOOD[-HELD:]]
    assert [json.loads(text)["seq"] for text in flooded.socket[1:]] == got


async def test_evict_byte_identity(flooded: Replays) -> None:
    posted = lines(*FLOOD[-HELD:]).decode().splitlines()
    assert [line[6:] for line in flooded.stream if line.startswith("data: ")] == posted
    assert flooded.socket[1:] == posted


# --- the socket ----------------------------------------------------------------------------------


async def test_hello_ws(checker: Checker) -> None:
    async with checker.talking(None) as talk:
        await talk.say(started())
        assert (await talk.hear())["code"] == "hello-required"
    async with checker.talking(None) as talk:
        await talk.say({"type": "hello", "versions": ["9.9"], "role": "consumer"})
        answer = await talk.hear()
        assert (answer["code"], answer["versions"]) == ("version-unsupported", ["0.1"])
    async with checker.talking(None) as talk:
        await talk.say({"type": "hello", "versions": ["0.1", "9.9"], "role": "consumer"})
        assert (await talk.hear())["versions"] == ["0.1"]


@pytest.mark.parametrize(
    "since",
    [[{"session": f"s-{number}", "epoch": 0, "seq": 0} for number in range(1_024)], {}],
    ids=["too-many", "malformed"],
)
async def test_subscribe_limits(checker: Checker, since: JSON) -> None:
    async with checker.talking() as talk:
        await talk.say(
            {"type": "subscribe", "id": "odd", "filter": {"type": ["agent.*"]}, "from": since},
            {"type": "subscribe", "id": "plain", "filter": {"type": ["agent.*"]}},
        )
        refusal = await talk.hear()
        assert (refusal["type"], refusal["id"]) == ("error", "odd")
        assert refusal["code"] in SUBSCRIBE_CODES
        assert await talk.hear() == {"type": "subscribed", "id": "plain"}


async def test_ignore_unknown(checker: Checker) -> None:
    async with checker.talking({**HELLO, "capabilities": {"futurecap": {"on": True}}}) as talk:
        await talk.say({"type": "zigzag", "note": 1}, {"type": "subscribe", "id": "x"})
        assert await talk.hear() == {"type": "subscribed", "id": "x"}


async def test_roster(checker: Checker) -> None:
    async with checker.talking(EMITTER) as claimant, checker.talking() as talk:
        await claimant.say(started(), {"type": "roster", "id": "mine"})
        refusal = await claimant.hear()
        assert (refusal["type"], refusal["id"], refusal["code"]) == (
            "error",
            "mine",
            "unauthorized",
        )
        await claimant.say({"type": "ping", "t": 1})
        assert (await claimant.hear())["type"] == "pong"
        await talk.say({"type": "roster", "id": "r"})
        assert await talk.hear() == {
            "type": "roster",
            "id": "r",
            "entries": [
                {
                    "session": "s",
                    "agent": "target",
                    "instance": "here",
                    "emits": ["session"],
                    "control": {"accepts": ["control.cancel"], "ack_window_ms": 7_000},
                }
            ],
        }


# --- control that goes nowhere -------------------------------------------------------------------


async def test_control_auth_gate(checker: Checker) -> None:
    """Nobody gets a socket without a token; one that observes commands nothing."""
    with pytest.raises(DeniedError) as denied:
        async with connected(checker.place.port):
            pass
    assert denied.value.status == 401
    looker = Checker(checker.place, checker.place.collector.access.grant(Role.OBSERVE))
    async with checker.talking(EMITTER) as target, looker.talking() as sender:
        await target.say(started(), {"type": "ping", "t": 1})
        await target.until("pong")
        await sender.say(command())
        refusal = await sender.hear()
        assert (refusal["code"], refusal["cause"]) == ("unauthorized", "cmd")
        await target.say({"type": "ping", "t": 2})
        assert await target.hear() == {"type": "pong", "t": 2}, "nothing came to the target"
    assert "control.cancel" not in (await checker.get("/stream", **ALL)).text


ALL = {"from": "all", "live": "0"}


async def test_control_behalf_refusal(checker: Checker) -> None:
    await checker.post(started(), event(seq=1, type="run.started", run="r"))
    before = (await checker.get("/stream", **ALL)).text
    async with checker.talking() as sender:
        await sender.say(command(kind="control.pause"))
        refusal = await sender.hear()
    assert (refusal["type"], refusal["code"], refusal["cause"]) == ("error", "no-route", "cmd")
    assert (await checker.get("/stream", **ALL)).text == before


# --- control that arrives: our own emitter is the target -----------------------------------------


@pytest.fixture
async def target(checker: Checker, tmp_path: Path) -> AsyncIterator[Target]:
    folder = tmp_path / "home"
    folder.mkdir()
    async with targeting(folder, checker.place.port, checker.place.token, RESPOND) as made:
        await made.room.hook("SessionStart", {"source": "startup"})
        await made.room.hook("UserPromptSubmit", {"prompt": []})
        await made.delivered()
        yield made


def respond() -> JSONObject:
    return {
        **command(kind=RESPOND),
        "subject": "01KAEPNEVERASKED0000000000",
        "data": {"answer": {"option": "probe"}},
    }


async def test_control_ack(checker: Checker, target: Target) -> None:
    async with checker.talking() as sender:
        await sender.say({"type": "subscribe", "id": "x", "filter": {"session": "s"}})
        await sender.hear()
        await sender.say(respond())
        assert await sender.hear() == respond()
        answer = await sender.hear()
    assert (answer["type"], answer["cause"]) == ("control.accepted", "cmd")
    assert answer == target.room.events()[-1]
    judge(target.room.events())
    await target.delivered()
    replay = (await checker.get("/stream", **ALL)).text
    assert replay.index('"control.attention.respond"') < replay.index('"control.accepted"')


async def test_control_dedupe(checker: Checker, target: Target) -> None:
    async with checker.talking() as sender:
        await sender.say({"type": "subscribe", "id": "x", "filter": {"type": "control.accepted"}})
        await sender.hear()
        await sender.say(respond(), respond())
        first, second = await sender.text(), await sender.text()
    assert first == second
    assert len(target.obeyed) == 1


async def test_control_nack_unsupported(checker: Checker, target: Target) -> None:
    before = target.room.events()
    async with checker.talking() as sender:
        await sender.say(command(kind="control.pause"))
        refusal = await sender.hear()
    assert (refusal["code"], refusal["cause"]) == ("unsupported", "cmd")
    assert target.room.events() == before
    assert target.obeyed == []


async def test_control_cancel(checker: Checker) -> None:
    """A made target: it obeys, and says what became of its run."""
    async with checker.talking(EMITTER) as target, checker.talking() as sender:
        await sender.say({"type": "subscribe", "id": "x", "filter": {"session": "s"}})
        await sender.hear()
        await target.say(started(), event(seq=1, type="run.started", run="r"))
        assert [(await sender.hear())["seq"] for _ in range(2)] == [0, 1]
        cancel = {**command(), "run": "r"}
        await sender.say(cancel)
        assert await target.hear() == cancel
        accepted = event(seq=2, type="control.accepted", cause="cmd")
        cancelled = event(seq=3, type="run.cancelled", run="r", cause="cmd")
        await target.say(accepted, cancelled)
        assert [await sender.hear() for _ in range(3)] == [cancel, accepted, cancelled]
