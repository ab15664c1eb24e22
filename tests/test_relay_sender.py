"""Delivery over real WebSockets on loopback: nothing is lost, whatever the relay does."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field

from fake_relay import TOKEN, FakeRelay
from kimiaepd.backoff import BASE_SECONDS, Backoff
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.relay import frames
from kimiaepd.relay import sender as sender_room
from kimiaepd.relay.address import address_of
from kimiaepd.relay.outbox import Outbox, Window
from kimiaepd.relay.positions import Positions, Proven
from kimiaepd.relay.recent import RecentPositions
from kimiaepd.relay.rejects import Rejects
from kimiaepd.relay.sender import RelaySender
from kimiaepd.settings import RelaySettings, RelayUrl
from kimiaepd.storage.journal import Journal, LogPolicy, Position
from kimiaepd.storage.log_reader import position_of
from kimiaepd.supervisor import Supervisor


def line(session: str, epoch: int, seq: int, filler: int = 0) -> bytes:
    event = {
        "aep": "0.1", "id": f"{session}-{epoch}-{seq}", "type": "tool.completed",
        "time": "2026-11-30T00:00:00.000Z", "source": f"aep://host/{session}",
        "agent": "kimi-code", "session": session, "seq": seq, "epoch": epoch,
        "capture": "metadata", "data": {"filler": "x" * filler},
    }  # fmt: skip
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


@define(eq=False)
class Post:
    """A log and the sender that delivers it."""

    folder: Path
    relay: FakeRelay
    journal: Journal
    positions: Proven
    sender: RelaySender
    seqs: dict[str, int] = field(factory=dict)
    epoch: int = 1

    def log(self, session: str = "s", count: int = 1, filler: int = 0) -> None:
        for _ in range(count):
            seq = self.seqs[session] = self.seqs.get(session, -1) + 1
            text = line(session, self.epoch, seq, filler)
            self.journal.append(session, text, droppable=False)
            self.sender.logged(session, (self.epoch, seq), text)

    def logged(self) -> set[str]:
        return {
            json.loads(text)["id"]
            for session in self.journal.sessions()
            for text in self.journal.read(session)
        }


@asynccontextmanager
async def post(
    folder: Path,
    relay: FakeRelay,
    *,
    window: Window | None = None,
    rotate_bytes: int = 4096,
    supervisor: Supervisor | None = None,
    positions: RecentPositions | None = None,
) -> AsyncIterator[Post]:
    """The sender runs from here to the end of the block, and is then cut off."""
    address = address_of(RelaySettings(RelayUrl(relay.url)))
    assert address is not None
    folder.mkdir(exist_ok=True)
    journal = Journal.open(folder / "log", policy=LogPolicy(sync="os", rotate_bytes=rotate_bytes))
    durable = None if positions else Positions.open(folder, address.url)
    proven = durable or positions
    assert proven is not None
    sender = RelaySender(
        address=address,
        token=lambda: TOKEN,
        log_dir=folder / "log",
        positions=proven,
        rejects=Rejects(folder / "rejected.jsonl"),
        hello=lambda _: frames.hello("host/1", Capture.METADATA, ()),
        outbox=Outbox(window or Window(), is_complete=False),
        backoff=Backoff(lambda *_: 0.01),
    )
    try:
        async with trio.open_nursery() as nursery:
            if supervisor:
                await nursery.start(supervisor.run, sender.run)
            else:
                await nursery.start(sender.run)
            yield Post(folder, relay, journal, proven, sender)
            nursery.cancel_scope.cancel()
    finally:
        if durable:
            durable.close()
        journal.close()


@pytest.fixture
async def relay() -> AsyncIterator[FakeRelay]:
    relay = FakeRelay()
    async with trio.open_nursery() as nursery:
        await nursery.start(relay.run)
        yield relay
        nursery.cancel_scope.cancel()


def in_order(relay: FakeRelay) -> None:
    """Within a session the first arrivals are in order."""
    last: dict[JSON, Position] = {}
    seen = set()
    for event in relay.events:
        if event["id"] not in seen:
            seen.add(event["id"])
            at = position_of(event)
            assert at is not None
            assert last.get(event["session"], (-1, -1)) < at
            last[event["session"]] = at


async def test_what_is_logged_arrives_byte_for_byte_and_is_proven(
    tmp_path: Path, relay: FakeRelay
) -> None:
    async with post(tmp_path, relay) as p:
        p.log("a", 3)
        p.log("b", 2)
        await relay.until(lambda: p.sender.outbox.is_settled and len(relay.lines) == 5)
        assert [text.encode() + b"\n" for text in relay.lines if '"session":"a"' in text] == list(
            p.journal.read("a")
        )
        assert p.positions.get("a") == (1, 2)
        assert p.sender.status()["link"] == "up"
        assert p.sender.status()["delivered"] == 5
    assert relay.frames[0]["type"] == "hello"


async def test_a_relay_that_was_away_gets_everything_once_it_is_back(tmp_path: Path) -> None:
    relay = FakeRelay()
    async with trio.open_nursery() as nursery:
        await nursery.start(relay.run)
        nursery.cancel_scope.cancel()
    async with post(tmp_path, relay, window=Window(10, 1 << 20)) as p:
        for session in ("a", "b", "c"):
            p.log(session, 100)
        assert p.sender.outbox.lag.events == 300
        async with trio.open_nursery() as nursery:
            await nursery.start(relay.run)
            await relay.until(lambda: p.sender.outbox.is_settled)
            assert set(relay.ids()) == p.logged()
            in_order(relay)
            nursery.cancel_scope.cancel()
        assert p.sender.outbox.lag.events == 0


async def test_a_relay_that_hangs_up_now_and_then_gets_everything_in_order(
    tmp_path: Path, relay: FakeRelay
) -> None:
    relay.switches.drop_after = 37
    async with post(tmp_path, relay, window=Window(20, 1 << 20)) as p:
        for _ in range(20):
            for session in ("a", "b", "c"):
                p.log(session, 10, filler=100)
            await trio.lowlevel.checkpoint()
        await relay.until(lambda: p.sender.outbox.is_settled, 30)
        assert set(relay.ids()) == p.logged()
        in_order(relay)
    assert relay.connections > 10


async def test_what_was_not_proven_is_sent_again_after_a_restart(
    tmp_path: Path, relay: FakeRelay
) -> None:
    relay.switches.no_pong = True
    async with post(tmp_path, relay) as p:
        p.log("a", 5)
        await relay.until(lambda: len(relay.lines) == 5)
    relay.switches.no_pong = False
    async with post(tmp_path, relay) as p:
        await relay.until(lambda: p.sender.outbox.is_complete and len(relay.lines) == 10)
        await relay.until(lambda: p.sender.outbox.is_settled)
    assert relay.lines[:5] == relay.lines[5:]
    async with post(tmp_path, relay) as p:
        p.epoch = 2
        p.log("b")
        await relay.until(lambda: p.sender.outbox.is_settled and p.positions.get("b") is not None)
    assert len(relay.lines) == 11


async def test_an_event_that_the_relay_refuses_is_set_aside_and_blocks_nothing(
    tmp_path: Path, relay: FakeRelay
) -> None:
    relay.switches.refuse_events = lambda event: event["seq"] == 1
    async with post(tmp_path, relay) as p:
        p.log("a", 4)
        await relay.until(lambda: p.sender.outbox.is_settled and len(relay.lines) == 4)
        status = p.sender.status()
    assert (status["rejected"], status["lag_events"]) == (1, 0)
    aside = json.loads((tmp_path / "rejected.jsonl").read_text())
    assert aside["code"] == "invalid-event"
    assert json.loads(aside["event"])["id"] == "a-1-1"


async def test_a_refused_token_is_said_and_tried_again_slowly(
    tmp_path: Path, relay: FakeRelay
) -> None:
    relay.switches.refuse = 401
    waits: list[float] = []

    def uniform(low: float, high: float) -> float:
        waits.append(high)
        return 0.01

    async with post(tmp_path, relay) as p:
        p.sender.backoff.uniform = uniform
        await relay.until(lambda: True)
        while len(waits) < 2:
            await trio.lowlevel.checkpoint()
        status = p.sender.status()
        assert status["link"] == "refused"
        assert status["last_error"] == "the relay refuses the token (HTTP 401)"
        relay.switches.refuse = None
        p.log("a")
        await relay.until(lambda: p.sender.outbox.is_settled)
    assert set(waits) == {300.0}


async def test_a_token_that_was_renewed_while_it_was_shown_is_no_reason_to_wait_for_minutes(
    tmp_path: Path, relay: FakeRelay
) -> None:
    relay.switches.refuse = 401
    waits: list[float] = []
    tokens = iter(["the-old-one"])

    def uniform(low: float, high: float) -> float:
        waits.append(high)
        relay.switches.refuse = None
        return 0.01

    async with post(tmp_path, relay) as p:
        p.sender.token = lambda: next(tokens, TOKEN)
        p.sender.backoff.uniform = uniform
        p.log("a")
        await relay.until(lambda: p.sender.outbox.is_settled)
    assert waits == [BASE_SECONDS]


@pytest.mark.parametrize("fails", ["last_event", "_behind", "Positions.starts"])
async def test_a_log_that_cannot_be_looked_through_at_once_loses_nothing(
    tmp_path: Path, relay: FakeRelay, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(sender_room, "LOOK_AGAIN_SECONDS", 0.01)
    relay.switches.refuse = 503
    async with post(tmp_path, relay) as p:
        p.log("a", 5)
    relay.switches.refuse = None
    owner, _, name = fails.rpartition(".")
    place: Any = Positions if owner else sender_room
    works = getattr(place, name)
    troubles = [OSError(errno.EMFILE, "too many files")]

    def sometimes(*args: object) -> object:
        if troubles:
            raise troubles.pop()
        return works(*args)

    monkeypatch.setattr(place, name, sometimes)
    async with post(tmp_path, relay) as p:
        p.seqs["a"] = 4
        p.log("a")
        await relay.until(lambda: p.sender.outbox.is_complete and p.sender.outbox.is_settled)
        assert relay.ids() == [f"a-1-{seq}" for seq in range(6)]
        assert not troubles


async def test_events_that_are_too_large_for_the_relay_stop_no_others(
    tmp_path: Path, relay: FakeRelay
) -> None:
    relay.switches.largest = 100_000
    async with post(tmp_path, relay) as p:
        p.log("a", 3)
        for filler in (120_000, 110_000):
            p.log("a", filler=filler)
        p.log("a", 3)
        p.log("a", filler=99_000)
        await relay.until(lambda: p.sender.outbox.is_settled)
        assert set(relay.ids()) == p.logged() - {"a-1-3", "a-1-4"}
        in_order(relay)
        assert p.sender.rejects.count == 2
        assert relay.connections <= 3


async def test_a_relay_that_finds_everything_too_large_is_not_believed(
    tmp_path: Path, relay: FakeRelay
) -> None:
    relay.switches.largest = 800
    async with post(tmp_path, relay) as p:
        p.log("a", filler=1_000)
        await relay.until(lambda: relay.connections > 3)
        assert p.sender.rejects.count == 0
        relay.switches.largest = None
        await relay.until(lambda: p.sender.outbox.is_settled)
        assert relay.ids() == ["a-1-0"]


async def test_a_session_whose_last_event_was_too_large_is_not_claimed_by_it(
    tmp_path: Path, relay: FakeRelay
) -> None:
    relay.switches.largest = 100_000
    async with post(tmp_path, relay) as p:
        p.log("a", filler=200_000)
        await relay.until(lambda: p.sender.outbox.is_settled and p.sender.rejects.count == 1)
    async with post(tmp_path, relay) as p:  # which knows nothing of the relay's limit
        p.sender.claims = lambda: ["a"]
        p.log("b")
        await relay.until(lambda: relay.ids() == ["b-1-0"])


async def test_a_defect_of_ours_is_not_shown_as_a_link(tmp_path: Path, relay: FakeRelay) -> None:
    def broken(_: JSONObject) -> None:
        raise KeyError("x")

    relay.switches.say = ('{"type":"x.acme.note"}',)
    relay.switches.refuse = 503
    async with post(tmp_path, relay, supervisor=Supervisor("relay", Backoff(lambda *_: 1e6))) as p:
        p.sender.command = broken
        await relay.until(lambda: p.sender.status()["link"] == "down")
        relay.switches.refuse = None
        words = "a defect of ours, which the daemon's own log has"
        await relay.until(lambda: p.sender.status()["last_error"] == words)
        assert p.sender.status()["link"] == "down"
