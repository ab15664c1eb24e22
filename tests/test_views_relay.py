"""The consumer that all views share: in order, once, across lost connections; and its commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import hypothesis
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from collector_room import Place, collecting
from conftest import ROOT
from kimiaepd import settings
from kimiaepd.errors import UsageError, UserError
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject, dump
from kimiaepd.relay.connection import LinkError, RefusedError
from kimiaepd.validate.shape import first_envelope_fault
from kimiaepd.views import relay_frames
from kimiaepd.views.relay import find
from kimiaepd.views.relay_command import CANCEL, RESPOND, Outcome, build, outcome_of
from kimiaepd.views.relay_consumer import (
    ACK_SECONDS,
    Change,
    Consumer,
    Wish,
    consuming,
)
from kimiaepd.views.relay_seen import Seen
from kimiaepd.views.relay_talk import PING_SECONDS, SILENT_SECONDS
from target_room import targeting
from test_collector_hub import event
from test_collector_socket import settle
from test_rooms import imports
from views_room import Scripted, ids, relay_at, relay_of, took, watching

ALL = Wish(since="all")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with collecting(tmp_path / "state") as made:
        yield made


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


async def post(place: Place, *events: JSONObject) -> None:
    async with place.client() as client:
        body = b"\n".join(dump(one) for one in events)
        headers = {"AEP-Version": "0.1", "Content-Type": "application/x-ndjson"}
        assert (await client.post("/events", content=body, headers=headers)).status_code == 202


# --- where it is ---------------------------------------------------------------------------------


def test_without_a_daemon_one_line_says_what_to_do(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    with pytest.raises(UserError, match=r"no daemon runs.*kimiaepd up"):
        find(settings.load(environ), environ)


async def test_a_relay_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    relay = relay_at(tmp_path, "ws://127.0.0.1:9", "token")
    with pytest.raises(UserError, match=r"ws://127\.0\.0\.1:9: cannot connect"):
        async with consuming(relay, ALL, "test"):
            pass


async def test_a_token_that_is_refused_is_said_with_what_to_do(
    tmp_path: Path, place: Place
) -> None:
    relay = relay_at(tmp_path, place.url, "wrong-wrong-wrong-wrong")
    with pytest.raises(UserError, match=r"refuses the token \(HTTP 401\); mend AEP_TOKEN"):
        async with consuming(relay, ALL, "test"):
            pass


def test_a_filter_that_is_none_is_the_user_s_error(tmp_path: Path) -> None:
    relay = relay_at(tmp_path, "ws://127.0.0.1:9", "token")
    with pytest.raises(UsageError, match="this filter is none: severity"):
        Consumer(relay, Wish({"severity": {"gte": "loud"}}), "test")


# --- at a real collector -------------------------------------------------------------------------


async def test_what_is_held_comes_and_then_what_comes(tmp_path: Path, place: Place) -> None:
    await post(place, event(seq=0), event(seq=1))
    async with consuming(relay_of(tmp_path, place), ALL, "test") as consumer:
        assert await ids(consumer, 3) == ["connected", "s-0", "s-1"]
        await post(place, event(seq=2), event("t"))
        assert await ids(consumer, 2) == ["s-2", "t-0"]


async def test_only_what_was_asked_for_comes_and_no_more_of_it(
    tmp_path: Path, place: Place
) -> None:
    told: JSONObject = {"severity": "warning", "message": "a secret"}
    await post(place, event(seq=0), event("t", capture="redacted", data=told))
    wish = Wish({"session": "t"}, since="all", ceiling=Capture.METADATA)
    async with consuming(relay_of(tmp_path, place), wish, "test") as consumer:
        assert await took(consumer) == Change("connected")
        came = await took(consumer)
    assert isinstance(came, dict)
    assert (came["id"], came["data"]) == ("t-0", {"severity": "warning"})


async def test_who_only_looks_on_is_nobody_who_could_answer(tmp_path: Path, place: Place) -> None:
    async with consuming(relay_of(tmp_path, place), ALL, "test"):
        assert not place.collector.hub.commanders
    async with consuming(relay_of(tmp_path, place, may_control=True), None, "test"):
        assert place.collector.hub.commanders


async def test_a_command_is_answered_by_the_session_and_by_the_relay(
    tmp_path: Path, place: Place
) -> None:
    async with targeting(tmp_path / "home", place.port, place.token, CANCEL) as target:
        await target.room.hook("UserPromptSubmit", {"prompt": []})
        await target.delivered()
        relay = relay_of(tmp_path, place, may_control=True)
        async with consuming(relay, None, "test") as consumer:
            accepted = await consumer.send(build(CANCEL, "s", data={"scope": "run"}))
            unsupported = await consumer.send(build(RESPOND, "s", subject="x", data={"answer": {}}))
            nowhere = await consumer.send(build(CANCEL, "nobody", data={"scope": "run"}))
            entries = await consumer.roster()
    assert accepted.is_accepted
    assert accepted.by == "session"
    assert [command.type for command in target.obeyed] == [CANCEL]
    assert (unsupported.by, unsupported.reason) == ("relay", "unsupported")
    assert (nowhere.by, nowhere.reason) == ("relay", "no-route")
    assert entries is not None
    assert [entry["session"] for entry in entries] == ["s"]


async def test_a_wish_for_other_events_gets_no_acknowledgements(
    tmp_path: Path, place: Place
) -> None:
    async with targeting(tmp_path / "home", place.port, place.token, CANCEL) as target:
        await target.room.hook("UserPromptSubmit", {"prompt": []})
        await target.delivered()
        relay = relay_of(tmp_path, place, may_control=True)
        async with consuming(relay, Wish({"type": "run.*"}, since="all"), "test") as consumer:
            assert (await consumer.send(build(CANCEL, "s", data={"scope": "run"}))).is_accepted
            await target.room.hook("Stop")
            items = [await took(consumer) for _ in range(3)]
    kinds = [item["type"] for item in items if isinstance(item, dict)]
    assert kinds == ["run.started", "run.finished"]


async def test_who_was_too_slow_is_cut_off_and_misses_nothing(tmp_path: Path, place: Place) -> None:
    told: JSONObject = {"message": "x" * 32_768}
    async with consuming(relay_of(tmp_path, place), ALL, "test") as consumer:
        for first in range(0, 600, 100):
            numbers = range(first, first + 100)
            await post(place, *(event(seq=seq, severity="notice", data=told) for seq in numbers))
        await settle(lambda: not place.collector.hub.subscriptions)
        came: list[JSON] = []
        while "s-599" not in came:
            came += await ids(consumer, 1)
    assert [one for one in came if one not in ("connected", "lost", "back")] == [
        f"s-{seq}" for seq in range(600)
    ]
    assert "lost" in came


async def test_a_wish_that_the_relay_refuses_ends_it_with_its_words(
    tmp_path: Path, place: Place
) -> None:
    relay = relay_of(tmp_path, place)
    consumer = Consumer(relay, Wish(), "test")
    consumer.wish = Wish({"seq": 1})  # as a relay of another mind would see it
    with pytest.RaisesGroup(pytest.RaisesExc(UserError, match="invalid-filter no filter can ask")):
        async with trio.open_nursery() as nursery:
            await nursery.start(consumer.run)


# --- lost connections, on a clock of our own -----------------------------------------------------


async def test_everything_is_asked_for_again_and_what_was_had_comes_once(
    scripted: Scripted, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with watching(scripted, ALL, tmp_path) as (consumer, first):
        first.say(event(seq=0), event(seq=1))
        assert await ids(consumer, 2) == ["s-0", "s-1"]
        first.breaks()
        assert await took(consumer) == Change("lost", "the connection broke")
        line = await scripted.line()
        assert (await line.subscribed())["from"] == "all"
        line.say(event(seq=0), event(seq=1), event(seq=2), event("new"))
        assert await ids(consumer, 3) == ["back", "s-2", "new-0"]


async def test_what_is_new_is_asked_for_from_where_we_were_and_what_began_meanwhile(
    scripted: Scripted, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with watching(scripted, Wish(), tmp_path) as (consumer, first):
        first.say(event(seq=4))
        assert await ids(consumer, 1) == ["s-4"]
        first.breaks()
        line = await scripted.line()
        asked = await line.hears("roster")
        claimed: list[JSON] = [{"session": "s"}, {"session": "new"}]
        line.say({"type": "roster", "id": asked["id"], "entries": claimed})
        assert (await line.subscribed())["from"] == [
            {"session": "new", "epoch": 0, "seq": 0},
            {"session": "s", "epoch": 1, "seq": 4},
        ]
        gone: JSONObject = {"type": "replay-exhausted", "sub": "wish", "session": "s"}
        line.say({**gone, "session": "new"}, event("new"), gone, event(seq=9))
        assert await ids(consumer, 2) == ["lost", "back"]
        assert await ids(consumer, 1) == ["new-0"]
        assert await took(consumer) == Change("missing", "s")
        assert await ids(consumer, 1) == ["s-9"]


async def test_a_relay_that_says_nothing_is_left_and_one_that_pings_is_answered(
    scripted: Scripted, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with watching(scripted, ALL, tmp_path) as (consumer, line):
        line.say({"type": "ping", "t": [1]})
        assert (await line.hears("pong"))["t"] == [1]
        began = trio.current_time()
        assert await took(consumer) == Change(
            "lost", f"the relay was silent for {SILENT_SECONDS:g} s"
        )
        assert SILENT_SECONDS <= trio.current_time() - began <= SILENT_SECONDS + PING_SECONDS


async def test_a_relay_that_does_not_answer_what_is_asked_is_left(
    scripted: Scripted, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with watching(scripted, ALL, tmp_path) as (consumer, first):
        first.breaks()
        await scripted.line()
        lost = [await took(consumer) for _ in range(3)]
    assert lost[1:] == [Change("back"), Change("lost", "the relay gave no answer within 10 s")]


async def test_who_does_not_take_what_comes_is_not_told_that_the_relay_is_silent(
    scripted: Scripted, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with watching(scripted, ALL, tmp_path) as (consumer, line):
        line.say(*(event(seq=seq) for seq in range(300)))
        await trio.sleep(10 * SILENT_SECONDS)
        assert await ids(consumer, 300) == [f"s-{seq}" for seq in range(300)]


async def test_a_refused_token_ends_it_and_a_closing_relay_does_not(
    scripted: Scripted, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with watching(scripted, ALL, tmp_path) as (consumer, line):
        scripted.refusals = [LinkError("busy", retry_after=200), RefusedError("the relay says no")]
        began = trio.current_time()
        line.say({"type": "closing", "reason": "shut\x1bdown"})
        assert await took(consumer) == Change("lost", "the relay closes: shut\ufffddown")
        with pytest.raises(UserError, match="says no; mend AEP_TOKEN"):
            await took(consumer)
        assert trio.current_time() - began >= 200
        with pytest.raises(UserError, match="says no"):
            await consumer.send(build(CANCEL, "s"))


async def test_a_command_goes_again_over_the_next_connection_as_it_was(
    scripted: Scripted, tmp_path: Path, autojump_clock: MockClock
) -> None:
    got: list[Outcome] = []
    command = build(CANCEL, "s", data={"scope": "run"})

    async with watching(scripted, None, tmp_path, may_control=True) as (consumer, first):

        async def send() -> None:
            got.append(await consumer.send(command))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            assert await first.hears(CANCEL) == command
            first.breaks()
            line = await scripted.line()
            assert (await line.hears("subscribe"))["filter"] == {
                "type": ["control.accepted", "control.rejected"]
            }
            assert await line.hears(CANCEL) == command
            ack = event(type="control.rejected", cause=command["id"], data={"reason": "busy"})
            line.say(event(type="control.accepted", cause="another's"), ack)
    assert [(one.by, one.reason, one.ack) for one in got] == [("session", "busy", ack)]


async def test_a_command_that_nobody_answers_ends_in_time(
    scripted: Scripted, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with watching(scripted, None, tmp_path, may_control=True) as (consumer, line):
        began = trio.current_time()
        outcome = await consumer.send(build(CANCEL, "s"))
        assert (outcome.by, outcome.reason) == ("nobody", "timeout")
        assert trio.current_time() - began == 2 * ACK_SECONDS
        first, second = await line.hears(CANCEL), await line.hears(CANCEL)
        assert first == second


# --- the room --


FORBIDDEN = {"commands", "delivery", "emitter", "hook_socket", "instruct", "lifecycle"} | {
    *("nursery", "observer", "own_relay", "sessions", "supervisor"),
}
"""The daemon's inside."""


