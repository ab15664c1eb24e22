"""One connection's talk: hello, claims, barriers, keepalives and goodbye, in virtual time."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from attrs import define, field
from trio.testing import MockClock, memory_stream_pair
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.relay import frames
from kimiaepd.relay.address import Address
from kimiaepd.relay.backlog import Backlog, Extent, Item
from kimiaepd.relay.connection import LinkError, connected
from kimiaepd.relay.link import PING_SECONDS, SETTLE_SECONDS, SILENT_SECONDS, Link, Orders
from kimiaepd.relay.outbox import PIECE, Outbox, Window
from kimiaepd.storage.journal import Journal, LogPolicy, Position

PLACE = Address("ws://relay", "relay", 80, is_tls=False, path="")
HELLO = '{"type":"hello","versions":["0.1"]}'


@define(eq=False)
class Scripted:
    """The relay's end: what it heard, and a place to say something.

    Attributes:
        heard: every message, read.
        answers_pings: whether it does what a relay must.
        hello: what it says first.
    """

    heard: list[JSONObject] = field(factory=list)
    answers_pings: bool = True
    hello: str | None = HELLO
    connection: WebSocketConnection | None = None
    came: trio.Event = field(factory=trio.Event)

    async def serve(self, stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as nursery:
            request = await wrap_server_stream(nursery, stream)
            self.connection = await request.accept()
            with suppress(ConnectionClosed):
                while True:
                    await self._take(json.loads(await self.connection.get_message()))
            nursery.cancel_scope.cancel()

    async def _take(self, message: JSONObject) -> None:
        self.heard.append(message)
        if message["type"] == "hello" and self.hello:
            await self.say(self.hello)
        if message["type"] == "ping" and self.answers_pings:
            await self.say(json.dumps({"type": "pong", "t": message["t"]}))
        self.came.set()
        self.came = trio.Event()

    async def say(self, text: str) -> None:
        assert self.connection is not None
        await self.connection.send_message(text)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.came.wait()

    def ids(self) -> list[JSON]:
        return [message["id"] for message in self.heard if message["type"] == "x.y"]

    def types(self) -> list[JSON]:
        return [message["type"] for message in self.heard]


@define(eq=False)
class Room:
    """A link, what it was told to do, and what it told."""

    link: Link
    relay: Scripted
    run: Callable[[], Awaitable[None]]
    proven: dict[str, Position]
    refused: list[tuple[str, str]]
    commands: list[JSONObject]

    def log(self, session: str, seq: int, filler: int = 0) -> Item:
        event = {"type": "x.y", "id": f"{session}{seq}", "seq": seq, "epoch": 1, "d": "x" * filler}
        item = Item(session, (1, seq), json.dumps(event, separators=(",", ":")).encode())
        self.link.outbox.offer(item, None)
        self.link.wake()
        return item


@asynccontextmanager
async def room(
    folder: Path, relay: Scripted | None = None, claims: list[tuple[str, Position]] | None = None
) -> AsyncIterator[Room]:
    """A link to a scripted relay; `run` talks to its end."""
    relay = relay or Scripted()
    ours, theirs = memory_stream_pair()

    async def open_stream(_: Address) -> trio.abc.Stream:
        return ours

    proven: dict[str, Position] = {}
    refused: list[tuple[str, str]] = []
    commands: list[JSONObject] = []
    orders = Orders(
        log_dir=folder,
        hello=frames.hello("host/1", Capture.METADATA, ()),
        up=lambda: None,
        first=[b'{"type":"agent.presence","data":{"state":"online"}}'],
        last=lambda: [b'{"type":"agent.presence","data":{"state":"offline"}}'],
        claims=lambda: claims or [],
        proven=proven.update,
        refused=lambda item, why: refused.append((item.id or "?", why.code)),
        command=commands.append,
    )
    link = Link(Outbox(), orders, trio.Event())
    run = partial(connected, PLACE, None, link.talk, open_stream=open_stream)
    made = Room(link, relay, run, proven, refused, commands)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay.serve, theirs)
        yield made
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def talking(made: Room) -> AsyncIterator[None]:
    """The link talks until the block ends."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await made.relay.until(lambda: "agent.presence" in made.relay.types())
        yield
        nursery.cancel_scope.cancel()


