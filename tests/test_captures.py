"""What the real CLI did, told to the lifecycles: exact terminals, at any pace and with any delay.

The captures in `../shared/captures/hooks` are told session by session: at their recorded times, at
fixed paces, with what the vendor fires and forgets arriving late, and with every hook twice. What a
scenario must come to stands in a table written by hand; where another pace rightly comes to
something else, a second table says what and why.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from attrs import define, evolve, field, frozen

from kimiaepd.mapping.json_value import JSONObject
from made_story import Telling, Told, check
from story import Logged

pytestmark = pytest.mark.shared

Version: TypeAlias = Literal["0.28.0", "2.1.0"]
VERSIONS: tuple[Version, ...] = ("0.28.0", "2.1.0")
SEEDS = range(30)
BETWEEN_SCENARIOS = 5.0
"""Seconds; the captures do not say how long a session was quiet between two scenarios."""

# --- what each scenario comes to -------------------------------------------------------------

ANSWERED = "attention.resolved=answered"
DISMISSED = "attention.resolved=dismissed"
YES, NO = "attention.answered=approved", "attention.answered=rejected"

TEXT = ("run.finished",)
TOOL = ("tool.completed", "run.finished")
TWO_TOOLS = ("tool.completed", "tool.completed", "run.finished")
FAILING_TOOL = ("tool.failed", "run.finished")
APPROVED = (YES, ANSWERED, "tool.completed", "run.finished")
REFUSED = (NO, ANSWERED, "tool.denied", "run.finished")
REFUSED_TOO_LATE = ("tool.failed", NO, ANSWERED, "run.finished")
FAILED = ("run.failed",)
CANCELLED = ("run.cancelled",)
OVER = ("session.ended",)
NOTHING: tuple[str, ...] = ()

EXPECTED: dict[Version, dict[str, tuple[str, ...]]] = {
    "0.28.0": {
        "plain": TEXT + OVER,
        "bashok": TOOL + OVER,
        "bashfail": FAILING_TOOL + OVER,
        "badtool": FAILING_TOOL + OVER,
        "readmissing": FAILING_TOOL + OVER,
        "two": TWO_TOOLS + OVER,
        "manyout": TOOL + OVER,
        "err500": FAILED + OVER,
        "err401": FAILED + OVER,
        "err400": FAILED + OVER,  # StopFailure comes after SessionEnd
        "agent": TOOL + OVER,
        "agentbg": TOOL + OVER,
        "agentbash": TWO_TOOLS + OVER,
        "bg": TOOL + OVER,
        "bgfail": TOOL + OVER,
        "continue": TEXT,  # bgfail's session again: it has ended before
        "perm": NOTHING,
        "perm/bashok-approve-once": APPROVED,
        "perm/rm-reject": REFUSED,  # the failure comes before the result, here and in the next two
        "perm/rm-feedback": REFUSED,
        "perm/rm-esc": REFUSED,
        "perm/bashok-session": APPROVED,
        "perm/bashok-again": TOOL,
        "perm/rm-ctrlc": REFUSED,  # the result comes before the failure
        "perm/slow-interrupt-me": CANCELLED,
        "perm/sleep-interrupt-tool": (YES, ANSWERED, "run.cancelled", "tool.failed"),
        "perm/slow8-for-queue": TEXT,
        "perm/plain-queued-msg": TEXT,
        "perm/slow8-for-steer": TEXT + OVER,
        "perm/plain-after-new": TEXT + OVER,
        "exit-ctrld": NOTHING,
        "exit-ctrld/plain-hi": TEXT + OVER,
        "dialog-sigterm": NOTHING,
        "rw": NOTHING,
        "autocompact": TEXT + TEXT + FAILED + OVER,  # one session three times, it ends once
        "web": NOTHING,
        "web/bashok-web": APPROVED,
        "web/slow8-web": TEXT,
        "web/rm-web-abort": (DISMISSED, "run.cancelled", "session.ended"),
        "tui-continue-bg": NOTHING,
        "tui-continue-bg/bg-tui": TOOL,
        "tui-continue-bg/agentbash-tui": TWO_TOOLS,
        "plain (v2)": TEXT,
        "bashok (v2)": TOOL,
        "bashfail (v2)": FAILING_TOOL,
        "err500 (v2)": NOTHING,  # StopFailure came with an empty stdin
        "agentbash (v2)": TWO_TOOLS,  # its subagent hooks name no session
        "bg (v2)": TOOL,
    },
    "2.1.0": {
        "plain": TEXT,
        "bashok": TOOL,
        "bashfail": FAILING_TOOL,
        "badtool": FAILING_TOOL,
        "readmissing": FAILING_TOOL,
        "two": TWO_TOOLS,
        "manyout": TOOL,
        "err500": FAILED,
        "err401": FAILED,
        "err400": FAILED,
        "agent": TOOL,
        "agentbg": TOOL,
        "agentbash": TWO_TOOLS,
        "bg": TOOL,
        "bgfail": TOOL,
        "continue": TEXT,
        "perm": NOTHING,
        "perm/bashok-approve-once": APPROVED,  # the completion comes before the result
        "perm/rm-reject": REFUSED,
        "perm/rm-feedback": REFUSED,
        "perm/rm-esc": REFUSED,
        "perm/bashok-session": APPROVED,
        "perm/bashok-again": TOOL,
        "perm/rm-ctrlc": REFUSED,  # the failure comes before the result
        "perm/slow-interrupt-me": CANCELLED,
        "perm/sleep-interrupt-tool": (YES, ANSWERED, "run.cancelled"),  # its end was killed
        "perm/slow8-for-queue": TEXT,
        "perm/plain-queued-msg": TEXT,
        "perm/slow8-for-steer": TEXT + OVER,
        "perm/plain-after-new": TEXT + OVER,
        "exit-ctrld": NOTHING,
        "exit-ctrld/plain-hi": TEXT + OVER,
        "dialog-sigterm": NOTHING,
        "dialog-sigterm/rm-hi": NOTHING,  # killed while it asked
        "once": NOTHING,
        "once/rm-acp-once": APPROVED,
        "cancelled": NOTHING,
        "cancelled/rm-acp-cancelled": (DISMISSED, "tool.failed", "run.finished"),
        "error": NOTHING,
        "error/rm-acp-error": REFUSED,  # failure, request, result: the first ask of its session
        "cancelturn": NOTHING,
        "cancelturn/rm-acp-cancelturn": CANCELLED,  # the request comes after the interrupt
        "autocompact": TEXT + TEXT + FAILED,
        "web": NOTHING,
        "web/bashok-web": APPROVED,
        "web/slow8-web": TEXT,
        "web/rm-web-abort": (DISMISSED, "run.cancelled", "session.ended"),
        "tui-continue-bg": NOTHING,
        "tui-continue-bg/bg-tui": TOOL,
        "tui-continue-bg/agentbash-tui": TWO_TOOLS,
        "bg-nodelay": TEXT,  # the end of its call was killed
    },
}

AT_1_S: dict[Version, dict[str, tuple[str, ...]]] = {
    "0.28.0": {},
    "2.1.0": {
        # No ask was seen in this session within 200 ms of the failure.
        "error/rm-acp-error": REFUSED_TOO_LATE,
    },
}

AT_2_5_S: dict[Version, dict[str, tuple[str, ...]]] = {
    "0.28.0": {
        # The run's own StopFailure comes later than 2 s after SessionEnd.
        "err400": CANCELLED + OVER,
        # The result comes later than 2 s after the failure.
        "perm/rm-reject": REFUSED_TOO_LATE,
        "perm/rm-feedback": REFUSED_TOO_LATE,
        "perm/rm-esc": REFUSED_TOO_LATE,
    },
    "2.1.0": {
        "perm/rm-ctrlc": REFUSED_TOO_LATE,
        "error/rm-acp-error": REFUSED_TOO_LATE,
    },
}

CLOSERS: dict[Version, dict[str, int]] = {
    "0.28.0": {
        "agent": 2,
        "agentbash": 3,
        "agentbg": 2,  # one Stop before SubagentStop: the subagent's
        "tui-continue-bg/agentbash-tui": 3,
        "agentbash (v2)": 3,
        "bg (v2)": 1,
    },
    "2.1.0": {
        "agent": 2,
        "agentbash": 2,
        "agentbg": 1,  # two Stops before SubagentStop: the later one is the subagent's
        "bg": 1,
        "bgfail": 1,
        "tui-continue-bg/bg-tui": 1,
        "tui-continue-bg/agentbash-tui": 2,
        "bg-nodelay": 1,
    },
}
"""Which Stop of a scenario closes its run, where it has several: the first is 1."""

CLOSERS_AT_2_5_S: dict[Version, dict[str, int]] = {
    # The subagent's Stop waited its 2 s before SubagentStop came: it was taken for the run's.
    "0.28.0": {"agentbg": 1},
    "2.1.0": {},
}

FORGOTTEN = {
    *("PermissionRequest", "PermissionResult", "PostToolUse", "PostToolUseFailure", "Notification"),
    *("SubagentStart", "SubagentStop", "TurnStarted", "TaskStarted", "UserPromptQueued"),
    *("PostCompact", "SessionHeartbeat", "StopFailure", "Interrupt"),
}
"""What the vendor does not wait for, or only by its source: it may arrive late."""

# --- reading and telling ---------------------------------------------------------------------


@frozen
class Captured:
    """One hook of a capture: when it came in its session, in seconds, and in which scenario."""

    at: float
    scenario: str
    payload: JSONObject

    @property
    def event(self) -> object:
        """The vendor's name of the hook."""
        return self.payload["hook_event_name"]


