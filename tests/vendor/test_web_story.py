"""A day of work in the browser, told three ways: companion beside hooks, primary with and without.

Each scene is a session of its own, with one turn. One server and one daemon a way, so a version
has its day three times; then the tests read what was logged, and what the model was sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aep_sdk.projection import project_state
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSON, JSONObject
from vendor import daemon
from vendor.kimi import Kimi
from vendor.logged import RUN_TERMINALS, Log, data, log_files
from vendor.place import Place, scratch_place
from vendor.provider import Provider
from vendor.web import serving
from vendor.web_desk import Desk, configure, core, furnish, types, watches

pytestmark = pytest.mark.vendor

WORD = "Zanzibar"
FEEDBACK = "Not now, Quince."
KEPT = "quagga"
CONTENT = (WORD, KEPT, "is done", "Three packages", "mock status 500", "kept.txt", "from-the-")
"""Words of prompts, outputs, files and errors; the last two are of arguments."""

ASK = ("attention.requested", "attention.answered", "attention.resolved")
STREAMED = {
    "plain": ["run.started", "run.finished"],
    "read": ["run.started", "tool.requested", "tool.completed", "run.finished"],
    "approved": ["run.started", *ASK, "tool.requested", "tool.completed", "run.finished"],
    "refused": ["run.started", *ASK, "tool.requested", "tool.denied", "run.finished"],
    "left": ["run.started", "attention.requested", "attention.resolved", "run.cancelled"],
    "answered": ["run.started", "tool.requested", *ASK, "tool.completed", "run.finished"],
    "dismissed": [
        *("run.started", "tool.requested", "attention.requested", "attention.resolved"),
        *("tool.completed", "run.finished"),
    ],
    "failed": ["run.started", "run.failed"],
    "agent": [
        *("run.started", "tool.requested", *ASK, "tool.requested", "tool.completed"),
        *("tool.completed", "run.finished"),
    ],
    "compacted": ["run.started", "run.finished"],
}
"""What the stream tells: an ask comes before its call, and questions are told of."""

CALL = ("tool.requested", "tool.completed")
HOOKED = STREAMED | {
    "approved": ["run.started", "tool.requested", *ASK, "tool.completed", "run.finished"],
    "refused": ["run.started", "tool.requested", *ASK, "tool.denied", "run.finished"],
    "left": [
        *("run.started", "tool.requested", "attention.requested", "attention.resolved"),
        "run.cancelled",
    ],
    "answered": ["run.started", *CALL, "run.finished"],
    "dismissed": ["run.started", *CALL, "run.finished"],
    "agent": [
        *("run.started", "tool.requested", "tool.requested", *ASK, "tool.completed"),
        *("tool.completed", "run.finished"),
    ],
}
"""What hooks tell: a call comes before its ask, and no hook is of a question."""


@frozen
class Day:
    """One day, told in one way.

    Attributes:
        logs: by scene.
        paths: every log of the day.
        sent: what the model was sent in it.
    """

    logs: Mapping[str, Log]
    paths: tuple[Path, ...]
    sent: str


@frozen
class Days:
    """The days of one version."""

    companion: Day
    hooked: Day
    bare: Day

    @property
    def primary(self) -> tuple[Day, Day]:
        return self.hooked, self.bare

    def __iter__(self) -> Iterator[Day]:
        return iter((self.companion, *self.primary))


@pytest.fixture(scope="module")
def days(kimi: Kimi) -> Iterator[Days]:
    """The day without hooks is at another place, at the same time."""
    with scratch_place() as place, scratch_place() as other, ThreadPoolExecutor() as threads:
        bare = threads.submit(lived_without_hooks, kimi, other)
        companion, hooked = lived_with_hooks(kimi, place)
        yield Days(companion, hooked, bare.result())


def lived_with_hooks(kimi: Kimi, place: Place) -> tuple[Day, Day]:
    with Provider() as provider:
        furnish(kimi, place, provider.url, "companion", hooks=True)
        with serving(kimi, place) as web:
            desk = Desk(place, web)
            companion = lived(kimi, desk, provider, hooks=True)
            configure(place, "primary")
            return companion, lived(kimi, desk, provider, hooks=True)


def lived_without_hooks(kimi: Kimi, place: Place) -> Day:
    with Provider() as provider:
        furnish(kimi, place, provider.url, "primary", hooks=False)
        with serving(kimi, place) as web:
            return lived(kimi, Desk(place, web), provider, hooks=False)


def lived(kimi: Kimi, desk: Desk, provider: Provider, *, hooks: bool) -> Day:
    """A day from its daemon's start to its stop."""
    (desk.place.work / "kept.txt").write_text(KEPT)
    provider.take()
    with daemon.running(kimi, desk.place):
        begin(desk)
        sessions = live(desk)
        for session in sessions.values():
            desk.logs(session, "x.kimi-code.web.prompt.completed", "x.kimi-code.web.prompt.aborted")
            desk.logs(session, *RUN_TERMINALS)
        desk.logs(sessions["compacted"], "x.kimi-code.web.compaction.completed")
        if hooks:
            desk.logs(sessions["compacted"], "session.compacted")
    sent = "".join(json.dumps(json.loads(one.body)) for one in provider.take())
    logs = {scene: desk.log(session) for scene, session in sessions.items()}
    return Day(logs, tuple(log_files(desk.place)), sent)


