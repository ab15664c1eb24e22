"""A desk: what comes of an answer is what the stream says, and why one came too late."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate.shape import first_envelope_fault
from kimiaepd.views import desk as desk_room
from kimiaepd.views import reasons
from kimiaepd.views.asks import Ask, Asked, Ending
from kimiaepd.views.desk import Came, Desk, Verdict, wish
from kimiaepd.views.relay_command import CANCEL, INSTRUCT, RESPOND, Outcome
from kimiaepd.views.relay_consumer import Change
from test_collector_hub import event
from test_views_asks import NOW, ended, requested
from views_room import Line, Scripted, watching

DENY: JSONObject = {"option": "deny", "text": "not now"}


@frozen
class Place:
    """A desk on a relay in hand."""

    desk: Desk
    line: Line
    scripted: Scripted
    came: list[Came]

    async def asked(self) -> Ask:
        """One ask that lies on the desk."""
        self.line.say(requested())
        await wait_all_tasks_blocked()
        (ask,) = self.desk.asks.listed(NOW)
        return ask

    async def answered(self, say: Callable[[JSONObject], None]) -> tuple[Verdict, JSONObject]:
        """Answer it; the command goes to `say`, which says what the relay says to that."""
        ask, got = await self.asked(), list[Verdict]()

        async def answer() -> None:
            got.append(await self.desk.answer(ask, DENY))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            command = await self.line.hears(RESPOND)
            say(command)
        (verdict,) = got
        return verdict, command


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with desk_at(tmp_path) as made:
        yield made


@asynccontextmanager
async def desk_at(folder: Path) -> AsyncIterator[Place]:
    scripted, came = Scripted(), list[Came]()
    async with watching(scripted, wish(), folder, may_control=True) as (consumer, line):
        desk = Desk(consumer, came=came.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.run)
            yield Place(desk, line, scripted, came)
            nursery.cancel_scope.cancel()


def accepted(command: JSONObject) -> JSONObject:
    return event(type="control.accepted", id="ack", cause=command["id"])


def rejected(command: JSONObject, reason: str = "invalid", **more: JSON) -> JSONObject:
    said: JSONObject = {"reason": reason, **more}
    return event(type="control.rejected", id="ack", cause=command["id"], data=said)


def answered(cause: JSON, option: str = "deny") -> JSONObject:
    end = ended("answered", answer={"option": option}, via="control")
    return {**end, "id": "end", "seq": 7, "cause": cause}


async def test_an_answer_is_an_event_that_the_standard_takes_and_its_effect_is_waited_for(
    place: Place, autojump_clock: MockClock
) -> None:
    verdict, command = await place.answered(
        lambda command: place.line.say(accepted(command), answered(command["id"]))
    )
    assert (verdict.result, verdict.why) == ("accepted", "accepted: deny")
    assert first_envelope_fault(command) is None
    assert (command["session"], command["subject"], command["run"]) == ("s", "ask", "r1")
    assert (command["data"], command["capture"]) == ({"answer": DENY}, "redacted")


async def test_somebody_else_s_answer_was_first(place: Place, autojump_clock: MockClock) -> None:
    verdict, _ = await place.answered(
        lambda command: place.line.say(rejected(command), answered("another", "allow"))
    )
    assert (verdict.result, verdict.why) == ("late", "somebody answered first: allow")


async def test_it_was_let_go_before_the_answer_came(
    place: Place, autojump_clock: MockClock
) -> None:
    verdict, _ = await place.answered(
        lambda command: place.line.say(
            {**ended("timeout"), "id": "end", "seq": 7}, rejected(command)
        )
    )
    assert (verdict.result, verdict.why) == ("late", "too late: it was let go at its deadline")


async def test_a_rejection_of_what_is_still_open_says_its_reason_and_more_where_more_is_said(
    place: Place, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    verdict, _ = await place.answered(
        lambda command: place.line.say(rejected(command, detail="give one of\x1b those"))
    )
    assert verdict.result == "rejected"
    assert verdict.why.endswith("or the ask is over (give one of\ufffd those)")
    assert trio.current_time() - began < 2 * desk_room.LATE_SECONDS


async def test_what_kimi_web_did_not_take_is_said(place: Place, autojump_clock: MockClock) -> None:
    def say(command: JSONObject) -> None:
        failed: JSONObject = {"code": "web-gone", "fatal": False}
        error = event(type="error.raised", id="e", seq=8, cause=command["id"], data=failed)
        place.line.say(accepted(command), error)

    verdict, _ = await place.answered(say)
    assert (verdict.result, verdict.why) == (
        "rejected",
        "it was taken, but kimi web did not: web-gone",
    )


async def test_an_effect_that_is_not_seen_is_none(place: Place, autojump_clock: MockClock) -> None:
    began = trio.current_time()
    verdict, _ = await place.answered(lambda command: place.line.say(accepted(command)))
    assert verdict.result == "unseen"
    assert trio.current_time() - began == pytest.approx(desk_room.ANSWER_SECONDS, abs=1)


async def test_an_answer_that_nobody_hears_ends_in_time(
    place: Place, autojump_clock: MockClock
) -> None:
    verdict, _ = await place.answered(lambda _: None)
    assert (verdict.result, "nobody answered in time" in verdict.why) == ("timeout", True)


async def test_what_is_held_has_come_once_the_relay_says_who_is_there(
    place: Place, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.desk.catch_up)
        name = (await place.line.hears("roster"))["id"]
        place.line.say(*(requested(f"ask-{number}") for number in range(99)))
        place.line.say({"type": "roster", "id": name, "entries": []})
    assert len(place.desk.asks.open) == 99


async def test_a_relay_that_does_not_say_who_is_there_is_not_waited_for_long(
    place: Place, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    await place.desk.catch_up()
    assert trio.current_time() - began < 2 * desk_room.CATCH_UP_SECONDS


async def test_a_lost_connection_is_known_until_it_is_back(
    place: Place, autojump_clock: MockClock
) -> None:
    await place.asked()
    place.line.breaks()
    line = await place.scripted.line()
    assert "connection broke" in str(place.desk.lost)
    await line.subscribed()
    line.say({**requested("next"), "seq": 1})
    await wait_all_tasks_blocked()
    assert not place.desk.lost
    kinds = [one.kind if isinstance(one, Change) else type(one) for one in place.came]
    assert kinds == [Asked, "lost", "back", Asked]


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RESPOND, CANCEL, INSTRUCT])
@pytest.mark.parametrize("reason", ["unsupported", "unauthorized", "busy", "refused", "invalid",
                                    "ambiguous", "no-route", "timeout", "odd\x1b"])  # fmt: skip
def test_every_reason_has_words(kind: str, reason: str) -> None:
    said = reasons.why(kind, Outcome("relay", reason, "the relay's own words"))
    assert said.isprintable()
    assert "own words" not in said
    assert len(said) > len(reason) or reason.startswith("odd")


@pytest.mark.parametrize(
    ("ending", "late", "ended"),
    [
        (Ending("timeout"), "too late: it was let go at its deadline", "let go at its deadline"),
        (Ending("dismissed"), "too late: the call was given up", "given up"),
        (Ending("answered", "allow", via="control"), "somebody answered first: allow", "allow"),
        (Ending("answered"), "somebody answered first", "answered"),
        (Ending("answered", "approved", via="oob"),
         "too late: it was answered at the agent's own screen: approved",
         "approved, at the agent's own screen"),
    ],
)  # fmt: skip
def test_every_end_has_words(ending: Ending, late: str, ended: str) -> None:
    assert (reasons.late(ending), reasons.ended(ending)) == (late, ended)
