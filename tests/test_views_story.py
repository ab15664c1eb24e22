"""Stories from the log: what `kimiaepd sessions` and `timeline` tell, whatever is in it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.text import Text

from daemon_room import Room, opened
from kimiaepd import sessions as sessions_room
from kimiaepd.errors import UserError
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.views import story as story_room
from kimiaepd.views import story_log
from kimiaepd.views.paper import paper, show
from kimiaepd.views.story import Story
from kimiaepd.views.story_parts import Ask, Call, Note, Run
from kimiaepd.views.timeline import overview, session_object, timeline, timeline_object
from live import Live, scratch
from test_collector_hub import event

NAME = "session_31aa9970-09a5-4e97-af7f-f423ebe05325"
OTHER = "session_31bb0000-0000-4000-8000-000000000000"
DAYS = 3 * 86_400
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
MAIN = "import sys; sys.argv[0] = 'kimiaepd'; from kimiaepd.cli import main; main()"
BASH: JSONObject = {"tool_name": "Bash", "tool_input": {"command": "git push"}}


def told(*events: JSONObject) -> Story:
    story = Story(NAME)
    for one in events:
        story.take(one)
    return story


def at(seconds: float, kind: str, data: JSON = None, **more: JSON) -> JSONObject:
    moment = (NOON + timedelta(seconds=seconds)).isoformat()
    return {**event(NAME), "type": kind, "time": moment, "data": data, **more}


def lines(story: Story, now: datetime = NOON + timedelta(seconds=60)) -> list[str]:
    return [line.plain.rstrip() for line in timeline(story, now)]


RUN: JSONObject = {"run": "r1"}
ASKED: JSONObject = {
    "kind": "permission", "prompt": "Bash: git push", "respond_via": ["control"],
    "expires_at": (NOON + timedelta(seconds=70)).isoformat(),
}  # fmt: skip


def call(number: int) -> JSONObject:
    return {"tool": {"name": "Bash", "call_id": f"c{number}"}}


@pytest.fixture
def whole() -> Story:
    """A session with one of everything."""
    return told(
        at(0, "session.started", {"trigger": "startup", "gen_ai.request.model": "k2"}),
        at(1, "run.started", {"trigger": "user"}, run="r1"),
        at(2, "tool.requested", {**call(1), "args_redacted": {"command": "ls"}}, run="r1"),
        at(3, "tool.completed", {**call(1), "duration_ms": 812}, run="r1"),
        at(4, "tool.requested", call(2), run="r1"),
        at(5, "attention.requested", ASKED, id="ask1", subject="Bash", run="r1"),
        at(8, "attention.answered", {"answer": {"option": "deny", "text": "not now"},
                                     "via": "control"}, subject="ask1", run="r1"),
        at(8, "attention.resolved", {"resolution": "answered", "latency_ms": 3200}, subject="ask1"),
        at(8, "tool.denied", {**call(2), "by": "policy"}, run="r1"),
        at(9, "x.kimi-code.log.gap", {"count": 12}),
        at(10, "run.finished", {"duration_ms": 9_000}, run="r1"),
        at(11, "run.started", {}, run="r2", seq=1, epoch=2),
        at(12, "tool.requested", call(3), run="r2"),
        at(13, "attention.requested", ASKED, id="ask2", subject="Bash", run="r2"),
    )  # fmt: skip


def test_the_timeline_tells_runs_calls_asks_and_who_answered(whole: Story) -> None:
    said = lines(whole)
    assert said[0] == NAME
    assert said[1].startswith("awaiting approval  ")
    assert "k2" in said[1]
    assert [line[10:] for line in said[3:]] == [
        "session started (startup)",
        "run 1  finished after 9.0 s",
        "  Bash            812 ms            ls",
        "  Bash            denied after 4.0 s  by policy",
        "  asked           deny from elsewhere after 3.2 s  not now  Bash: git push",
        "12 events that could not be written",
        "the daemon was started anew",
        "run 2  goes on",
        "  Bash            goes on",
        "  asked           waits, 10.0 s left  Bash: git push",
    ]


def test_the_timeline_as_json_has_every_row_and_moments_that_programs_read(whole: Story) -> None:
    found = json.loads(json.dumps(timeline_object(whole, NOON + timedelta(seconds=60))))
    assert (found["session"], found["state"], found["model"]) == (NAME, "awaiting approval", "k2")
    assert (found["runs"], found["calls"], found["asks"], found["open_asks"]) == (2, 3, 2, 1)
    assert [row["row"] for row in found["rows"]] == [
        "note", "run", "call", "call", "ask", "note", "note", "run", "call", "ask",
    ]  # fmt: skip
    assert found["rows"][2]["ms"] == 812
    assert datetime.fromisoformat(found["rows"][4]["ended"]) == NOON + timedelta(seconds=8)


@pytest.mark.parametrize(
    ("events", "after", "state"),
    [
        ([at(0, "session.started")], 60, "idle"),
        ([at(0, "run.started", run="r")], 60, "running"),
        ([at(0, "run.started", run="r"), at(1, "run.finished", run="r")], 60, "idle"),
        ([at(0, "run.started", run="r"), at(1, "session.ended")], 60, "ended"),
        ([at(0, "session.ended"), at(1, "session.started")], 60, "idle"),
        ([at(0, "attention.requested", {**ASKED, "expires_at": None})], 60, "awaiting approval"),
        ([at(0, "attention.requested", ASKED)], 60, "awaiting approval"),
        ([at(0, "attention.requested", ASKED)], 80, "idle"),
        ([at(0, "attention.requested", ASKED, id="a"),
          at(1, "attention.timeout", {"after_ms": 1}, subject="a")], 60, "idle"),
        ([at(0, story_room.HEARTBEAT)], 120, "idle"),
        ([at(0, story_room.HEARTBEAT)], 130, "stale"),
        ([at(0, "run.started", run="r")], 90_000, "stale"),
        ([], 0, "stale"),
    ],
)  # fmt: skip
def test_a_session_is_as_its_events_say(events: list[JSONObject], after: int, state: str) -> None:
    story = told(*events)
    assert story.state(NOON + timedelta(seconds=after)) == state


def test_it_is_stale_when_the_daemon_says_so() -> None:
    assert timedelta(seconds=sessions_room.STALE_SECONDS) == story_room.STALE


def test_what_has_no_end_in_a_session_that_is_over_is_not_said_to_go_on() -> None:
    story = told(
        at(0, "run.started", run="r1"), at(1, "tool.requested", call(1), run="r1"),
        at(2, "attention.requested", {**ASKED, "respond_via": ["oob"], "expires_at": None}),
    )  # fmt: skip
    assert lines(story)[-1].endswith("  waits at the terminal  Bash: git push")
    story.take(at(3, "session.ended", {"reason": "killed"}))
    assert sum("no end was seen" in line for line in lines(story)) == 3
    assert lines(story)[-1].endswith("session ended (killed)")


def test_an_end_of_what_was_never_begun_is_told() -> None:
    story = told(at(1, "tool.failed", {**call(9), "error": {"type": "internal"}}))
    assert lines(story)[-1].endswith("  Bash            failed            internal")


def test_a_terminal_of_80_columns_has_room_and_a_pipe_no_escapes(
    whole: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    screen, pipe = Screen(), io.StringIO()
    for file in (screen, pipe):
        show(paper(file), overview([whole, told(), Story(OTHER)], NOON))
        for line in timeline(whole, NOON):
            show(paper(file), line)
    assert "\x1b" not in pipe.getvalue()
    assert "\x1b[" in screen.getvalue()
    shown = Text.from_ansi(screen.getvalue()).plain.splitlines()
    assert [line for line in shown if len(line) > 80] == []
    assert NAME in pipe.getvalue().splitlines()[1]  # two are as short: the whole name is said


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


json_values: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=6),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=3,
)
CONTROL: JSON = ["control"]
ids: st.SearchStrategy[JSON] = st.sampled_from(["r1", "a1", "c1", NAME]) | json_values
data: st.SearchStrategy[JSON] = st.fixed_dictionaries(
    {},
    optional={
        "tool": st.fixed_dictionaries({}, optional={"name": json_values, "call_id": ids}),
        "answer": st.fixed_dictionaries({}, optional={"option": json_values, "text": json_values}),
        "error": st.fixed_dictionaries({}, optional={"type": json_values}),
        "respond_via": st.just(CONTROL) | json_values,
        "expires_at": st.just(NOON.isoformat()) | json_values,
        **dict.fromkeys(("resolution", "reason", "by", "via", "prompt", "count"), json_values),
        **dict.fromkeys(("duration_ms", "latency_ms", "after_ms"), json_values),
    },
)
objects: st.SearchStrategy[JSONObject] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(sorted(story_room._HANDLERS)) | json_values,
        "data": data | json_values,
        "time": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat) | json_values,
        **dict.fromkeys(("id", "subject", "run", "cause", "session", "agent"), ids),
        **dict.fromkeys(("epoch", "seq"), st.integers(0, 3) | json_values),
    },
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(objects, max_size=8))
def test_no_log_is_too_odd_to_be_told(log: list[JSONObject]) -> None:
    story = told(*log)
    now = NOON
    assert story.events + story.passed_over == len(log)
    assert {run.id for run in story.runs.values()} == set(story.runs)
    rows = [row for row in story.rows if not isinstance(row, Note)]
    assert len(rows) == len(story.runs) + story.calls_made + len(story.asks)
    assert all(line.isprintable() for line in lines(story, now))
    show(paper(io.StringIO()), overview([story], now))
    session_object(story, now)
    timeline_object(story, now)


# --- from the log --------------------------------------------------------------------------------


async def tell_a_session(room: Room, name: str) -> None:
    for hook, fields in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": []}),
        ("PreToolUse", {**BASH, "tool_call_id": "c1"}),
        ("PermissionRequest", {**BASH, "tool_call_id": "c1", "id": "p1", "agent_id": "main"}),
        ("PermissionResult", {**BASH, "tool_call_id": "c1", "id": "p1", "agent_id": "main",
                              "decision": "approved"}),
        ("PostToolUse", {**BASH, "tool_call_id": "c1", "tool_output": "done"}),
        ("Stop", {}),
    ):  # fmt: skip
        await room.hook(hook, fields, session=name)


async def test_what_hooks_did_is_told_from_the_log(tmp_path: Path) -> None:
    with opened(tmp_path, ceilings=Ceilings(Capture.REDACTED, {})) as room:
        await tell_a_session(room, NAME)
    found = story_log.tell(tmp_path / "log", NAME)
    assert found.damage is None
    story = found.story
    (run,), (ask,) = story.runs.values(), story.asks.values()
    (one,) = story.calls.values()
    assert (run.outcome, one.outcome, one.what) == ("finished", "completed", "git push")
    assert (ask.outcome, ask.option, ask.via, ask.is_ours) == ("answered", "approved", "oob", False)
    assert one.run == ask.run == run.id
    assert [type(row) for row in story.rows] == [Note, Run, Call, Ask]


def test_what_cannot_be_read_costs_itself_alone_and_is_said(tmp_path: Path) -> None:
    log = tmp_path / f"{NAME}.jsonl"
    whole = [json.dumps(at(0, "session.started")), "half a li", json.dumps(["no", "event"]), "{}"]
    log.write_text("\n".join([*whole, json.dumps(at(1, "session.ended"))]) + "\n")
    found = story_log.tell(tmp_path, NAME)
    assert found.story.is_ended
    assert found.damage == (
        "the log of session 31aa9970 is damaged: 3 lines cannot be read and stand in no story"
    )


def test_a_file_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.jsonl").mkdir()
    assert "a part cannot be read" in str(story_log.tell(tmp_path, NAME).damage)


def test_a_session_is_meant_by_the_beginning_of_its_name() -> None:
    assert story_log.meant("31aa", [NAME, OTHER]) == NAME
    assert story_log.meant("session_31b", [NAME, OTHER]) == OTHER
    assert story_log.meant("31", ["31", NAME]) == "31"
    with pytest.raises(UserError, match=f"2 sessions begin so: {NAME}, {OTHER}; say more"):
        story_log.meant("31", [NAME, OTHER])
    with pytest.raises(UserError, match=r"no session in the log begins with 'x\ufffd'"):
        story_log.meant("x\x1b", [NAME])


def test_the_sessions_are_listed_the_newest_first(tmp_path: Path) -> None:
    for age, name in enumerate((NAME, OTHER, "third")):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("")
        os.utime(file, (1000 - age, 1000 - age))
    (tmp_path / f"third@{10**18}.jsonl").write_text("")
    (tmp_path / "notes.txt").write_text("")
    assert story_log.sessions(tmp_path) == [NAME, OTHER, "third"]
    assert story_log.sessions(tmp_path / "nowhere") == []


# --- as commands ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """A scratch user with two sessions in the log, and no daemon."""
    with scratch() as made:
        made.where.log_dir.mkdir(parents=True)
        for name, events in (
            (OTHER, [at(-DAYS, "session.started"), at(1 - DAYS, "session.ended")]),
            (NAME, [at(-DAYS, "run.started", run="r1"), at(5 - DAYS, "run.failed", run="r1")]),
        ):
            file = made.where.log_dir / f"{name}.jsonl"
            file.write_text("".join(json.dumps({**one, "session": name}) + "\n" for one in events))
            os.utime(file, (1000 + (name == NAME), 1000))
        yield made


def test_the_sessions_are_shown_without_a_daemon(live: Live) -> None:
    done = live.run("sessions")
    assert (done.returncode, done.stderr) == (0, "")
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["session", "state", "last", "seen", "runs", "calls", "asks", "model"]
    assert first.split()[:2] == ["31aa9970", "stale"]
    assert second.split()[:2] == ["31bb0000", "ended"]
    found = json.loads(live.run("sessions", "--json", "-n", "1").stdout)
    assert [one["session"] for one in found] == [NAME]
    assert "1 older sessions are not shown" in live.run("sessions", "-n", "1").stderr


def test_a_timeline_is_shown_by_a_short_name_or_as_the_last(live: Live) -> None:
    by_name, last = live.run("timeline", "31aa"), live.run("timeline", "--last")
    assert by_name.stdout == last.stdout
    assert by_name.stdout.splitlines()[0] == NAME
    assert "run 1  failed after 5.0 s" in by_name.stdout
    assert json.loads(live.run("timeline", "31bb", "--json").stdout)["state"] == "ended"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 64, "say a SESSION, or --last"),
        (["31aa", "--last"], 64, "say a SESSION, or --last"),
        (["31"], 1, "2 sessions begin so"),
        (["none"], 1, "no session in the log begins with 'none'"),
    ],
)
def test_what_cannot_be_told_is_one_line(
    live: Live, words: list[str], status: int, said: str
) -> None:
    done = live.run("timeline", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_empty_log_is_said_and_is_no_failure() -> None:
    with scratch() as alone:
        done = alone.run("sessions")
        assert (done.returncode, done.stdout) == (0, "")
        assert "no session is in the log yet" in done.stderr
        assert json.loads(alone.run("sessions", "--json").stdout) == []


# --- completion ----------------------------------------------------------------------------------


def completed(live: Live, *words: str) -> list[str]:
    """What a shell is offered for the last of these words."""
    environ = {
        **live.environ, "_KIMIAEPD_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("kimiaepd", *words)), "COMP_CWORD": str(len(words)),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", MAIN], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_a_shell_is_offered_commands_options_and_the_log_s_sessions(live: Live) -> None:
    assert completed(live, "time") == ["timeline"]
    assert "--since" in completed(live, "tail", "--s")
    assert completed(live, "timeline", "31a") == [NAME.removeprefix("session_")]
    assert completed(live, "timeline", "session_") == [NAME, OTHER]
    assert completed(live, "tail", "--session", "31b") == [OTHER.removeprefix("session_")]
    assert completed(live, "timeline", "x") == []


def test_a_log_that_is_not_there_completes_nothing() -> None:
    with scratch() as alone:
        assert completed(alone, "timeline", "") == []
        alone.configure("state_dir = 3")
        assert completed(alone, "timeline", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(live: Live, shell: str) -> None:
    done = live.run("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_KIMIAEPD_COMPLETE={shell}_complete" in done.stdout


def test_bash_takes_its_script_and_completes(live: Live) -> None:
    script = live.home / "completion"
    script.write_text(live.run("completion", "bash").stdout)
    program = live.home / "kimiaepd"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{MAIN}" "$@"\n')
    program.chmod(0o755)
    ask = f"""
        . "{script}"
        COMP_WORDS=(kimiaepd timeline 31b) COMP_CWORD=2
        _kimiaepd_completion "{program}"
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", ask], env=live.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == OTHER.removeprefix("session_")