def begin(desk: Desk) -> None:
    """A first session, from which on a server of 0.28.0 tells of new ones at once."""
    watches(desk.place)
    desk.logs(desk.begins("mock:plain to begin with"), "x.kimi-code.web.prompt.completed")


def live(desk: Desk) -> Mapping[str, str]:
    """Every scene, one after the other; the session of each."""
    sessions: dict[str, str] = {}

    def scene(name: str, model: str) -> str:
        sessions[name] = desk.begins(f"mock:{model} {WORD}")
        return sessions[name]

    def asked(session: str) -> str:
        # A hook of the ask that comes after that of the answer is another test's story.
        desk.logs(session, "attention.requested")
        return session

    desk.ends(scene("plain", "plain"))
    desk.ends(scene("read", "read"))
    desk.decides(asked(scene("approved", "bashok")), "approved")
    desk.decides(asked(scene("refused", "bashok")), "rejected", feedback=FEEDBACK)
    desk.aborts(asked(scene("left", "bashok")))
    desk.fills_in(scene("answered", "question"), {"q_0": {"kind": "single", "option_id": BLUE}})
    desk.dismisses(scene("dismissed", "question"))
    desk.decides(asked(scene("agent", "agentbash")), "approved")
    desk.ends(scene("failed", "err500"))
    compacted = scene("compacted", "plain")
    desk.ends(compacted)
    desk.compacts(compacted)
    for session in sessions.values():
        desk.ends(session)
    return sessions


BLUE = "opt_0_1"


def shown(log: Log) -> list[JSONObject]:
    """What was only seen of the stream."""
    return [one for one in log.events if str(one["type"]).startswith("x.kimi-code.web.")]


def gist(log: Log) -> list[JSON]:
    """What a reader learns of the story: no ids, and nothing of how long it took."""
    told: list[JSON] = []
    for event in core(log):
        cause = log.cause(event)
        facts = {key: value for key, value in data(event).items() if not key.endswith("_ms")}
        if event.get("subject") == "Agent":
            facts.pop("result_digest", None)  # 0.28.0 numbers subagents in its result
        told.append([event["type"], cause and cause["type"], facts])
    return told


def test_every_log_is_valid_and_nothing_is_pending(days: Days) -> None:
    for day in days:
        for path in day.paths:
            judge_log(path)
            state = project_state(Log.read(path).events)
            assert state["violations"] == []
            assert [session["pending"] for session in state["sessions"]] == [[]]


def test_primary_tells_the_same_story_with_hooks_and_without(days: Days) -> None:
    for day in days.primary:
        assert {scene: types(log) for scene, log in day.logs.items()} == STREAMED
    hooked, bare = ({scene: gist(log) for scene, log in day.logs.items()} for day in days.primary)
    assert hooked == bare


def test_companion_tells_each_core_event_once_by_its_hook(days: Days) -> None:
    assert {scene: types(log) for scene, log in days.companion.logs.items()} == HOOKED


