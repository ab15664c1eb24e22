"""The real CLI in its terminal UI, with our hooks: approvals and interrupts as they reach the log.

One session a version, driven like a person would drive it; then the daemon stops, and the tests
read what it logged.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSONObject
from vendor.daemon import register, running
from vendor.kimi import Kimi
from vendor.logged import Log, data, log_files, runs_are_closed
from vendor.place import Place
from vendor.screen import Screen, terminal
from vendor.waiting import until

pytestmark = [pytest.mark.vendor, pytest.mark.usefixtures("tmux")]

APPROVED, FEEDBACK, ESCAPED, INTERRUPTED, STOPPED_TOOL = range(5)
FEEDBACK_TEXT = "keep the build"


@frozen
class Evening:
    """One session in the terminal: its log, and what it did to the working directory."""

    path: Path
    log: Log
    build_survived: bool


@pytest.fixture(scope="module")
def evening(kimi: Kimi, place: Place, config: bytes) -> Evening:
    hooked = register(kimi, place, config)
    place.renew(hooked)
    kept = place.work / "build/kept"
    kept.parent.mkdir()
    kept.touch()
    with running(kimi, place):
        with terminal(kimi, place) as screen:
            approve(screen)
            refuse_with_feedback(screen)
            escape_the_question(screen)
            interrupt_the_model(screen)
            interrupt_a_tool(screen)
            wait_for_runs(place, 5)
            screen.leave()
        until(lambda: logs(place)[0].all("session.ended"), "the session's end in the log")
    (path,) = log_files(place)
    survived = kept.exists()
    shutil.rmtree(kept.parent)
    return Evening(path, Log.read(path), survived)


def logs(place: Place) -> list[Log]:
    return [Log.read(path) for path in log_files(place)]


def wait_for_runs(place: Place, runs: int) -> None:
    until(lambda: runs_are_closed(logs(place), runs), f"{runs} closed runs in the log")


def approve(screen: Screen) -> None:
    screen.enter("mock:bashok please")
    screen.shows("Run this command?")
    screen.press("1")
    screen.shows("Prompt 1 is done.")


def refuse_with_feedback(screen: Screen) -> None:
    screen.enter("mock:rm with feedback")
    screen.shows("Run this command?")
    screen.press("4")
    screen.shows("Type feedback")
    screen.enter(FEEDBACK_TEXT)
    screen.shows("Prompt 2 is done.")


def escape_the_question(screen: Screen) -> None:
    screen.enter("mock:rm then escape")
    screen.shows("Run this command?")
    screen.press("Escape")
    screen.shows("Prompt 3 is done.")


def interrupt_the_model(screen: Screen) -> None:
    screen.enter("mock:slow then escape")
    screen.shows("I begin to think.")
    screen.press("Escape")
    screen.shows("Interrupted by user")


def interrupt_a_tool(screen: Screen) -> None:
    screen.enter("mock:sleep then ctrl c")
    screen.shows("Run this command?")
    screen.press("1")
    screen.shows("Approved: Running: sleep 60")
    screen.press("C-c")


def test_the_log_is_valid(evening: Evening) -> None:
    judge_log(evening.path)


def test_an_approval_is_asked_answered_and_resolved(evening: Evening) -> None:
    run = evening.log.of_run(APPROVED)
    asked, answered = run.one("attention.requested"), run.one("attention.answered")

    assert asked["subject"] == "Bash"
    assert run.cause(asked) == run.one("tool.requested")
    assert answer(answered)["option"] == "approved"
    assert answered["subject"] == asked["id"]
    assert run.cause(answered) == asked
    assert run.cause(run.one("attention.resolved")) == answered
    assert run.cause(run.one("tool.completed")) == run.one("tool.requested")
    assert run.story[-1] == "run.finished"


@pytest.mark.parametrize("number", [FEEDBACK, ESCAPED], ids=["feedback", "escape"])
def test_a_refusal_denies_the_tool_once_and_fails_nothing(evening: Evening, number: int) -> None:
    run = evening.log.of_run(number)
    denied = run.one("tool.denied")

    assert answer(run.one("attention.answered"))["option"] == "rejected"
    assert run.cause(denied) == run.one("attention.answered")
    assert data(denied)["by"] == "runtime"
    assert not run.all("tool.failed", "tool.completed")
    assert run.all("run.finished", "run.cancelled") == [run.one("run.finished")]


def test_a_refused_command_did_not_run(evening: Evening) -> None:
    assert evening.build_survived


def test_the_feedback_rides_with_its_answer_and_escape_has_none(evening: Evening) -> None:
    told = answer(evening.log.of_run(FEEDBACK).one("attention.answered"))
    escaped = answer(evening.log.of_run(ESCAPED).one("attention.answered"))

    assert told["text"] == FEEDBACK_TEXT
    assert "text" not in escaped


@pytest.mark.parametrize("number", [INTERRUPTED, STOPPED_TOOL], ids=["model", "tool"])
def test_an_interrupt_cancels_the_run_once(evening: Evening, number: int) -> None:
    run = evening.log.of_run(number)
    cancelled = run.one("run.cancelled")

    assert data(cancelled)["by"] == "user"
    assert run.cause(cancelled) == run.one("run.started")
    assert not run.all("run.finished", "run.failed")


def test_a_tool_that_was_interrupted_is_never_completed(kimi: Kimi, evening: Evening) -> None:
    run = evening.log.of_run(STOPPED_TOOL)

    assert answer(run.one("attention.answered"))["option"] == "approved"
    assert not run.all("tool.completed", "tool.denied")
    # Only 0.28.0 reports the tool's end; nothing is invented where the vendor is silent.
    assert len(run.all("tool.failed")) == (1 if kimi.version == "0.28.0" else 0)


def test_the_session_ends_once(evening: Evening) -> None:
    assert data(evening.log.one("session.ended"))["reason"] == "normal"
    assert evening.log.story[-1] == "session.ended"


def answer(event: JSONObject) -> JSONObject:
    found = data(event)["answer"]
    assert isinstance(found, dict)
    return found
