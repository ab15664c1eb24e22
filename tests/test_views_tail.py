"""`kimiaepd tail`: what it shows, how little of it a terminal obeys, and that it goes on."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.text import Text

from kimiaepd.collector.attr_match import compile_filter
from kimiaepd.errors import UsageError
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.views import words
from kimiaepd.views.paper import paper, show
from kimiaepd.views.relay_consumer import Change
from kimiaepd.views.tail import Tail, Wanted, as_json, as_line, filter_of, since_of
from live import Live, scratch
from test_collector_hub import event
from vendor.waiting import until

NAME = "session_31aa9970-09a5-4e97-af7f-f423ebe05325"
CALLED: JSONObject = {
    "tool": {"name": "Bash", "call_id": "c1"},
    "args_redacted": {"command": "git push --force origin main", "timeout": 3},
}
NOON: JSON = "2026-11-30T12:00:00.000Z"


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def shown(what: Text, file: io.StringIO) -> str:
    show(paper(file), what)
    return file.getvalue()


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("tool.requested", CALLED, "Bash  git push --force origin main"),
        ("tool.requested", {"tool": {"name": "Bash"}, "args_digest": "0e6e"}, "Bash"),
        ("tool.requested", {"tool": {"name": "X"}, "args": {"n": 1}}, 'X  {"n":1}'),
        ("tool.completed", {"tool": {"name": "Bash"}, "duration_ms": 812}, "Bash  812 ms"),
        ("tool.denied", {"tool": {"name": "X"}, "by": "policy", "rule": "r1"}, "X  policy  r1"),
        ("attention.requested", {"kind": "permission", "prompt": "Bash: rm -r x"}, "Bash: rm -r x"),
        ("attention.answered", {"answer": {"option": "deny", "text": "no"}, "via": "control"},
         "deny  no  from elsewhere"),
        ("attention.timeout", {"after_ms": 50_000}, "50.0 s"),
        ("session.started", {"trigger": "startup", "gen_ai.request.model": "k2"}, "startup  k2"),
        ("run.failed", {"error": {"type": "overloaded"}, "duration_ms": 185_000},
         "overloaded  3 m 05 s"),
        ("x.kimi-code.session.user_prompt_queued", {"queue_length": 2}, "queue_length 2"),
        ("x.kimi-code.session.session_heartbeat", {"uptime_ms": 60_000}, "uptime 1 m 00 s"),
        ("run.finished", None, ""),
        ("tool.failed", {"tool": "Bash", "error": ["odd"]}, ""),
    ],
)  # fmt: skip
def test_an_event_is_said_in_a_few_words(kind: str, data: JSON, said: str) -> None:
    assert words.summary(event(type=kind, data=data)) == said


@pytest.mark.parametrize(
    ("ms", "said"),
    [(0, "0 ms"), (999, "999 ms"), (4_240, "4.2 s"), (185_000, "3 m 05 s"), (7_800_000, "2 h 10 m"),
     (400_000_000, "5 days"), (-3, "0 ms")],
)  # fmt: skip
def test_a_duration_is_said_as_people_say_it(ms: int, said: str) -> None:
    assert words.duration(ms) == said


def test_nothing_that_came_from_outside_is_obeyed_or_deceives() -> None:
    odd = "rm\x1b[2K \u202egnp.exe\u202c\n-rf\x9b31m \ud800 \u200bx"
    assert words.harmless(odd) == ("rm\ufffd[2K \ufffdgnp.exe\ufffd -rf\ufffd31m \ufffd \ufffdx")


def test_a_session_is_found_by_what_people_are_shown_of_it() -> None:
    assert words.short(NAME) == "31aa9970"
    assert all(words.is_meant(NAME, typed) for typed in ("31aa9970", "31", NAME, "session_31"))
    assert not words.is_meant(NAME, "1aa")


# --- lines ---------------------------------------------------------------------------------------


def test_a_line_fits_a_terminal_of_80_columns_and_has_colours_there() -> None:
    long = event(NAME, type="tool.denied", time=NOON, data={**CALLED, "rule": "a long rule " * 20})
    said = shown(as_line(long), Screen())
    assert "\x1b[" in said
    plain = Text.from_ansi(said).plain
    assert len(plain.rstrip("\n")) == 80
    assert plain.rstrip("\n").endswith("…")
    assert "31aa9970  tool.denied" in plain


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colours_gets_none(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    said = shown(as_line(event(NAME, data=CALLED)), Screen())
    assert "\x1b" not in said
    assert len(said.rstrip("\n")) <= 80


def test_a_pipe_gets_the_whole_line_and_no_escape_sequence() -> None:
    told: JSONObject = {"message": "word " * 50}
    said = shown(as_line(event(NAME, severity="error", data=told)), io.StringIO())
    assert "\x1b" not in said
    assert said.endswith(("word " * 50).rstrip() + "\n")


def test_changes_of_the_connection_are_said_aside_and_the_day_where_it_changes() -> None:
    out: list[str] = []
    err: list[str] = []
    tail = Tail(Wanted(), lambda line: out.append(str(line)), err.append, in_json=False)
    tail.day = date(2026, 11, 30)
    for moment in (
        "2026-11-30T12:00:00",
        "2026-12-01T12:00:00",
        "2026-12-01T13:00:00",
    ):
        tail.take(event(time=datetime.fromisoformat(moment).astimezone().isoformat()))
    for change in (Change("connected"), Change("lost", "gone\x1b"), Change("back")):
        tail.take(change)
    assert [line.split()[0] for line in out] == ["12:00:00", "Tuesday,", "12:00:00", "13:00:00"]
    assert err == ["connection lost: gone\ufffd", "connection back"]


def test_only_the_sessions_that_are_meant_are_shown() -> None:
    out: list[str] = []
    tail = Tail(Wanted(("31aa",)), lambda line: out.append(str(line)), out.append, in_json=True)
    presence: JSONObject = {"type": "agent.presence"}
    for one in (event(NAME), event("another"), presence):
        tail.take(one)
    assert [json.loads(line)["session"] for line in out] == [NAME]


def test_json_is_the_event_and_nothing_in_it_is_obeyed() -> None:
    told = event(data={"message": "\x1b[31m\x9bred\nä"})
    line = as_json(told)
    assert json.loads(line) == told
    assert line.isprintable()


json_values: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=8,
)
events: st.SearchStrategy[JSONObject] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from([*words._TELLS, "tool.requested", "x.y"]) | json_values,
        "data": st.dictionaries(
            st.sampled_from(["tool", "args", "error", "answer", "prompt", "duration_ms", "count"]),
            st.dictionaries(st.sampled_from(["name", "type", "option"]), json_values) | json_values,
        )
        | json_values,
        **dict.fromkeys(("session", "subject", "severity"), json_values),
        "time": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat) | json_values,
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events)
def test_no_event_is_too_odd_to_be_shown(odd: JSONObject) -> None:
    said: list[str] = []
    tail = Tail(Wanted(), lambda line: said.append(str(line)), said.append, in_json=False)
    tail.take(odd)
    assert all(line.isprintable() for line in said)


# --- what is asked for ---------------------------------------------------------------------------


def test_what_is_asked_for_is_what_a_relay_takes() -> None:
    assert filter_of((), None, ()) == {}
    assert filter_of(("*",), None, ()) == {}
    asked = filter_of(("tool", "run.failed", "x.kimi-code.*"), "warning", ("kimi-code",))
    assert asked == {
        "type": ["tool.*", "run.failed", "x.kimi-code.*"],
        "severity": {"gte": "warning"},
        "agent": ["kimi-code"],
    }
    assert compile_filter(asked).matches(event(type="tool.x", severity="error", agent="kimi-code"))


def test_a_moment_is_said_as_people_say_it() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert since_of("90m", now) == now - timedelta(minutes=90)
    assert since_of("2026-11-30T11:00:00+01:00", now) == now - timedelta(hours=2)
    for wrong in ("yesterday", "10", "999999d", "-1m"):
        with pytest.raises(UsageError, match="--since"):
            since_of(wrong, now)


# --- at a daemon ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with scratch(KIMIAEPD_COLLECTOR_PORT="0") as made:
        made.start()
        yield made


@contextmanager
def tailing(live: Live, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`kimiaepd tail`, whose output a test reads; it is ended with the block."""
    with (live.home / "tail-stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "kimiaepd", "tail", *words],
            env=live.environ, stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process
    finally:
        process.kill()
        process.communicate()


def hook(live: Live, name: str, **fields: JSON) -> None:
    live.ask({"hook_event_name": name, "session_id": NAME, **fields})


def next_line(tail: subprocess.Popen[str]) -> JSONObject:
    assert tail.stdout is not None
    value = json.loads(tail.stdout.readline())
    assert isinstance(value, dict)
    return value


def test_it_goes_on_where_it_was_when_the_daemon_was_killed_and_ends_by_ctrl_c(live: Live) -> None:
    hook(live, "SessionStart", source="startup")
    with tailing(live, "--json", "--from", "all", "--session", "31aa") as tail:
        assert next_line(tail) == live.events(NAME)[0]
        live.kill()
        live.start()
        hook(live, "UserPromptSubmit", prompt=[])
        began = next_line(tail)
        assert began == live.events(NAME)[-1]
        assert began["type"] == "run.started"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(10) == 130
    said = (live.home / "tail-stderr").read_text()
    assert [line.partition(":")[2].split(":")[0] for line in said.splitlines()] == [
        " connection lost", " connection back",
    ]  # fmt: skip


def test_from_now_on_nothing_old_is_shown_also_by_a_relay_that_is_filled_again(live: Live) -> None:
    assert not connections(live)  # and some time passes
    with tailing(live, "--json") as tail:
        until(lambda: connections(live), "the tail's connection")
        live.kill()
        live.start()
        until(lambda: connections(live), "the tail's next connection")
        hook(live, "Notification", notification_type="info", body="now")
        assert next_line(tail) == live.events(NAME)[-1]


def connections(live: Live) -> bool:
    """Whether somebody looks on beside the daemon's own sender."""
    status = json.loads(live.run("status", "--json").stdout)
    return bool(status["relay"]["own"]["subscriptions"])


def test_who_only_looks_on_holds_no_call(live: Live) -> None:
    with tailing(live) as _:
        until(lambda: connections(live), "the tail's connection")
        assert json.loads(live.run("status", "--json").stdout)["relay"]["own"]["commanders"] == 0


def test_a_reader_that_has_had_enough_ends_it_without_a_word(live: Live) -> None:
    hook(live, "SessionStart", source="startup")
    command = f"{sys.executable} -m kimiaepd tail --from all 2>stderr | head -n 1"
    done = subprocess.run(
        command, shell=True, cwd=live.home, env=live.environ, capture_output=True, timeout=20,
        check=True,
    )  # fmt: skip
    assert b"31aa9970  session.started" in done.stdout
    assert b"\x1b" not in done.stdout
    assert (live.home / "stderr").read_bytes().count(b"kimiaepd:") == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--type", "to*l"], 64, "this filter is none: type: 'to*l' is no pattern"),
        (["--since", "soon"], 64, "--since: 'soon' is no moment"),
        (["--since", "1m", "--from", "all"], 64, "cannot both be"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(
    live: Live, words: list[str], status: int, said: str
) -> None:
    done = live.run("tail", *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_daemon_it_says_what_to_do() -> None:
    with scratch() as alone:
        done = alone.run("tail")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "kimiaepd: no daemon runs, so there is nothing to look at; to start one: kimiaepd up\n"
    )
