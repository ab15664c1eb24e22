"""Servers of `kimi web` that come and go while the daemon watches them: two on one home, one that
is stopped in the middle of a turn, one that is killed and started again. And one that is silent.

The silence is as long as a server of 0.42.0 or later bears from a client that answers no ping. That
server has cold sessions, and nobody speaks to it while the others come and go.

No hooks of ours are registered: what is in the log, the stream has said.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from aep_sdk.projection import project_state
from attrs import frozen

from judge import judge_log
from kimiaepd.web.home import find
from vendor import daemon
from vendor.kimi import Kimi
from vendor.logged import Log, data, log_files
from vendor.place import Place, plain_config, scratch_place
from vendor.provider import Provider
from vendor.waiting import until
from vendor.web import serving
from vendor.web_desk import Desk, configure, furnish, servers, sessions_watched, types, watches

pytestmark = pytest.mark.vendor

COLD = 50
SILENCE_S = 32
"""A server of 0.42.0 or later closes what was silent for 30 s."""

STOP_S = 4.0
"""For a server that we watch: our look each second, its own end, and a busy machine. It takes 25 s
and more where somebody holds on to it."""


@frozen
class Silence:
    """A server that nobody speaks to, and the daemon that watches it.

    Attributes:
        since: since when (monotonic seconds).
    """

    desk: Desk
    session: str
    cold: tuple[str, ...]
    since: float

    def woken(self) -> list[str]:
        """The sessions of which the user's own SessionStart hook was told."""
        files = self.desk.place.root.glob("hook-*.json")
        told = [json.loads(file.read_bytes()) for file in files]
        return [one["session_id"] for one in told if one["source"] == "resume"]


@pytest.fixture(scope="module", autouse=True)
def silence(kimi: Kimi, provider: Provider) -> Iterator[Silence]:
    with scratch_place() as place:
        hook = f"f=$(mktemp {place.root}/hook-XXXXXX) && cat > $f && mv $f $f.json"
        theirs = f"\n[[hooks]]\nevent = 'SessionStart'\ncommand = {hook!r}\n"
        place.renew(plain_config(kimi.version, provider.url) + theirs.encode())
        configure(place, "primary")
        with serving(kimi, place) as web:
            cold = tuple(web.session(place.work) for _ in range(COLD))
        with serving(kimi, place) as web, daemon.running(kimi, place):
            desk = Desk(place, web)
            session = desk.begins("mock:plain and then nothing")
            desk.logs(session, "run.finished")
            yield Silence(desk, session, cold, time.monotonic())


@frozen
class Week:
    """What became of it.

    Attributes:
        logs: by the name of the session.
        watched: servers that the daemon watched, as they came and went.
        stop_s: how long the server that was stopped took to end.
        left_file: whether its file was still there then.
    """

    place: Place
    logs: Mapping[str, Log]
    watched: tuple[int, ...]
    stop_s: float
    left_file: bool


@pytest.fixture(scope="module")
def week(kimi: Kimi, place: Place, provider: Provider) -> Week:
    furnish(kimi, place, provider.url, "primary", hooks=False)
    sessions: dict[str, str] = {}
    with ExitStack() as held:
        held.enter_context(daemon.running(kimi, place))
        first = Desk(place, held.enter_context(serving(kimi, place)))
        second = Desk(place, held.enter_context(serving(kimi, place)))
        watched = [watches(place, 2)]
        for name, desk in (("first", first), ("second", second)):
            sessions[name] = desk.begins(f"mock:bashok at the {name}")
            desk.decides(sessions[name], "approved")
            desk.logs(sessions[name], "run.finished")

        sessions["stopped"] = second.begins("mock:bashok and no answer")
        second.logs(sessions["stopped"], "attention.requested")
        stop_s = stops(second)
        left_file = second.web.process.pid in {one.pid for one in find(place.kimi_home).gone}
        first.logs(sessions["stopped"], "run.cancelled")
        watched.append(watches(place, 1))

        sessions["killed"] = first.begins("mock:bashok and a crash")
        first.logs(sessions["killed"], "attention.requested")
        first.web.process.kill()
        first.web.process.wait(20)  # a zombie would be taken for a server
        first.logs(sessions["killed"], "run.cancelled")
        watched.append(watches(place, 0))

        again = Desk(place, held.enter_context(serving(kimi, place)))
        watched.append(watches(place, 1))
        for name in ("killed", "first"):
            again.web.prompt(sessions[name], "mock:bashok once more")
            again.decides(sessions[name], "approved")
        for name, count in (("killed", 1), ("first", 2)):
            again.logs(sessions[name], "run.finished", count=count)
    logs = {name: first.log(session) for name, session in sessions.items()}
    return Week(place, logs, tuple(watched), stop_s, left_file)


