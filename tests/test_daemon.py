"""The daemon as its user meets it: starting, stopping, being asked, and being in the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT
from judge import judge_log
from kimiaepd.errors import EXIT_BUSY, EXIT_CONFIG, EXIT_NO, EXIT_USAGE
from kimiaepd.hook_socket.limits import Limits
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.mapping.redaction import SECRET
from kimiaepd.setup.events import SINCE
from kimiaepd.web.cursors import CURSORS
from live import Live, bare_seconds, scratch
from test_captures import Captured, Sessions
from test_captures_observer import core, told

START: JSONObject = {"hook_event_name": "SessionStart", "session_id": "s", "source": "startup"}
PROMPT: JSONObject = {
    "hook_event_name": "UserPromptSubmit", "session_id": "s",
    "prompt": [{"type": "text", "text": "hello"}],
}  # fmt: skip


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as made:
        yield made


def one_line(text: str) -> str:
    """The one line that a failure is."""
    assert text.count("\n") == 1, text
    return text.rstrip("\n")


# --- starting -------------------------------------------------------------------------------------


def test_without_hooks_the_ready_line_claims_none_and_the_log_says_what_to_do(live: Live) -> None:
    assert "no hooks yet" in live.start()
    said = (live.home / "stderr").read_text()
    assert f"{live.where.kimi_home / 'config.toml'}" in said
    assert "kimiaepd setup install" in said


def test_the_ready_line_says_where_hooks_socket_and_log_are(live: Live) -> None:
    line = live.start("up", "--kimi-version", "2.1.0")
    for place in (live.where.kimi_home / "config.toml", live.where.socket, live.where.log_dir):
        assert str(place) in line


def test_what_it_makes_is_private(live: Live) -> None:
    live.start()
    live.ask(START)
    modes = {
        live.where.state_dir: 0o700, live.where.socket: 0o600, live.where.log_dir: 0o700,
        live.log_files()[0]: 0o600,
    }  # fmt: skip
    for path, mode in modes.items():
        assert stat.S_IMODE(path.lstat().st_mode) == mode, path


def test_up_registers_the_hooks_and_then_runs(live: Live) -> None:
    live.where.kimi_home.mkdir()
    live.start("up", "--kimi-version", "2.1.0")
    config = (live.where.kimi_home / "config.toml").read_text()
    assert config.count("[[hooks]]") == 20
    assert str(live.where.installed_shim) in config
    assert live.where.installed_shim.is_file()
    live.stop()
    live.start("up", "--kimi-version", "2.1.0")
    assert (live.where.kimi_home / "config.toml").read_text() == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense = 1", "unknown key nonsense"),
        ('[log]\nsync = "sometimes"', "log.sync"),
        (f'socket = "/{"x" * 120}"', "socket path is 121 bytes"),
        ("[log", "is not TOML"),
    ],
)
def test_a_bad_setting_is_one_line_and_nothing_is_left(live: Live, text: str, words: str) -> None:
    live.configure(text)
    done = live.run("run")
    assert done.returncode == EXIT_CONFIG
    assert words in one_line(done.stderr)
    assert str(live.where.config_file) in done.stderr
    assert not live.where.state_dir.exists()
    assert not live.where.log_dir.exists()


def test_a_log_directory_that_cannot_be_is_named(live: Live) -> None:
    blocked = live.home / "file"
    blocked.write_text("")
    live.environ["AEP_LOG_DIR"] = str(blocked)
    done = live.run("run")
    assert done.returncode == EXIT_CONFIG
    assert str(blocked) in one_line(done.stderr)
    assert not live.where.socket.exists()


def test_a_file_where_the_socket_goes_is_named_and_left_alone(live: Live) -> None:
    live.where.state_dir.mkdir(parents=True, mode=0o700)
    live.where.state_dir.chmod(0o700)
    live.where.socket.write_text("precious")
    done = live.run("run")
    assert done.returncode == EXIT_CONFIG
    assert str(live.where.socket) in one_line(done.stderr)
    assert live.where.socket.read_text() == "precious"


def test_a_state_directory_that_others_can_write_is_refused_with_the_remedy(live: Live) -> None:
    live.where.state_dir.mkdir(parents=True)
    live.where.state_dir.chmod(0o777)
    done = live.run("run")
    assert done.returncode == EXIT_CONFIG
    assert "chmod" in one_line(done.stderr)


def test_a_second_daemon_is_refused_and_named_the_first(live: Live) -> None:
    live.start()
    assert live.process
    done = live.run("run")
    assert done.returncode == EXIT_BUSY
    assert str(live.process.pid) in one_line(done.stderr)
    assert live.ask(START) == b"0\n"


def test_two_instances_never_share_a_log(live: Live) -> None:
    live.start()
    with scratch(AEP_LOG_DIR=str(live.where.log_dir.parent)) as other:
        done = other.run("run")
        assert done.returncode == EXIT_BUSY
        assert str(live.where.log_dir) in one_line(done.stderr)
        assert not other.where.socket.exists()


def test_after_a_kill_the_next_start_needs_nobody(live: Live) -> None:
    live.start()
    live.kill()
    assert live.where.socket.exists()
    live.start()
    assert live.ask(START) == b"0\n"


def test_unknown_variables_are_named_in_a_warning(live: Live) -> None:
    live.environ["AEP_CAPTUER"] = "full"
    live.start()
    assert "AEP_CAPTUER" in (live.home / "stderr").read_text()


@pytest.mark.parametrize("arguments", [("rnu",), ("run", "--colour"), ("status", "--timeout", "x")])
def test_a_mistyped_command_is_one_line_and_never_status_2(
    live: Live, arguments: tuple[str, ...]
) -> None:
    done = live.run(*arguments)
    assert done.returncode == EXIT_USAGE
    assert one_line(done.stderr).startswith("kimiaepd: ")


@pytest.mark.parametrize(
    "command",
    [
        *("run", "up", "status", "ping", "setup", "service", "doctor"),
        *("validate", "collector", "token"),
    ],
)
def test_every_command_explains_itself(live: Live, command: str) -> None:
    done = live.run(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: python -m kimiaepd {command}")


def test_of_twenty_starts_at_once_one_serves_and_names_itself_to_the_others(live: Live) -> None:
    command = [sys.executable, "-m", "kimiaepd", "run"]
    starts = [
        subprocess.Popen(
            command,
            env=live.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(20)
    ]
    try:
        deadline = time.monotonic() + 60
        while len(serving := [start for start in starts if start.poll() is None]) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (one,) = serving
        wait_for_socket(live)
        assert live.ask(START) == b"0\n"
        assert str(one.pid) in live.run("ping").stdout
        refused = [start for start in starts if start is not one]
        assert {start.returncode for start in refused} == {EXIT_BUSY}
        for start in refused:
            assert start.stderr
            assert f" {one.pid}" in one_line(start.stderr.read())
    finally:
        for start in starts:
            start.kill()
            start.communicate()


def wait_for_socket(live: Live) -> None:
    deadline = time.monotonic() + 10
    while not live.where.socket.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("removed", ["state", "nothing"])
def test_no_position_is_used_twice_also_after_the_state_directory_was_lost(
    live: Live, removed: str
) -> None:
    epochs = []
    for _ in range(3):
        live.start()
        live.ask(PROMPT)
        live.stop()
        epochs.append(last_epoch(live))
    if removed == "state":
        shutil.rmtree(live.where.state_dir)
    live.start()
    live.ask(PROMPT)
    events = live.events("s")
    positions = [(event["epoch"], event["seq"]) for event in events]
    assert len(set(positions)) == len(positions)
    assert epochs == sorted(set(epochs))
    assert last_epoch(live) > epochs[-1]
    judge_log(*live.log_files())


def last_epoch(live: Live) -> int:
    epoch = live.events("s")[-1]["epoch"]
    assert isinstance(epoch, int)
    return epoch


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make here")
@pytest.mark.parametrize(("goal", "says"), [("run", "/kimiaepd up"), ("test", " -m pytest")])
def test_the_two_goals_of_make_do_what_they_are_called(goal: str, says: str) -> None:
    # The tests themselves may run under make, which tells its children so.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", "--no-print-directory", goal]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True, timeout=30
    )
    assert says in done.stdout.splitlines()[-1]


# --- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_clean(live: Live, number: signal.Signals) -> None:
    live.start()
    live.ask(PROMPT)
    live.ask({"hook_event_name": "SessionEnd", "session_id": "s", "reason": "exit"})
    assert live.process
    live.process.send_signal(number)
    assert live.wait() == 0
    assert not live.where.socket.exists()
    types = [event["type"] for event in live.events("s")]
    assert types[-2:] == ["run.cancelled", "session.ended"]
    judge_log(*live.log_files())


def test_a_client_that_hangs_does_not_hold_a_stop_beyond_its_deadline(live: Live) -> None:
    live.configure("stop_seconds = 1")
    live.start()
    with socket.socket(socket.AF_UNIX) as idle:
        idle.connect(str(live.where.socket))
        idle.sendall(b"AEPD1 hook 1 100\n")
        began = time.monotonic()
        assert live.stop() == 0
        assert 0.9 < time.monotonic() - began < 4.5  # the default would be 5


def test_a_second_term_stops_at_once(live: Live) -> None:
    live.configure("stop_seconds = 60")
    live.start()
    assert live.process
    with socket.socket(socket.AF_UNIX) as idle:
        began = time.monotonic()
        idle.connect(str(live.where.socket))
        idle.sendall(b"AEPD1 hook 1 100\n")
        assert live.ask(START) == b"0\n"  # so the one before it is being served
        live.process.send_signal(signal.SIGTERM)
        while is_served(live):
            assert time.monotonic() < began + 4
        assert live.process.poll() is None, "nothing held the stop: the test proves nothing"
        assert live.stop() == 0
        assert time.monotonic() < began + Limits().read_seconds - 0.2  # it would be let go then
    assert not live.where.socket.exists()


def is_served(live: Live) -> bool:
    try:
        return live.ask(START) == b"0\n"
    except OSError:
        return False


def test_a_replaced_socket_is_not_removed_by_the_one_that_stops(live: Live) -> None:
    live.start()
    live.where.socket.unlink()
    live.where.socket.write_text("another's")
    live.stop()
    assert live.where.socket.read_text() == "another's"


# --- asking ---------------------------------------------------------------------------------------


def test_ping_and_status_answer(live: Live) -> None:
    live.start()
    assert live.process
    live.ask(START)
    live.ask_raw(b"[]")
    done = live.run("ping")
    assert done.returncode == 0
    assert str(live.process.pid) in done.stdout
    status = json.loads(live.run("status", "--json").stdout)
    assert status["pid"] == live.process.pid
    assert status["hooks"] == 2
    assert status["not_understood"] == {"not-an-object": 1}
    assert status["events"] == {"logged": 2, "lost": 0}
    text = live.run("status").stdout
    assert str(live.where.log_dir) in text
    assert "s: idle" in text


def test_no_daemon_is_told_from_one_that_does_not_answer(live: Live) -> None:
    absent = live.run("status")
    assert absent.returncode == EXIT_NO
    live.start()
    assert live.process
    os.kill(live.process.pid, signal.SIGSTOP)
    try:
        wedged = live.run("status", "--timeout", "0.3")
    finally:
        os.kill(live.process.pid, signal.SIGCONT)
    assert wedged.returncode not in (0, EXIT_NO, 2)
    assert one_line(wedged.stderr) != one_line(absent.stderr)


def test_sighup_takes_new_capture_settings_and_opens_the_logs_again(live: Live) -> None:
    live.start()
    assert live.process
    live.ask(PROMPT)
    first = live.log_files()[0]
    first.rename(first.with_suffix(".moved"))
    live.configure('[capture]\ndefault = "redacted"')
    live.process.send_signal(signal.SIGHUP)
    wait_until_said(live, "reloaded")
    live.ask({**PROMPT, "prompt": "and on"})
    events = live.events("s")
    assert events[-1]["capture"] == "redacted"
    assert events[-1]["data"] == {"trigger": "user", "prompt": "and on"}


NAMED = "PLANTED_NAME"
VALUE = "v4lue-of-the-variable"
OF_THE_KEY = "what the key of that name holds"


def tell_secrets(live: Live, session: str) -> None:
    """Hooks with the value, and with a key of the name, wherever text rides; one of them waits."""
    call: JSONObject = {
        "tool_name": "Bash", "tool_call_id": "c",
        "tool_input": {NAMED: OF_THE_KEY, "command": f"echo {VALUE}", "deep": [{"x": VALUE}]},
    }  # fmt: skip
    hooks: list[tuple[str, JSONObject]] = [
        ("UserPromptSubmit", {"prompt": [{"type": "text", "text": f"use {VALUE} please"}]}),
        ("PermissionRequest", {**call, "id": "a", "agent_id": "main", "action": f"Run {VALUE}"}),
        ("PostToolUse", {**call, "tool_output": f"{NAMED}='{OF_THE_KEY}'"}),
        ("PreToolUse", {**call, "tool_call_id": "d"}),
        (
            "PostToolUseFailure",
            {**call, "tool_call_id": "d", "error": {"code": "e", "message": f"no {VALUE}"}},
        ),
    ]
    for event, fields in hooks:
        assert live.ask({"hook_event_name": event, "session_id": session, **fields}) == b"0\n"


def planted_in(live: Live) -> list[tuple[str, str]]:
    """Where a secret is in any file of the instance, its log of itself included."""
    return [
        (file.name, planted)
        for file in live.home.rglob("*")
        if file.is_file()
        for planted in (VALUE, OF_THE_KEY)
        if planted in file.read_text(errors="replace")
    ]


def test_a_value_that_the_operator_names_is_nowhere_on_disk(live: Live) -> None:
    live.environ |= {"AEP_REDACT_NAMES": f"OTHER,{NAMED}", NAMED: VALUE}
    live.configure('[capture]\ndefault = "redacted"')
    live.start()
    tell_secrets(live, "s")
    live.kill()  # with a failure that still waits
    assert live.log_files()[0].read_text().count(SECRET) >= 6
    assert planted_in(live) == []
    live.start()
    live.stop()
    assert planted_in(live) == []


def test_a_name_that_a_reload_adds_counts_from_there_on(live: Live) -> None:
    live.environ[NAMED] = VALUE
    live.configure('[capture]\ndefault = "redacted"')
    live.start()
    tell_secrets(live, "s")
    found = {planted for _, planted in planted_in(live)}
    assert found == {VALUE, OF_THE_KEY}, "nothing was there to be hidden: the test proves nothing"
    for file in live.log_files():
        file.unlink()
    live.configure(f'[capture]\ndefault = "redacted"\nredact_names = ["{NAMED}"]')
    assert live.process
    live.process.send_signal(signal.SIGHUP)
    wait_until_said(live, "reloaded")
    tell_secrets(live, "t")
    assert live.stop() == 0
    assert (live.where.log_dir / "t.jsonl").read_text().count(SECRET) >= 6
    assert planted_in(live) == []


def wait_until_said(live: Live, words: str) -> None:
    deadline = time.monotonic() + 10
    while words not in (live.home / "stderr").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_reload_with_a_bad_file_keeps_what_was(live: Live) -> None:
    live.start()
    live.configure("nonsense = 1")
    assert live.process
    live.process.send_signal(signal.SIGHUP)
    wait_until_said(live, "not reloaded")
    assert live.ask(START) == b"0\n"


# --- in the way -----------------------------------------------------------------------------------

BAD_INPUT = {
    "empty": b"",
    "truncated": b'{"hook_event_name":"PreToolUse","session_id":"s","tool',
    "an array": b"[1,2]",
    "a number": b"7",
    "not UTF-8": b'{"hook_event_name":"Stop","session_id":"s","x":"\xff\xfe"}',
    "half a pair": b'{"hook_event_name":"PostToolUse","session_id":"s","tool_name":"T",'
    b'"tool_output":"\\ud83d"}',
    "a path as id": b'{"hook_event_name":"Stop","session_id":"../../x"}',
    "5 kB as id": b'{"hook_event_name":"Stop","session_id":"' + b"x" * 5000 + b'"}',
    "NUL as id": b'{"hook_event_name":"Stop","session_id":"a\\u0000b"}',
    "100 000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "40 MB": b'{"hook_event_name":"PreToolUse","session_id":"s","x":"' + b"x" * 40_000_000 + b'"}',
}


def test_bad_input_never_costs_more_than_itself(live: Live) -> None:
    live.start()
    for name, body in BAD_INPUT.items():
        began = time.monotonic()
        done = live.shim(body)
        took = time.monotonic() - began
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), name
        if name != "40 MB":
            assert took < bare_seconds() + 1.0, name
    assert live.ask(START) == b"0\n"
    judge_log(*live.log_files())
    assert all(file.parent == live.where.log_dir for file in live.home.rglob("*.jsonl")
               if file.name not in ("ledger.jsonl", CURSORS))  # fmt: skip
    status = json.loads(live.run("status", "--json").stdout)
    assert status["not_understood"] == {
        "empty": 1, "malformed": 1, "not-an-object": 2, "too-deep": 1, "too-large": 1,
    }  # fmt: skip
    assert status["hooks"] == len(BAD_INPUT)  # the one after them counts, the one of 40 MB does not
    stops = stops_by_session(live)
    (cut,) = (session for session in stops if session.startswith("x" * 100))
    assert stops == {"s": 1, "../../x": 1, "a\0b": 1, cut: 1}
    errors = [event for event in live.events("s") if event["type"] == "error.raised"]
    assert [event["data"] for event in errors] == [
        {"code": "hook-too-large", "bytes": len(BAD_INPUT["40 MB"]), "fatal": False}
    ]


def stops_by_session(live: Live) -> dict[str, int]:
    """How many events of a Stop outside a run each session has, by the id that its events say."""
    found: dict[str, int] = {}
    for file in live.log_files():
        for event in map(json.loads, file.read_bytes().splitlines()):
            if event["type"] == "x.kimi-code.session.stop":
                found[event["session"]] = found.get(event["session"], 0) + 1
    return found


def test_a_shim_in_an_empty_environment_meets_the_daemon(live: Live) -> None:
    live.start()
    done = live.shim(json.dumps(START).encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert [event["type"] for event in live.events("s")] == ["session.started"]


@pytest.mark.shared
def test_the_captures_go_through_shim_socket_and_daemon(live: Live, shared: Path) -> None:
    lines = [
        json.loads(line)
        for version in ("0.28.0", "2.1.0")
        for line in (shared / f"captures/hooks/hooks-{version}.jsonl").read_text().splitlines()
    ]
    assert {line["event"] for line in lines} == set(SINCE)
    live.start()
    sessions: Sessions = {}
    for line in lines:
        payload = line["stdin"]
        at = time.monotonic()
        done = live.shim(b"" if payload is None else json.dumps(payload).encode())
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), line
        if payload is not None:
            hooks = sessions.setdefault(payload["session_id"] or "unknown", [])
            hooks.append(Captured(at, line["scenario"], payload))
    status = json.loads(live.run("status", "--json").stdout)
    assert status["hooks"] == len(lines)
    assert status["not_understood"] == {"empty": 1}
    assert live.stop() == 0
    judge_log(*live.log_files())
    expected = told(sessions)
    expected["unknown"] = sorted([*expected["unknown"], "error.raised"])
    found = {
        file.stem: core(str(event["type"]) for event in live.events(file.stem))
        for file in live.log_files()
    }
    assert found == expected