def test_a_view_reaches_not_into_the_daemon() -> None:
    for file in (ROOT / "kimiaepd/views").glob("*.py"):
        rooms = {name.split(".")[1] for name in imports(file) if name.startswith("kimiaepd.")}
        assert rooms & FORBIDDEN == set(), file


# --- pure parts ----------------------------------------------------------------------------------


def test_a_command_is_an_event_that_the_standard_takes() -> None:
    said: JSONObject = {"answer": {"option": "allow"}}
    for command in (build(RESPOND, "s", subject="ask", cause="ask", data=said), build(CANCEL, "s")):
        assert first_envelope_fault(command) is None
        assert "seq" not in command


def test_an_acknowledgement_says_why_and_is_never_taken_for_another() -> None:
    assert outcome_of({"type": "control.accepted"}).is_accepted
    odd = outcome_of({"type": "control.rejected", "data": {"reason": "accepted", "detail": "\x1b"}})
    assert (odd.is_accepted, odd.reason, odd.detail) == (False, "invalid", "\ufffd")


def test_what_was_long_ago_is_passed_over_where_its_session_is_new() -> None:
    seen = Seen(datetime(2026, 11, 30, 12, tzinfo=UTC))
    now: JSON = "2026-11-30T12:00:01.000Z"
    assert not seen.takes(event(seq=0))
    assert seen.takes(event(seq=1, time=now))
    assert seen.takes(event(seq=2))  # its session is known, whatever its clock says
    assert not seen.takes(event(seq=2))
    assert seen.takes(event("t", time="yesterday"))