def stops(desk: Desk) -> float:
    """Stop a server; how long it took."""
    began = time.monotonic()
    desk.web.process.terminate()
    desk.web.process.wait(20)
    return time.monotonic() - began


def runs(log: Log) -> list[object]:
    """The run of each event that begins or ends one, in order."""
    return [event["run"] for event in log.events if str(event["type"]).startswith("run.")]


TURN = [
    *("run.started", "attention.requested", "attention.answered", "attention.resolved"),
    *("tool.requested", "tool.completed", "run.finished"),
]
CUT = ["run.started", "attention.requested", "attention.resolved", "run.cancelled"]


def test_every_log_is_valid_and_nothing_is_pending(week: Week) -> None:
    for path in log_files(week.place):
        judge_log(path)
        state = project_state(Log.read(path).events)
        assert [session["pending"] for session in state["sessions"]] == [[]]


def test_each_server_of_a_home_is_watched_and_each_session_told_once(week: Week) -> None:
    assert week.watched == (2, 1, 0, 1)
    assert types(week.logs["second"]) == TURN


def test_a_server_that_is_stopped_ends_although_we_watch_it(week: Week) -> None:
    assert week.stop_s < STOP_S
    assert not week.left_file


def test_a_server_that_is_stopped_takes_its_open_run_with_it(week: Week) -> None:
    log = week.logs["stopped"]

    assert types(log) == CUT
    assert data(log.one("run.cancelled"))["by"] == "shutdown"
    assert data(log.one("attention.resolved"))["resolution"] == "dismissed"


def test_a_server_that_is_killed_does_too_and_its_session_goes_on_at_the_next(week: Week) -> None:
    log = week.logs["killed"]
    before, after = runs(log)[0], runs(log)[-1]

    assert types(log) == [*CUT, *TURN]
    assert data(log.one("run.cancelled"))["by"] == "shutdown"
    assert runs(log) == [before, before, after, after]
    assert before != after


def test_what_was_told_before_a_restart_is_not_told_again(week: Week) -> None:
    assert types(week.logs["first"]) == [*TURN, *TURN]
    assert len(set(runs(week.logs["first"]))) == 2


# --- the silent one ---


def test_a_connection_outlives_silence_and_no_cold_session_is_woken(silence: Silence) -> None:
    """This comes after the others: the silence has lasted since the first of them."""
    desk = silence.desk
    rest = SILENCE_S - (time.monotonic() - silence.since)
    until(
        lambda: time.monotonic() >= silence.since + SILENCE_S,
        "the end of the silence",
        seconds=max(rest, 0) + 1,
    )
    (server,) = servers(desk.place)

    assert server["link"] == "connected"
    assert int(str(server["for_s"])) >= SILENCE_S
    assert sessions_watched(desk.place) == 1
    assert silence.woken() == []
    desk.web.prompt(silence.session, "mock:plain and on")
    desk.logs(silence.session, "run.finished", count=2)
    assert types(desk.log(silence.session)) == ["run.started", "run.finished"] * 2


def test_a_cold_session_is_told_of_from_the_turn_that_wakes_it(silence: Silence) -> None:
    """And this shows that the hook of one that is woken would have been seen."""
    desk, cold = silence.desk, silence.cold[COLD // 2]
    desk.web.prompt(cold, "mock:bashok after a long sleep")
    desk.logs(cold, "attention.requested")
    desk.decides(cold, "approved")
    desk.logs(cold, "run.finished")

    assert types(desk.log(cold)) == TURN
    until(lambda: silence.woken() == [cold], "the hook of the session that was woken")