async def test_it_begins_with_hello_then_presence_then_events_and_a_barrier(
    tmp_path: Path,
) -> None:
    async with room(tmp_path) as made, talking(made):
        made.log("a", 0)
        made.log("a", 1)
        await made.relay.until(lambda: "ping" in made.relay.types())
        await trio.testing.wait_all_tasks_blocked()
        assert made.proven == {"a": (1, 1)}
        assert made.relay.types() == ["hello", "agent.presence", "x.y", "x.y", "ping"]
        assert made.link.is_up
    assert not made.link.is_up


async def test_it_ends_with_what_is_there_then_offline_and_closing(tmp_path: Path) -> None:
    async with room(tmp_path) as made:
        made.log("a", 0)
        made.link.stopping.set()
        await made.run()
        *_, ping, offline, closing = made.relay.heard
        assert ping["type"] == "ping"
        assert offline["data"] == {"state": "offline"}
        assert closing == {"type": "closing", "reason": "shutdown", "delivered": []}
        assert made.proven == {"a": (1, 0)}


async def test_a_stop_says_goodbye_also_where_not_all_can_be_delivered_in_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with room(tmp_path) as made:
        made.relay.answers_pings = False
        made.log("a", 0)
        made.link.stopping.set()
        await made.run()
        assert trio.current_time() == pytest.approx(SETTLE_SECONDS, abs=0.5)
        assert made.relay.types()[-2:] == ["agent.presence", "closing"]
        assert made.proven == {}


async def test_sessions_that_go_on_are_claimed_by_their_last_proven_event(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, policy=LogPolicy(sync="os"))
    lines = [b'{"type":"x.y","id":"c%d","seq":%d,"epoch":1}\n' % (seq, seq) for seq in range(3)]
    for line in lines:
        journal.append("c", line, droppable=False)
    async with room(tmp_path, claims=[("c", (1, 1)), ("gone", (1, 5))]) as made:
        made.log("a", 0)
        async with talking(made):
            await made.relay.until(lambda: "ping" in made.relay.types())
            await trio.testing.wait_all_tasks_blocked()
            assert [one.get("id") for one in made.relay.heard[2:4]] == ["c1", "a0"]
            assert made.proven == {"a": (1, 0)}
    journal.close()


async def test_claims_hold_up_neither_what_is_new_nor_an_answer(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, policy=LogPolicy(sync="os"))
    sessions = [f"c{number}" for number in range(40)]
    for session in sessions:
        line = b'{"type":"x.y","id":"%b","seq":0,"epoch":1}\n' % session.encode()
        journal.append(session, line, droppable=False)
    async with room(tmp_path, claims=[(session, (1, 0)) for session in sessions]) as made:
        made.link.outbox = Outbox(Window(4, 1 << 20))
        made.log("a", 0)
        made.link._owe(frames.pong("here"))
        with trio.fail_after(PING_SECONDS / 2):
            async with talking(made):
                await made.relay.until(lambda: "a0" in made.relay.ids())
        assert "pong" in made.relay.types()[:5]
    journal.close()