def test_companion_shows_what_the_stream_says_beside_it_without_a_word_of_it(days: Days) -> None:
    log = days.companion.logs["refused"]
    kinds = [str(event["type"]).removeprefix("x.kimi-code.web.") for event in shown(log)]
    once = (
        *("turn.started", "event.approval.requested", "event.approval.resolved"),
        *("tool.call.started", "tool.result", "turn.ended"),
    )

    assert [kind for kind in kinds if kind in once] == list(once)
    assert "permission.approval.requested" not in kinds
    assert "assistant.delta" not in kinds
    for each in days.companion.logs.values():
        assert all(data(event) == {} for event in shown(each))


def test_primary_shows_a_hook_that_the_stream_has_told_of(days: Days) -> None:
    seen = [event for event in days.hooked.logs["approved"].events if is_of_a_hook(event)]
    names = {str(event["type"]).removeprefix("x.kimi-code.hook.") for event in seen}

    assert all(data(event) == {} for event in seen)
    assert names >= {"user_prompt_submit", "pre_tool_use", "permission_request", "stop"}
    assert not any(is_of_a_hook(event) for log in days.bare.logs.values() for event in log.events)
    for log in days.hooked.logs.values():
        assert log.one("session.started")


def is_of_a_hook(event: JSONObject) -> bool:
    return str(event["type"]).startswith("x.kimi-code.hook.")


def test_a_refusal_is_the_calls_end_and_reaches_the_model(days: Days) -> None:
    for day in days:
        log = day.logs["refused"]
        denied, answered = log.one("tool.denied"), log.one("attention.answered")

        assert log.cause(denied) == answered
        assert data(denied)["by"] == "runtime"
        assert data(answered)["answer"] == {"option": "rejected", "text": FEEDBACK}
        assert FEEDBACK in day.sent


def test_an_answer_is_of_its_ask_and_an_abort_dismisses_it(days: Days) -> None:
    for day in days:
        log = day.logs["approved"]
        asked, answered = log.one("attention.requested"), log.one("attention.answered")
        resolved = log.one("attention.resolved")

        assert data(answered)["answer"] == {"option": "approved"}
        assert [log.cause(answered), log.cause(resolved)] == [asked, answered]
        assert answered["subject"] == resolved["subject"] == asked["id"]
        left = day.logs["left"].one("attention.resolved")
        assert data(left)["resolution"] == "dismissed"


def test_a_form_is_answered_by_its_own_ids(days: Days) -> None:
    for day in days.primary:
        log = day.logs["answered"]
        asked = log.one("attention.requested")

        assert data(asked)["kind"] == "form"
        assert data(log.one("attention.answered"))["answer"] == {"values": {"q_0": BLUE}}
        assert BLUE in json.dumps(data(asked)["fields"])
        dismissed = day.logs["dismissed"].one("attention.resolved")
        assert data(dismissed)["resolution"] == "dismissed"


def test_a_failed_run_says_of_what_kind(days: Days) -> None:
    for day in days.primary:
        failed = data(day.logs["failed"].one("run.failed"))
        assert (failed["reason"], failed["error"]) == ("failed", {"type": "provider.api_error"})
    assert data(days.companion.logs["failed"].one("run.failed"))["error"]


def test_a_subagents_turns_open_no_run_and_its_call_is_of_the_run(days: Days) -> None:
    for day in days:
        log = day.logs["agent"]
        run = log.one("run.started")["run"]

        assert {event.get("run") for event in core(log)} == {run}
        assert {event["subject"] for event in log.all("tool.completed")} == {"Agent", "Bash"}
    for day in days.primary:
        assert day.logs["agent"].all("x.kimi-code.web.turn.started")
        assert day.logs["agent"].all("x.kimi-code.web.subagent.completed")


def test_a_compaction_is_told_once(days: Days) -> None:
    for day in (days.companion, days.hooked):
        assert data(day.logs["compacted"].one("session.compacted"))["trigger"] == "manual"
    for day in days:
        assert day.logs["compacted"].one("x.kimi-code.web.compaction.completed")


def test_no_content_is_above_the_ceiling(days: Days) -> None:
    """Asks may be read, because somebody is to answer them; all else is metadata."""
    for day in days:
        for path in day.paths:
            for line in path.read_text().splitlines():
                is_an_ask = '"type":"attention.' in line or '"type": "attention.' in line
                words = CONTENT[:-1] if is_an_ask else CONTENT
                assert not [word for word in words if word in line], line
