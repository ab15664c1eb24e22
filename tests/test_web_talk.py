"""One connection in virtual time: who is asked for and when, and what may come in between."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kimiaepd.mapping import web
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.mapping.web import Mapped
from kimiaepd.mapping.web_frames import Frame
from kimiaepd.mapping.web_memory import Memory
from kimiaepd.web.conversation import ROLL_CALL_SECONDS
from kimiaepd.web.errors import OddAnswerError
from kimiaepd.web.subscriptions import ACK_SECONDS, MOST
from talk_room import EPOCH, SERVER, Rest, talking

OLD, NEW = "2020-01-01T00:00:00.000Z", "2099-01-01T00:00:00.000Z"


# --- acknowledgements ------------------------------------------------------------------------


async def test_what_is_never_acknowledged_is_asked_for_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        await room.asked("s1")
        await trio.sleep(ACK_SECONDS - 1)
        assert len(room.line.asked) == 1
        again = await room.asked("s1", 2)
        assert "no word of 1 subscriptions" in str(room.talk.seen.last_error)
        room.ack(again["id"], "s1")
        room.turn(1)
        room.end(2)
        await room.settled()
        assert room.core() == ["run.started", "run.finished"]


async def test_what_is_long_replayed_is_not_asked_for_again_meanwhile(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        await room.asked("s1")
        for seq in range(1, 6):
            room.frame("context.spliced", seq)
            await trio.sleep(ACK_SECONDS / 2)
        assert len(room.line.asked) == 1


async def test_only_what_was_asked_for_is_believed_to_be_subscribed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        request = (await room.asked("s1"))["id"]
        room.ack("nobody's", "s1", "terminal")
        room.ack(request, "s1", "terminal")
        room.ack(request, "terminal")
        await room.settled()
        assert room.talk.sessions == {"s1"}
        assert not room.feed.is_streamed("terminal")


async def test_all_are_asked_only_once_the_server_has_answered(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """What the stream began before a restart is given up once all are: it must not be too soon."""
    async with talking(tmp_path, "s1") as room:
        request = await room.asked("s1")
        await room.settled()
        assert not room.talk.is_called
        room.ack(request["id"], "s1")
        await room.settled()
        assert room.talk.is_called


async def test_what_comes_between_a_subscription_and_an_older_acknowledgement_is_told(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1", mode="companion") as room:
        request = await room.asked("s1")
        assert room.after(request) is None
        room.turn(8)
        room.ack(request["id"], "s1", seq=7)
        again = await room.asked("s1", 2)
        assert room.after(again) == 7
        room.turn(8)
        room.ack(again["id"], "s1", seq=8)
        room.end(9)
        await room.settled()
        assert room.room.types("s1") == [
            "x.kimi-code.web.turn.started",
            "x.kimi-code.web.turn.ended",
        ]
        assert room.talk.seen.gaps == 0


async def test_an_acknowledgement_that_knows_less_than_has_come_moves_nothing_back(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        request = await room.asked("s1")
        room.turn(1)
        room.end(2)
        room.ack(request["id"], "s1", seq=1)
        room.turn(3, 1)
        await room.settled()
        assert room.core() == ["run.started", "run.finished", "run.started"]
        assert room.talk.seen.gaps == 0


async def test_what_is_replayed_by_halves_is_asked_for_once_more_and_then_a_gap(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        request = await room.asked("s1")
        room.turn(1)
        room.ack(request["id"], "s1", seq=5)
        again = await room.asked("s1", 2)
        assert room.after(again) == 1
        room.ack(again["id"], "s1", seq=5)
        room.end(6)
        await room.settled()
        (gap,) = (one for one in room.room.events("s1") if one["type"] == "x.kimi-code.web.gap")
        assert gap["data"] == {"count": 4, "reason": "not-replayed"}
        assert room.core() == ["run.started", "run.finished"]


async def test_where_a_journal_goes_on_is_known_from_either_word_of_the_server(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        request = await room.asked("s1")
        cut: JSONObject = {
            "session_id": "s1", "reason": "epoch_changed", "current_seq": 2, "epoch": EPOCH,
        }  # fmt: skip
        room.line.come({"type": "resync_required", "payload": cut})
        accepted: JSONObject = {"accepted": ["s1"]}
        room.line.come({"type": "ack", "id": request["id"], "payload": accepted})
        room.turn(3)
        await room.settled()
        cursor = room.feed.cursors.get("s1")
        assert cursor
        assert cursor.seq == 3
        assert room.talk.seen.gaps == 1


async def test_a_session_that_a_server_had_and_has_no_more_is_the_hooks_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """As after a connection that was lost while the session was deleted."""
    async with talking(tmp_path, "s1") as room:
        room.feed.host("s1", SERVER)
        request = await room.asked("s1")
        room.ack(request["id"], missing=("s1",))
        await room.settled()
        assert not room.feed.is_streamed("s1")


# --- who is asked for ------------------------------------------------------------------------


async def test_what_the_last_connection_was_told_of_is_asked_for_though_it_is_not_listed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It may be archived meanwhile, and a server says nothing of that to who was not there."""
    async with talking(tmp_path, "s1") as room:
        room.feed.host("s2", SERVER)
        room.rest.session_is("s2", archived=True)
        request = await room.asked("s2")
        room.ack(request["id"], "s1", "s2")
        await trio.sleep(2 * ROLL_CALL_SECONDS)
        assert not room.feed.is_streamed("s2")