async def test_a_claim_of_a_line_that_is_no_utf_8_or_too_long_ends_nothing(
    tmp_path: Path,
) -> None:
    journal = Journal.open(tmp_path, policy=LogPolicy(sync="os"))
    line = b'{"type":"x.y","id":"%b","seq":0,"epoch":1,"d":"%b"}\n'
    journal.append("c", line % (b"c", b"\xff"), droppable=False)
    journal.append("d", line % (b"d", b"x" * 2_000), droppable=False)
    async with room(tmp_path, claims=[("c", (1, 0)), ("d", (1, 0))]) as made:
        made.link.largest = 1_000
        made.log("a", 0)
        async with talking(made):
            await made.relay.until(lambda: "ping" in made.relay.types())
        assert made.relay.ids() == ["c", "a0"]
    journal.close()


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ('{"type":"hello","versions":["0.2"]}', "the relay speaks AEP 0.2 only"),
        ('{"type":"hello"}', r"the relay speaks AEP \? only"),
        (json.dumps({"type": "hello", "versions": ["9" * 999] * 9}), "speaks AEP 9{100} only$"),
        (
            '{"type":"error","code":"version-unsupported","detail":"old"}',
            "the relay refuses us: version-unsupported old",
        ),
        (None, "the relay said no hello within 5 s"),
        ("garbage", "the relay said no hello within 5 s"),
    ],
)
async def test_a_relay_without_a_fit_hello_is_left(
    tmp_path: Path, hello: str | None, words: str, autojump_clock: MockClock
) -> None:
    async with room(tmp_path, Scripted(hello=hello)) as made:
        with pytest.raises(LinkError, match=words):
            await made.run()
        assert not made.link.is_up


