"""The real CLI held by the gate, with a person at the relay who answers.

One session a version in its terminal UI: a person at the keys, another one at the relay. Then the
daemon stops, and the tests read what the model was sent, what was heard, and what was logged.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import pytest
from aep_sdk.projection import project_state
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.setup.command import AFTER_HOLD_SECONDS
from vendor.daemon import register, running
from vendor.human import RESPOND, Human, watching
from vendor.kimi import Kimi
from vendor.logged import Log, data, log_files, runs_are_closed
from vendor.place import Place
from vendor.provider import Provider, Request
from vendor.screen import Screen, terminal
from vendor.waiting import until

pytestmark = [pytest.mark.vendor, pytest.mark.usefixtures("tmux")]

DENIED, ALLOWED, UNANSWERED, PAIR, SESSION, ESCAPED = range(6)
REASON = "Keep the build: it is not yours."
PAIR_REASON = "Of these two, not this one."
HOLD_S = 8
SETTINGS = f"""\
[gate]
enabled = true
hold_ms = {HOLD_S * 1000}
options = "four"
tools = ["Bash", "Write"]
[collector]
port = 0
"""


@frozen
class Evening:
    """One session in the terminal.

    Attributes:
        told: what the model was told of each call, in every request that has its result.
        heard: what came over the relay.
        build_survived: whether the command that was denied did not run.
    """

    path: Path
    log: Log
    told: Mapping[str, set[str]]
    heard: list[JSONObject]
    build_survived: bool


@pytest.fixture(scope="module")
def evening(kimi: Kimi, place: Place, config: bytes, provider: Provider) -> Evening:
    settings = place.home / ".config/kimiaepd/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS)
    place.renew(register(kimi, place, config))
    kept = place.work / "build/kept"
    kept.parent.mkdir()
    kept.touch()
    provider.take()
    with running(kimi, place), watching(kimi, place) as human:
        with terminal(kimi, place) as screen:
            deny(screen, human)
            allow(screen, human)
            let_it_time_out(screen, human)
            answer_two_at_once(screen, human)
            allow_for_the_session(screen, human)
            escape(screen, human, place)
            until(lambda: runs_are_closed(logs(place), 6), "6 closed runs in the log")
            screen.leave()
        until(lambda: logs(place)[0].all("session.ended"), "the session's end in the log")
        until(lambda: human.of_type("session.ended"), "the session's end at the relay")
    (path,) = log_files(place)
    survived = kept.exists()
    shutil.rmtree(kept.parent, ignore_errors=True)
    return Evening(path, Log.read(path), results(provider.take()), human.heard, survived)


def results(requests: Iterable[Request]) -> Mapping[str, set[str]]:
    """What the model was told of each call."""
    told: dict[str, set[str]] = {}
    for request in requests:
        for message in json.loads(request.body)["messages"]:
            if message["role"] == "tool":
                told.setdefault(message["tool_call_id"], set()).add(json.dumps(message["content"]))
    return told


def logs(place: Place) -> list[Log]:
    return [Log.read(path) for path in log_files(place)]


def deny(screen: Screen, human: Human) -> None:
    screen.enter("mock:rm and be denied")
    (asked,) = human.asked()
    human.answers(asked, "deny", REASON)
    screen.shows(REASON)
    screen.shows("Prompt 1 is done.")


def allow(screen: Screen, human: Human) -> None:
    screen.enter("mock:bashok and be allowed")
    (asked,) = human.asked()
    assert "Run this command?" not in screen.text()
    human.answers(asked, "allow")
    approve(screen)
    screen.shows("Prompt 2 is done.")


def approve(screen: Screen) -> None:
    """Say yes to the CLI's own approval."""
    screen.shows("Run this command?")
    screen.press("1")


def let_it_time_out(screen: Screen, human: Human) -> None:
    screen.enter("mock:bashok and wait")
    (asked,) = human.asked()
    human.hears("attention.timeout", asked["id"])
    approve(screen)
    screen.shows("Prompt 3 is done.")


def answer_two_at_once(screen: Screen, human: Human) -> None:
    """Two subagents' calls: 0.28.0 asks about the calls of one reply one after the other."""
    screen.enter("mock:pair at once")
    first, second = human.asked(2)
    removes, echoes = sorted((first, second), key=lambda asked: "rm" not in prompt(asked))
    human.answers(removes, "deny", PAIR_REASON)
    human.answers(echoes, "allow")
    approve(screen)
    screen.shows("Prompt 4 is done.")


def allow_for_the_session(screen: Screen, human: Human) -> None:
    screen.enter("mock:twice for the session")
    (asked,) = human.asked()
    human.answers(asked, "allow_session")
    approve(screen)
    screen.shows("echo the-second")
    approve(screen)
    screen.shows("Prompt 5 is done.")


def escape(screen: Screen, human: Human, place: Place) -> None:
    screen.enter("mock:write then escape")
    (asked,) = human.asked()
    assert shims(place)
    screen.press("Escape")
    human.hears("attention.resolved", asked["id"])
    until(lambda: not shims(place), "the end of the shim")
    screen.shows("Interrupted by user")