def test_a_relay_that_is_filled_again_repeats_nothing_however_much() -> None:
    seen = Seen()
    assert all(seen.takes(event(seq=seq)) for seq in range(10))
    seen._ids.clear()
    seen.reconnecting()
    assert not any(seen.takes(event(seq=seq)) for seq in range(10))
    assert seen.takes(event(seq=3, source="aep://another", id="x"))
    assert seen.takes(event(seq=10))
    assert seen.positions(5) == [("s", (1, 10))]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
frames = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("id", "cause", "code", "detail", "t", "session", "source"), json_values),
        **dict.fromkeys(("entries", "versions", "capabilities", "reason", "time"), json_values),
        **dict.fromkeys(("epoch", "seq"), json_values | st.integers()),
        "type": st.sampled_from(
            ["hello", "subscribed", "roster", "replay-exhausted", "error", "ping", "closing", "a.b"]
        ),
    },
)


@hypothesis.settings(
    max_examples=60, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
@given(st.lists(frames, max_size=4))
def test_no_message_of_a_relay_is_too_odd(messages: list[dict[str, JSON]]) -> None:
    seen = Seen(datetime(2026, 11, 30, tzinfo=UTC))
    for message in messages:
        frame = relay_frames.read_frame(dump(message).decode())
        if isinstance(frame, relay_frames.Came):
            seen.takes(frame.event)
            outcome_of(frame.event)
            seen.reconnecting()
        if isinstance(frame, relay_frames.Refusal):
            assert (frame.code + frame.detail).isprintable()