async def test_a_quiet_link_is_kept_alive_by_pings(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with room(tmp_path) as made, talking(made):
        await trio.sleep(10 * PING_SECONDS + 1)
        assert made.relay.types().count("ping") == 10


async def test_a_relay_that_goes_silent_is_given_up_in_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with room(tmp_path) as made:
        made.relay.answers_pings = False
        with pytest.raises(LinkError, match="silent for 90 s"):
            await made.run()
        assert trio.current_time() == pytest.approx(SILENT_SECONDS, abs=1)


async def test_a_relay_that_dies_between_two_looks_is_given_up_as_soon(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with room(tmp_path) as made, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def speak_once() -> None:
            await trio.sleep(5)
            await made.relay.say('{"type":"roster"}')

        made.relay.answers_pings = False
        with pytest.raises(LinkError, match="silent for 90 s"):
            await made.run()
        assert trio.current_time() == pytest.approx(5 + SILENT_SECONDS, abs=1)


@pytest.mark.parametrize("pong", ["999999", "true", '"1"', "null", "1.5", "[1]", "-1"])
async def test_a_relay_that_talks_but_owes_an_answer_is_given_up_too(
    tmp_path: Path, autojump_clock: MockClock, pong: str
) -> None:
    async def chatter(relay: Scripted) -> None:
        while True:
            await trio.sleep(10)
            with suppress(ConnectionClosed):
                await relay.say('{"type":"ping","t":1}')
                await relay.say(f'{{"type":"pong","t":{pong}}}')

    async with room(tmp_path) as made:
        made.relay.answers_pings = False
        made.log("a", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chatter, made.relay)
            with trio.fail_after(SILENT_SECONDS + 2 * PING_SECONDS):
                with pytest.raises(LinkError, match="owes an answer"):
                    await made.run()
            nursery.cancel_scope.cancel()
        assert made.proven == {}


async def test_the_relays_ping_is_answered_before_more_events(tmp_path: Path) -> None:
    async with room(tmp_path) as made, talking(made):
        await made.relay.say('{"type":"ping","t":"here"}')
        await made.relay.until(lambda: "pong" in made.relay.types())
        assert {"type": "pong", "t": "here"} in made.relay.heard


async def test_a_flood_of_pings_takes_no_memory(tmp_path: Path) -> None:
    async with room(tmp_path) as made:
        for number in range(1_000):
            made.link._handle(frames.Ping(number))
        assert len(made.link._owed) == 64


async def test_pieces_grow_with_each_answer_and_not_without_end(tmp_path: Path) -> None:
    async with room(tmp_path) as made:
        sizes = [made.link._piece]
        for number in range(1, 12):
            made.link._barriers.append((number, 0.0))
            made.link._handle(frames.Pong(number))
            sizes.append(made.link._piece)
        assert sizes == [min(sizes[0] << times, PIECE.events) for times in range(12)]


async def test_a_flood_of_complaints_is_one_line_of_our_log(tmp_path: Path) -> None:
    async with room(tmp_path) as made:
        with structlog.testing.capture_logs() as lines:
            for number in range(100):
                made.link._handle(frames.Refusal("busy", None, str(number)))
        assert [line["detail"] for line in lines] == ["0"]
        assert made.link.complaint == "busy 99"


async def test_a_relay_that_says_it_closes_is_left(tmp_path: Path) -> None:
    async with room(tmp_path) as made, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def close() -> None:
            await made.relay.until(lambda: "agent.presence" in made.relay.types())
            await made.relay.say('{"type":"closing","reason":"restart"}')

        with pytest.raises(LinkError, match="the relay closes: restart"):
            await made.run()


async def test_an_error_about_an_event_sets_it_aside_and_another_is_kept_for_people(
    tmp_path: Path,
) -> None:
    async with room(tmp_path) as made:
        made.relay.answers_pings = False
        async with talking(made):
            made.log("a", 0)
            await made.relay.until(lambda: "ping" in made.relay.types())
            await made.relay.say('{"type":"error","code":"invalid-event","cause":"a0"}')
            await made.relay.say('{"type":"error","code":"busy","detail":"later"}')
            await made.relay.say('{"type":"control.cancel","id":"k"}')
            while not made.commands:
                await trio.testing.wait_all_tasks_blocked()
            assert made.refused == [("a0", "invalid-event")]
            assert made.link.complaint == "busy later"
            assert made.commands == [{"type": "control.cancel", "id": "k"}]


async def test_an_event_that_no_relay_takes_is_set_aside_unsent(tmp_path: Path) -> None:
    async with room(tmp_path) as made, talking(made):
        made.link.largest = 1_000
        made.log("a", 0, filler=2_000)
        made.log("a", 1)
        await made.relay.until(lambda: "ping" in made.relay.types())
        await trio.testing.wait_all_tasks_blocked()
        assert made.refused == [("a0", "too-large")]
        assert [one["id"] for one in made.relay.heard if one["type"] == "x.y"] == ["a1"]
        assert made.proven == {"a": (1, 1)}


async def test_a_session_that_falls_behind_again_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, policy=LogPolicy(sync="os"))
    lines = [b'{"type":"x.y","id":"a%d","seq":%d,"epoch":1}\n' % (seq, seq) for seq in range(24)]
    async with room(tmp_path) as made:
        made.link.outbox = Outbox(Window(4, 1 << 20))

        def log(seq: int) -> None:
            journal.append("a", lines[seq], droppable=False)
            made.link.outbox.offer(Item("a", (1, seq), lines[seq].rstrip()), None)
            made.link.wake()

        async def deliver(seqs: range) -> None:
            for seq in seqs:
                log(seq)
            with trio.fail_after(10):
                while made.proven.get("a") != (1, seqs[-1]):
                    await trio.testing.wait_all_tasks_blocked(0.001)

        for seq in range(9):  # more than fits in memory: the rest of it comes from disk
            log(seq)
        async with talking(made):
            await deliver(range(9, 10))
            await deliver(range(10, 13))  # these fit
            await deliver(range(13, 24))
            sent = [one["id"] for one in made.relay.heard if one["type"] == "x.y"]
            assert sent == [f"a{seq}" for seq in range(24)]
            assert made.link.outbox.is_settled
    journal.close()


async def test_a_log_that_cannot_be_read_now_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.05  # threads are at work
    opened = Backlog.open
    troubles = [OSError(errno.EMFILE, "too many files"), OSError(errno.EIO, "a bad moment")]

    def sometimes(*args: Any) -> Backlog:
        if troubles:
            raise troubles.pop()
        return opened(*args)

    monkeypatch.setattr(Backlog, "open", sometimes)
    journal = Journal.open(tmp_path, policy=LogPolicy(sync="os"))
    lines = [b'{"type":"x.y","id":"a%d","seq":%d,"epoch":1}\n' % (seq, seq) for seq in range(4)]
    for line in lines[:3]:
        journal.append("a", line, droppable=False)
    async with room(tmp_path) as made, talking(made):
        made.link.outbox.adopt("a", (1, 2), None, Extent(3, 100))
        made.log("b", 0)
        await made.relay.until(lambda: "ping" in made.relay.types())
        journal.append("a", lines[3], droppable=False)
        made.link.outbox.offer(Item("a", (1, 3), lines[3].rstrip()), None)
        made.link.wake()
        await made.relay.until(lambda: "a3" in made.relay.ids())
        assert made.relay.ids() == ["b0", "a0", "a1", "a2", "a3"]
        assert trio.current_time() == pytest.approx(2 * PING_SECONDS, abs=1)
        assert made.link.outbox.missing == 0
    journal.close()


async def test_a_log_that_somebody_replaced_is_read_on(tmp_path: Path) -> None:
    def write(seqs: range) -> None:
        text = [b'{"type":"x.y","id":"a%d","seq":%d,"epoch":1}\n' % (seq, seq) for seq in seqs]
        (tmp_path / "a.jsonl").write_bytes(b"".join(text))
        (tmp_path / "a.jsonl").chmod(0o600)

    write(range(3))
    async with room(tmp_path) as made, talking(made):
        made.link.outbox.adopt("a", (1, 2), None, Extent(3, 100))
        made.link.wake()
        while not made.link.outbox.is_settled:
            await trio.testing.wait_all_tasks_blocked(0.001)
        (tmp_path / "a.jsonl").unlink()
        write(range(3, 6))
        made.link.outbox.adopt("a", (1, 5), (1, 2), Extent(3, 100))
        made.link.wake()
        await made.relay.until(lambda: "a5" in made.relay.ids())
        assert made.link.outbox.missing == 0


async def test_a_connection_that_ends_while_a_thread_reads_leaves_its_files_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, done = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    read = Backlog.read
    found: list[Item] = []

    def slowly(backlog: Backlog, most_events: int, most_bytes: int) -> list[Item]:
        go_on.wait(10)
        found.extend(read(backlog, most_events, most_bytes))
        token.run_sync_soon(done.set)
        return found

    monkeypatch.setattr(Backlog, "read", slowly)
    journal = Journal.open(tmp_path, policy=LogPolicy(sync="os"))
    journal.append("a", b'{"type":"x.y","id":"a0","seq":0,"epoch":1}\n', droppable=False)
    async with room(tmp_path) as made:
        async with talking(made):
            made.link.outbox.adopt("a", (1, 0), None, Extent(1, 40))
            made.link.wake()
            await trio.testing.wait_all_tasks_blocked(0.01)
        go_on.set()
        await done.wait()
        assert [item.id for item in found] == ["a0"]
        assert made.proven == {}
    journal.close()


async def test_what_comes_while_an_answer_is_due_asks_for_one_more_and_not_one_each(
    tmp_path: Path,
) -> None:
    relay = Scripted(answers_pings=False)
    async with room(tmp_path, relay) as made, talking(made):

        async def log(seqs: range) -> None:
            for seq in seqs:
                made.log("a", seq)
                await trio.testing.wait_all_tasks_blocked()

        made.link._piece = 8
        await log(range(4))
        assert relay.types().count("ping") == 1
        await relay.say('{"type":"pong","t":1}')
        await trio.testing.wait_all_tasks_blocked()
        assert made.proven == {"a": (1, 0)}
        assert relay.types().count("ping") == 2
        made.link._piece = 8
        await log(range(4, 12))  # a piece of them is asked for, whatever is due
        assert relay.types().count("ping") == 3
        await relay.say('{"type":"pong","t":3}')
        await trio.testing.wait_all_tasks_blocked()
        assert made.proven == {"a": (1, 11)}
        assert made.link.outbox.is_settled