def shims(place: Place) -> list[str]:
    """The hook programs of this place that run now."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(place.shim) in line]


def prompt(asked: JSONObject) -> str:
    return str(data(asked)["prompt"])


def held(run: Log) -> list[JSONObject]:
    """The asks of the gate in a run; the others are the CLI's own."""
    return [e for e in run.all("attention.requested") if data(e)["respond_via"] == ["control"]]


def about(run: Log, asked: JSONObject) -> dict[str, JSONObject]:
    """What came of an ask, by type; no type twice."""
    events = [e for e in run.events if e.get("subject") == asked["id"]]
    found = {str(event["type"]): event for event in events}
    assert len(found) == len(events), events
    return found


def option(answered: JSONObject) -> JSON:
    answer = data(answered)["answer"]
    assert isinstance(answer, dict)
    return answer["option"]


def test_the_log_is_valid_and_nothing_is_pending(evening: Evening) -> None:
    judge_log(evening.path)
    state = project_state(evening.log.events)

    assert state["violations"] == []
    assert [session["pending"] for session in state["sessions"]] == [[]]


def test_the_relay_told_all_of_it(evening: Evening) -> None:
    session = [event for event in evening.heard if "seq" in event]

    assert session == list(evening.log.events)
    assert project_state(session)["violations"] == []


def test_a_deny_reaches_the_model_and_the_command_did_not_run(evening: Evening) -> None:
    (told,) = evening.told["call_rm_1_0"]

    assert REASON in told
    assert evening.build_survived


def test_a_deny_is_linked_from_the_call_to_the_refusal(evening: Evening) -> None:
    run = evening.log.of_run(DENIED)
    (asked,) = held(run)
    came = about(run, asked)
    answered, denied = came["attention.answered"], run.one("tool.denied")
    accepted = next(
        e for e in evening.log.all("control.accepted") if e["cause"] == answered["cause"]
    )
    (command,) = (event for event in evening.heard if event["id"] == answered["cause"])

    assert run.cause(asked) == run.one("tool.requested")
    assert (command["type"], command["subject"]) == (RESPOND, asked["id"])
    assert (option(answered), data(answered)["via"]) == ("deny", "control")
    assert run.cause(came["attention.resolved"]) == run.cause(denied) == answered
    assert data(denied)["by"] == "policy"
    order = [evening.log.events.index(e) for e in (asked, accepted, answered, denied)]
    assert order == sorted(order)
    assert not run.all("tool.completed", "tool.failed")
    assert run.story[-1] == "run.finished"


def test_an_allow_leaves_the_clis_own_approval_in_place(evening: Evening) -> None:
    run = evening.log.of_run(ALLOWED)
    ours, theirs = run.all("attention.requested")

    assert option(about(run, ours)["attention.answered"]) == "allow"
    assert data(theirs)["respond_via"] == ["oob"]
    assert option(about(run, theirs)["attention.answered"]) == "approved"
    assert run.cause(run.one("tool.completed")) == run.one("tool.requested")


def test_a_timeout_lets_the_call_go_on(evening: Evening) -> None:
    run = evening.log.of_run(UNANSWERED)
    (asked,) = held(run)

    assert list(about(run, asked)) == ["attention.timeout"]
    after_ms = data(run.one("attention.timeout"))["after_ms"]
    assert isinstance(after_ms, int)
    assert HOLD_S <= after_ms / 1000 < HOLD_S + AFTER_HOLD_SECONDS
    assert run.one("tool.completed")
    assert not run.all("tool.denied")


def test_two_calls_held_at_once_get_each_its_own_answer(evening: Evening) -> None:
    run = evening.log.of_run(PAIR)
    asks = held(run)
    options = {prompt(asked): option(about(run, asked)["attention.answered"]) for asked in asks}

    assert options == {"Bash: echo from-the-subagent": "allow", "Bash: rm -rf build": "deny"}
    first_answer = min(run.events.index(e) for e in run.all("attention.answered"))
    assert all(run.events.index(asked) < first_answer for asked in asks)
    done = [event for event in run.all("tool.completed") if event["subject"] == "Bash"]
    assert len(run.all("tool.denied")) == len(done) == 1
    (allowed,) = evening.told["call_subbash_1_0"]
    (denied,) = evening.told["call_subrm_1_0"]
    assert "from-the-subagent" in allowed
    assert PAIR_REASON in denied


def test_what_is_allowed_for_the_session_is_asked_once(evening: Evening) -> None:
    run = evening.log.of_run(SESSION)
    (asked,) = held(run)

    assert prompt(asked) == "Bash: echo the-first"
    assert option(about(run, asked)["attention.answered"]) == "allow_session"
    assert len(run.all("tool.completed")) == 2


def test_escape_frees_the_call_and_dismisses_the_ask(evening: Evening) -> None:
    run = evening.log.of_run(ESCAPED)
    (asked,) = held(run)
    (resolved,) = about(run, asked).values()

    assert resolved["type"] == "attention.resolved"
    assert data(resolved)["resolution"] == "dismissed"
    assert moment(resolved["time"]) < moment(data(asked)["expires_at"])
    assert run.one("run.cancelled")
    assert not run.all("tool.denied", "tool.completed")


def moment(text: JSON) -> datetime:
    return datetime.fromisoformat(str(text))