Sessions: TypeAlias = dict[str, list[Captured]]


def captured(shared: Path, version: Version) -> Sessions:
    """The hooks of a version by session, in capture order, at their recorded times."""
    sessions: Sessions = {}
    starts: dict[str, tuple[str, float]] = {}
    for line in (shared / f"captures/hooks/hooks-{version}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        payload = entry["stdin"]
        if payload is None:
            continue
        session = payload["session_id"] or "unknown"
        scenario = entry["scenario"] + (" (v2)" if entry["engine"] == "headless-exp-v2" else "")
        hooks = sessions.setdefault(session, [])
        if starts.get(session, ("", 0.0))[0] != scenario:
            quiet_since = hooks[-1].at + BETWEEN_SCENARIOS if hooks else 0.0
            starts[session] = scenario, quiet_since - entry["ms"] / 1000
        at = starts[session][1] + entry["ms"] / 1000
        hooks.append(Captured(at, scenario, payload))
    return sessions


@define
class Outcome:
    """What the scenarios of a version came to."""

    terminals: dict[str, list[str]] = field(factory=dict)
    closers: dict[str, int] = field(factory=dict)
    duplicates: int = 0


def tell(sessions: Sessions) -> Outcome:
    """Tell all sessions, each in a story of its own."""
    outcome = Outcome()
    for hooks in sessions.values():
        _tell(hooks, outcome)
    return outcome


def _tell(hooks: list[Captured], outcome: Outcome) -> None:
    story = Telling()
    scenarios: list[str] = []
    stops: dict[str, tuple[str, int]] = {}
    counts: Counter[str] = Counter()
    now = 0.0
    for hook in hooks:
        outcome.terminals.setdefault(hook.scenario, [])
        story.wait(hook.at - now)
        scenarios += [hook.scenario] * (len(story.events) - len(scenarios))
        told = len(story.events)
        story.tell(Told(0.0, hook.payload))
        now = hook.at
        scenarios += [hook.scenario] * (len(story.events) - len(scenarios))
        if hook.event == "Stop":
            counts[hook.scenario] += 1
            for event in story.events[told:]:
                stops.setdefault(event.id, (hook.scenario, counts[hook.scenario]))
    story.wait(10)
    story.machine.settle()
    scenarios += scenarios[-1:] * (len(story.events) - len(scenarios))
    check(story.events)
    assert story.unheard == story.machine.duplicates, "nothing is lost"
    outcome.duplicates += story.machine.duplicates
    _sort(story.events, scenarios, stops, outcome)


def _sort(
    events: list[Logged],
    scenarios: list[str],
    stops: dict[str, tuple[str, int]],
    outcome: Outcome,
) -> None:
    """Put each terminal to the scenario of its run; without a run, to the one it came in."""
    of_run = {
        event.run: scenario
        for event, scenario in zip(events, scenarios, strict=True)
        if event.type == "run.started"
    }
    for event, came_in in zip(events, scenarios, strict=True):
        scenario = of_run.get(event.run, came_in)
        outcome.terminals[scenario] += _words(event)
        if event.type == "run.finished":
            # A Stop that waited is the cause; one that did not has logged the terminal itself.
            stopped = stops.get(event.cause or "") or stops[event.id]
            outcome.closers[scenario] = stopped[1]


def _words(event: Logged) -> Iterator[str]:
    if event.type == "attention.answered":
        yield f"attention.answered={event.data['answer.option']}"
    elif event.type == "attention.resolved":
        yield f"attention.resolved={event.data['resolution']}"
    elif event.type in TERMINALS:
        yield event.type


TERMINALS = {
    *("run.finished", "run.failed", "run.cancelled", "session.ended"),
    *("tool.completed", "tool.failed", "tool.denied"),
}


def paced(sessions: Sessions, seconds: float) -> Sessions:
    """The same hooks in their order, so many seconds apart."""
    return {
        session: [evolve(hook, at=index * seconds) for index, hook in enumerate(hooks)]
        for session, hooks in sessions.items()
    }


def delayed(sessions: Sessions, seed: int) -> Sessions:
    """The same hooks at their times, but what is forgotten comes up to 150 ms late."""
    chance = random.Random(seed)
    late = {}
    for session, hooks in sessions.items():
        moved = [
            evolve(hook, at=hook.at + chance.randint(0, 150) / 1000)
            if hook.event in FORGOTTEN
            else hook
            for hook in hooks
        ]
        late[session] = sorted(moved, key=lambda hook: hook.at)
    return late


def twice(sessions: Sessions) -> Sessions:
    """Every hook by two installs, a millisecond apart."""
    return {
        session: [evolve(hook, at=hook.at + again / 1000) for hook in hooks for again in (0, 1)]
        for session, hooks in sessions.items()
    }


def assert_came_to(outcome: Outcome, expected: dict[str, tuple[str, ...]]) -> None:
    """The terminals of every scenario, exactly, in any order."""
    assert outcome.terminals.keys() == expected.keys()
    for scenario, words in expected.items():
        assert sorted(outcome.terminals[scenario]) == sorted(words), scenario


def assert_closed_by(outcome: Outcome, expected: dict[str, int]) -> None:
    """The Stop that closed the run of each scenario that has more than one."""
    assert {scenario: outcome.closers[scenario] for scenario in expected} == expected


# --- the tests -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_at_the_recorded_times(shared: Path, version: Version) -> None:
    outcome = tell(captured(shared, version))
    assert_came_to(outcome, EXPECTED[version])
    assert_closed_by(outcome, CLOSERS[version])
    assert outcome.duplicates == 0, "the vendor ran each hook once"


@pytest.mark.parametrize(
    ("seconds", "otherwise", "closers"),
    [(0.1, {}, {}), (1.0, AT_1_S, {}), (2.5, AT_2_5_S, CLOSERS_AT_2_5_S)],
    ids=["0.1 s", "1 s", "2.5 s"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_at_a_fixed_pace(
    shared: Path,
    version: Version,
    seconds: float,
    otherwise: dict[Version, dict[str, tuple[str, ...]]],
    closers: dict[Version, dict[str, int]],
) -> None:
    outcome = tell(paced(captured(shared, version), seconds))
    assert_came_to(outcome, EXPECTED[version] | otherwise.get(version, {}))
    assert_closed_by(outcome, CLOSERS[version] | closers.get(version, {}))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_with_what_is_forgotten_late(shared: Path, version: Version, seed: int) -> None:
    sessions = delayed(captured(shared, version), seed)
    outcome = tell(sessions)
    assert_came_to(outcome, EXPECTED[version] | rightly_different(sessions))
    assert_closed_by(outcome, CLOSERS[version])


def rightly_different(sessions: Sessions) -> dict[str, tuple[str, ...]]:
    """What a delay changes: by the order, or the time between two hooks, that it came to."""
    different: dict[str, tuple[str, ...]] = {}
    error, cancelturn = "error/rm-acp-error", "cancelturn/rm-acp-cancelturn"
    at = {(hook.scenario, hook.event): hook.at for hooks in sessions.values() for hook in hooks}
    if (error, "PostToolUseFailure") in at:
        asked = min(at[error, "PermissionRequest"], at[error, "PermissionResult"])
        if asked - at[error, "PostToolUseFailure"] >= 0.2:
            different[error] = REFUSED_TOO_LATE
        if at[cancelturn, "PermissionRequest"] < at[cancelturn, "Interrupt"]:
            different[cancelturn] = (DISMISSED, *CANCELLED)
    return different


@pytest.mark.parametrize("version", VERSIONS)
def test_with_every_hook_twice(shared: Path, version: Version) -> None:
    outcome = tell(twice(captured(shared, version)))
    assert_came_to(outcome, EXPECTED[version])
    assert outcome.duplicates > 50


def test_the_captures_are_read_in_order_and_whole(shared: Path) -> None:
    for version in VERSIONS:
        sessions = captured(shared, version)
        lines = (shared / f"captures/hooks/hooks-{version}.jsonl").read_text().splitlines()
        empty = sum(json.loads(line)["stdin"] is None for line in lines)
        assert sum(map(len, sessions.values())) == len(lines) - empty
        for hooks in sessions.values():
            assert all(one.at <= other.at for one, other in pairwise(hooks))
    assert "unknown" in captured(shared, "0.28.0")