async def test_a_session_that_is_first_heard_of_while_another_is_asked_for_is_not_forgotten(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        await room.subscribed()
        room.frame("event.session.created", 1, "s2")
        room.line.is_stuck = True
        await room.asked("s2")
        room.frame("event.session.created", 1, "s3")
        await room.settled()
        began, room.line.is_stuck = trio.current_time(), False
        await room.asked("s3")
        assert trio.current_time() - began < 1


async def test_nobody_s_past_is_told_where_the_first_list_failed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    rest = Rest(error=OddAnswerError("nonsense"))
    async with talking(tmp_path, "s1", mode="companion", rest=rest) as room:
        room.frame("session.meta.updated", 70)
        await trio.sleep(1)
        assert room.line.asked == []
        rest.error = None
        assert room.after(await room.asked("s1")) is None


async def test_a_session_that_is_older_than_the_list_is_long_has_a_past_that_is_not_told(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1", mode="companion") as room:
        await room.subscribed()
        room.rest.session_is("old", created_at=OLD)
        room.rest.session_is("new", created_at=NEW)
        room.frame("session.meta.updated", 70, "old")
        room.frame("session.meta.updated", 2, "new")
        assert room.after(await room.asked("old"), "old") is None
        assert room.after(await room.asked("new"), "new") == 0


async def test_ids_without_end_and_without_number_are_not_kept(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        await room.subscribed()
        room.frame("turn.started", 1, "x" * (1 << 20))
        for number in range(3 * MOST):
            room.frame("turn.started", 1, f"n{number}")
        await trio.sleep(5 * ROLL_CALL_SECONDS)
        asked = {name for one in room.line.asked for name in room_names(one)}
        assert room.talk.seen.odd == 1
        assert max(map(len, asked)) < 100
        assert len(asked) <= MOST


def room_names(request: JSONObject) -> list[str]:
    payload = request["payload"]
    assert isinstance(payload, dict)
    names = payload["session_ids"]
    assert isinstance(names, list)
    return [str(name) for name in names]


async def test_an_archived_session_is_left_also_where_only_the_list_tells(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1", "s2") as room:
        request = await room.asked("s1")
        room.ack(request["id"], "s1", "s2")
        await room.settled()
        room.rest.session_is("s1", archived=True)
        await trio.sleep(2 * ROLL_CALL_SECONDS)
        assert not room.feed.is_streamed("s1")
        assert room.feed.is_streamed("s2")
        room.rest.session_is("s1")  # restored, and mute: the vendor's servers say no more of it
        await trio.sleep(2 * ROLL_CALL_SECONDS)
        assert len(room.line.asked) == 1
        assert not room.feed.is_streamed("s1")


# --- gaps ------------------------------------------------------------------------------------


async def test_every_run_whose_end_was_missed_is_ended_also_where_one_session_is_gone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1", "s2", "s3") as room:
        request = await room.asked("s1")
        room.ack(request["id"], "s1", "s2", "s3")
        for name in ("s1", "s2", "s3"):
            room.turn(1, session=name)
        await room.settled()
        del room.rest.listed["s1"]
        room.rest.slow = 1.0
        for name in ("s1", "s2"):
            room.frame("context.spliced", 9, name)
        await trio.sleep(0.5)
        room.frame("context.spliced", 9, "s3")
        await trio.sleep(10)
        assert [room.core(name) for name in ("s1", "s2", "s3")] == [
            ["run.started", "run.cancelled"]
        ] * 3


async def test_a_run_that_begins_while_the_server_is_asked_is_not_the_one_that_was_missed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with talking(tmp_path, "s1") as room:
        await room.subscribed()
        room.turn(1)
        await room.settled()
        room.rest.slow = 1.0
        room.frame("context.spliced", 9)
        await trio.sleep(0.5)
        room.turn(10, 5)
        await trio.sleep(3)
        room.end(11, 5)
        await room.settled()
        assert room.core() == ["run.started", "run.cancelled", "run.started", "run.finished"]


async def test_a_frame_at_which_we_fail_costs_that_frame(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talking(tmp_path, "s1") as room:
        await room.subscribed()
        room.turn(1)
        await room.settled()
        primary = web.primary

        def failing(frame: Frame, memory: Memory) -> Mapped:
            if frame.type == "context.spliced":
                raise ZeroDivisionError
            return primary(frame, memory)

        monkeypatch.setattr(web, "primary", failing)
        room.frame("context.spliced", 2)
        room.end(3)
        await room.settled()
        assert room.core() == ["run.started", "run.finished"]
        assert room.talk.seen.odd == 1


@pytest.mark.parametrize("name", ["../../x", "a/b\\c", "a\x00b\x1b[31m\n", "é" * 400, "CON"])
async def test_a_session_of_any_name_is_told(
    tmp_path: Path, autojump_clock: MockClock, name: str
) -> None:
    async with talking(tmp_path / "room", name) as room:
        (asked,) = await room.asked_any()
        room.ack(asked["id"], name)
        room.turn(1, session=name)
        room.end(2, session=name)
        await room.settled()
        assert room.core(name) == ["run.started", "run.finished"]
        logs = {path.parent.name for path in (tmp_path / "room").rglob("*.jsonl")}
        assert logs == {"room", "log"}
        assert [path.name for path in tmp_path.iterdir()] == ["room"]
