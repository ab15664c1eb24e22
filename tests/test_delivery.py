"""Answers to commands: where they are logged, and what becomes of one that cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio
from attrs import define

from daemon_room import Room, opened
from faults import Faults
from judge import judge
from kimiaepd import settings
from kimiaepd.delivery import Delivery, open_delivery
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.relay.outbox import Outbox, Window
from kimiaepd.storage.journal import LogPolicy

COMMAND: JSONObject = {
    "aep": "0.1", "id": "01KAEPC0MMAND0000000000000", "type": "control.cancel",
    "time": "2026-11-30T00:00:00.000Z", "source": "aep://phone", "agent": "phone",
    "session": "s", "data": {"scope": "run"},
}  # fmt: skip


@define
class Desk:
    """A daemon's inside, its delivery, and what that sends past the log."""

    room: Room
    delivery: Delivery
    sent: list[JSONObject]


@contextmanager
def desk(folder: Path, *, policy: LogPolicy | None = None) -> Iterator[Desk]:
    sent: list[JSONObject] = []
    environ = {"HOME": str(folder), "AEP_RELAY_URL": "ws://127.0.0.1:9", "AEP_TOKEN": "t"}
    (folder / ".local/state/kimiaepd").mkdir(parents=True)
    with opened(folder / "inside", policy=policy) as room, ExitStack() as held:
        delivery = open_delivery(settings.load(environ), environ, room.book, held)
        assert delivery is not None
        delivery.sender.outbox.is_complete = True  # nothing was there before
        delivery.commands.again = lambda line: sent.append(json.loads(line))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(delivery.sender), "send", lambda _, it: sent.append(json.loads(it)))
            yield Desk(room, delivery, sent)


async def test_an_answer_stands_in_its_sessions_order(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        await made.room.hook("SessionStart", {"source": "startup"})
        made.delivery.commands.take(dict(COMMAND))
        answer = made.room.events()[-1]
        assert (answer["type"], answer["cause"]) == ("control.rejected", COMMAND["id"])
        assert made.sent == []
        judge(made.room.events())


async def test_an_answer_for_a_session_that_nobody_knows_is_sent_and_not_logged(
    tmp_path: Path,
) -> None:
    with desk(tmp_path) as made:
        made.delivery.commands.take({**COMMAND, "session": "other"})
        (answer,) = made.sent
        assert (answer["session"], answer["cause"]) == ("other", COMMAND["id"])
        assert list(made.room.journal.sessions()) == []
        judge(made.sent)


async def test_a_session_that_begins_after_such_an_answer_begins_after_its_place(
    tmp_path: Path,
) -> None:
    with desk(tmp_path) as made:
        for number in range(3):
            made.delivery.commands.take({**COMMAND, "session": "other", "id": f"c{number}"})
        await made.room.hook("SessionStart", {"source": "startup"}, session="other")
        await made.room.hook("SessionEnd", {"reason": "exit"}, session="other")
        events = made.room.events("other")
        assert [one["seq"] for one in [*made.sent, *events]] == [0, 1, 2, 3, 4]
        judge([*made.sent, *events])


async def test_answers_past_the_log_share_no_place_with_events_in_it(tmp_path: Path) -> None:
    """Also where the session left memory between them, in the same epoch."""
    with desk(tmp_path) as made:
        book = made.room.book
        await made.room.hook("SessionStart", {"source": "startup"})
        assert book.spend("s") == (1, 1)
        book.let_go_idle(trio.current_time() + 2 * book.idle_seconds)
        assert len(book) == 0
        assert book.spend("s") == (1, 2)
        await made.room.hook("SessionEnd", {"reason": "exit"})
        assert [one["seq"] for one in made.room.events()] == [0, 3]


async def test_an_answer_of_a_session_that_is_behind_goes_out_at_once_too(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        made.delivery.sender.outbox = Outbox(Window(2, 1 << 20))
        for event in ("SessionStart", "UserPromptSubmit", "Stop"):
            await made.room.hook(event)
        assert made.delivery.sender.outbox.is_behind("s")
        made.delivery.commands.take(dict(COMMAND))
        assert made.sent == [made.room.events()[-1]]


async def test_a_defect_of_delivery_is_a_trouble_until_a_relay_is_there_again(
    tmp_path: Path,
) -> None:
    with desk(tmp_path) as made:
        made.delivery.supervisor.crashed("KeyError: x")
        assert made.room.book.emitter.health.status() == {"relay": "KeyError: x"}
        made.delivery.sender.connected()
        assert [one["data"] for one in made.sent] == [{"status": "degraded"}, {"status": "ok"}]


async def test_without_a_relay_there_is_no_delivery(tmp_path: Path) -> None:
    with opened(tmp_path) as room, ExitStack() as held:
        assert open_delivery(settings.load({"HOME": str(tmp_path)}), {}, room.book, held) is None


async def test_an_answer_that_the_log_does_not_take_is_sent_and_takes_nobodys_place(
    tmp_path: Path,
) -> None:
    with desk(tmp_path) as made, Faults() as faults:
        await made.room.hook("SessionStart", {"source": "startup"})
        made.sent.clear()
        faults.disk_takes(0)
        made.delivery.commands.take(dict(COMMAND))
        faults.mend()
        answers = [one for one in made.sent if one["type"] == "control.rejected"]
        assert [one.get("seq") for one in answers] == [1]
        await made.room.hook("SessionEnd", {"reason": "exit"})
        made.delivery.commands.take(dict(COMMAND))
        assert made.sent[-1] == answers[0]
        assert "control.rejected" not in made.room.types()
        judge(made.room.events())


async def test_an_answer_is_never_shed(tmp_path: Path) -> None:
    with desk(tmp_path, policy=LogPolicy(sync="os", min_free_bytes=1 << 60)) as made:
        await made.room.hook("SessionStart", {"source": "startup"})
        made.delivery.commands.take(dict(COMMAND))
        assert made.room.types()[-1] == "control.rejected"


async def test_a_session_between_two_runs_goes_on_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        for session in ("between", "over", "running"):
            await room.hook("SessionStart", {"source": "startup"}, session=session)
        await room.hook("SessionEnd", {"reason": "exit"}, session="over")
        await room.hook("UserPromptSubmit", {"prompt": []}, session="running")
        assert sorted(room.book.going_on()) == ["between", "running"]
    with opened(tmp_path, epoch=2) as room:
        assert sorted(room.book.going_on()) == ["between", "running"]
        assert [session.id for session in room.book] == ["running"]
        later = room.book.emitter.clock_ns() + 90_000 * 10**9
        room.book.emitter.clock_ns = lambda: later
        assert room.book.going_on() == ["running"]
        await room.hook("SessionEnd", {"reason": "exit"}, session="between")
        assert room.book.going_on() == ["running"]
