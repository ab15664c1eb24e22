"""A daemon that comes, goes and dies while turns of `kimi web` run: each is told as one run, once.

Two homes, each with one server that stays. In the first no hooks are registered, and the daemon is
started in the middle of things, stopped, killed. In the second hooks are, and the daemon is started
again in another mode: the bridge comes in the middle of a run, and goes in the middle of one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import pytest
from aep_sdk.projection import project_state
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSON
from vendor import daemon
from vendor.kimi import Kimi
from vendor.logged import RUN_TERMINALS, Log, data, log_files
from vendor.place import Place, scratch_place
from vendor.provider import Provider
from vendor.waiting import until
from vendor.web import serving
from vendor.web_desk import Desk, configure, furnish, sessions_watched, types, watches

pytestmark = pytest.mark.vendor

ASK = ("attention.requested", "attention.answered", "attention.resolved")
TURN = ["run.started", *ASK, "tool.requested", "tool.completed", "run.finished"]
HOOKED = ["run.started", "tool.requested", *ASK, "tool.completed", "run.finished"]
WAITED_S = 1.5


@frozen
class Shift:
    """One home's sessions, and what was logged of them.

    Attributes:
        logs: by the name of the session.
    """

    logs: Mapping[str, Log]

    @classmethod
    def over(cls, desk: Desk, sessions: Mapping[str, str]) -> Shift:
        """Read what was logged; it must be valid, and nothing pending."""
        for path in log_files(desk.place):
            judge_log(path)
            state = project_state(Log.read(path).events)
            assert [session["pending"] for session in state["sessions"]] == [[]]
        return cls({name: desk.log(session) for name, session in sessions.items()})


# --- the daemon alone changes ---


@pytest.fixture(scope="module")
def night(kimi: Kimi, place: Place, provider: Provider) -> Shift:
    furnish(kimi, place, provider.url, "primary", hooks=False)
    with serving(kimi, place) as web:
        desk = Desk(place, web)
        sessions = {"over": desk.begins("mock:bashok and over before we come")}
        desk.asked(sessions["over"])
        time.sleep(WAITED_S)
        desk.decides(sessions["over"], "approved")
        desk.ends(sessions["over"])
        ask(desk, sessions, "joined", is_logged=False)
        with daemon.running(kimi, place):
            answer(desk, sessions, "joined")
            ask(desk, sessions, "while it was stopped", "after it was stopped")
            wait(desk, sessions, "over", "joined")
        answer(desk, sessions, "while it was stopped")
        with daemon.running(kimi, place) as dying:
            answer(desk, sessions, "after it was stopped")
            wait(desk, sessions, "while it was stopped", "after it was stopped")
            ask(desk, sessions, "while it was dead", "after it was dead")
            dying.kill()
            dying.wait()
        answer(desk, sessions, "while it was dead")
        with daemon.running(kimi, place):
            answer(desk, sessions, "after it was dead")
            wait(desk, sessions, *sessions)
    return Shift.over(desk, sessions)


def ask(desk: Desk, sessions: dict[str, str], *names: str, is_logged: bool = True) -> None:
    """Bring a new session to an approval."""
    for name in names:
        sessions[name] = desk.begins(f"mock:bashok {name}")
        desk.asked(sessions[name])
        if is_logged:
            desk.logs(sessions[name], "attention.requested")


def answer(desk: Desk, sessions: Mapping[str, str], name: str) -> None:
    desk.decides(sessions[name], "approved")
    desk.ends(sessions[name])


def wait(desk: Desk, sessions: Mapping[str, str], *names: str, runs: int = 1) -> None:
    for name in names:
        desk.logs(sessions[name], *RUN_TERMINALS, count=runs)


def test_each_turn_is_told_once_as_one_run_whatever_became_of_the_daemon(night: Shift) -> None:
    assert {name: types(log) for name, log in night.logs.items()} == dict.fromkeys(night.logs, TURN)
    for name, log in night.logs.items():
        runs = {event.get("run") for event in log.all(*TURN)}
        assert runs == {log.one("run.started")["run"]}, name


def test_what_follows_a_restart_is_still_the_outcome_of_what_came_before(night: Shift) -> None:
    for log in night.logs.values():
        asked, answered, resolved = (log.one(kind) for kind in ASK)
        assert log.cause(log.one("run.finished")) == log.one("run.started")
        assert [log.cause(answered), log.cause(resolved)] == [asked, answered]
        assert answered["subject"] == resolved["subject"] == asked["id"]


def test_a_turn_that_is_told_later_is_as_long_as_it_was(night: Shift) -> None:
    log = night.logs["over"]

    assert number(data(log.one("run.finished"))["duration_ms"]) >= WAITED_S * 1000
    assert number(data(log.one("attention.resolved"))["latency_ms"]) >= WAITED_S * 1000


def number(value: JSON) -> float:
    assert isinstance(value, int | float)
    return value


# --- the bridge comes, and goes ---


@pytest.fixture(scope="module")
def handover(kimi: Kimi, provider: Provider) -> Shift:
    """It ends with another server: a prompt wakes each session, and no frame begins its turn."""
    sessions: dict[str, str] = {}
    with scratch_place() as place:
        furnish(kimi, place, provider.url, "off", hooks=True)
        with serving(kimi, place) as web:
            desk = Desk(place, web)
            with daemon.running(kimi, place):
                ask(desk, sessions, "comes")
            configure(place, "primary")
            with daemon.running(kimi, place):
                until(lambda: sessions_watched(place) == 1, "the watch of the session")
                answer(desk, sessions, "comes")
                wait(desk, sessions, "comes")
                shown(desk, sessions.values(), 1)
                ask(desk, sessions, "goes")
            configure(place, "off")
            with daemon.running(kimi, place):
                answer(desk, sessions, "goes")
                wait(desk, sessions, "goes")
            configure(place, "primary")
            with daemon.running(kimi, place):
                shown(desk, sessions.values(), 1)
                go_on(desk, sessions, 2)
        with serving(kimi, place) as web, daemon.running(kimi, place):
            desk = Desk(place, web)
            watches(place)
            go_on(desk, sessions, 3)
        return Shift.over(desk, sessions)


def go_on(desk: Desk, sessions: Mapping[str, str], turns: int) -> None:
    """The next turn of each session, and what was shown of it."""
    for session in sessions.values():
        desk.web.prompt(session, "mock:plain and on")
    wait(desk, sessions, *sessions, runs=turns)
    shown(desk, sessions.values(), turns)


def shown(desk: Desk, sessions: Iterable[str], turns: int) -> None:
    """Wait until the stream has been read to the end of so many turns."""
    for session in sessions:
        desk.logs(session, "x.kimi-code.web.prompt.completed", count=turns)


NEXT = ["run.started", "run.finished"] * 2


def test_a_run_that_hooks_opened_stays_theirs_as_the_bridge_comes(handover: Shift) -> None:
    log = handover.logs["comes"]

    assert types(log) == [*HOOKED, *NEXT]
    assert len({event.get("run") for event in log.all("run.started", "run.finished")}) == 3
    assert "-turn-" not in str(log.all("run.started")[0]["run"])


def test_a_run_that_the_stream_opened_ends_by_hooks_as_the_bridge_goes(handover: Shift) -> None:
    log = handover.logs["goes"]
    begun = log.all("run.started")[0]

    assert types(log) == ["run.started", *ASK, "tool.completed", "run.finished", *NEXT]
    assert "-turn-" in str(begun["run"])
    assert log.cause(log.of_run(0).one("run.finished")) == begun
