"""`kimiaepd demo` shows each feature once, really, and leaves nothing; and the console's line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from kimiaepd import cli, settings
from kimiaepd.demo import human, scratch, story
from kimiaepd.demo.performance import perform
from kimiaepd.demo.player import Terms, Who
from kimiaepd.demo.story import matches, missing
from kimiaepd.errors import UserError
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.views.relay import find
from kimiaepd.views.relay_command import RESPOND, build
from kimiaepd.views.relay_consumer import Change, Wish, consuming
from live import scratch as scratch_daemon

STEPS = [act.title for act in story.load() if act.title]
SHOWN = {
    "session.started": 1, "session.ended": 1, "session.compacted": 1,
    "run.started": 2, "run.finished": 2,
    "tool.requested": 6, "tool.completed": 4, "tool.failed": 1, "tool.denied": 1,
    "attention.requested": 3, "attention.answered": 3, "attention.resolved": 3,
    "delegation.subagent.started": 1, "delegation.subagent.stopped": 1,
    "control.accepted": 3,
    "x.kimi-code.instruction.queued": 1, "x.kimi-code.instruction.delivered": 1,
    "x.kimi-code.session.stop": 1, "x.kimi-code.session.turn_started": 1,
    "x.kimi-code.session.post_tool_use_failure": 1, "x.kimi-code.session.pre_compact": 1,
}  # fmt: skip


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for scratch instances that is short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix="kt", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a demo in this process goes."""
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def start(place: Path, *options: str) -> subprocess.Popen[str]:
    # What leads a user's own daemon must not lead the demo's; and nobody may write at home.
    away = ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "KIMI_CODE_HOME", "KIMIAEPD_SOCKET")
    environ = {
        **dict.fromkeys(away, "/nowhere"),
        "AEP_RELAY_URL": "wss://relay.example",
        "AEP_CAPTURE": "none",
        "PATH": os.environ["PATH"],
        "TMPDIR": str(place),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "kimiaepd", "demo", *options],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """What it says up to the line with these words."""
    assert process.stdout
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(said)


def left(place: Path) -> list[object]:
    """What is there of an instance: files, and processes that know of them."""
    found: list[object] = [*place.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:  # it has gone, or is somebody else's
            continue
        if f"{place}/kimiaepd-demo-".encode() in words:
            found.append(process)
    return found


def test_it_shows_each_feature_once_and_leaves_nothing(place: Path) -> None:
    with start(place, "--speed", "1000") as process:
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert [line for line in out.splitlines() if line in STEPS] == STEPS
    assert "MISSING" not in out
    assert out.endswith(f"\nall {len(STEPS) + 1} steps were seen\n")
    for said in (
        r"console: http://127\.0\.0\.1:\d+/#code=[\w-]{22}\n",
        r'log +\{"aep":"0\.1",.*"prompt":"[^"]*\[REDACTED:secret\]"\}\}\n',
        r"event +tool\.completed  Read",
        r"event +tool\.failed  Bash .*1 failed",
        r"event +attention\.answered  approved  ",
        r"person +control\.attention\.respond  allow\n",
        r"hook +writes nothing: the call goes on\n",
        r'hook +writes \{"hookSpecificOutput":.*"permissionDecision":"deny",.*Not staging\.',
        r'hook +writes \{"message":"When you are done, say what is left to do\."\}\n',
        r"event +delegation\.subagent\.stopped  explore",
        r"event +session\.compacted",
        r"event +session\.ended",
        r"kimiaepd validate: \d+ events, 0 findings\n",
        r"the relay had all \d+ of them\n",
    ):
        assert len(re.findall(said, out)) == 1, said
    assert left(place) == []


def test_what_it_keeps_is_a_log_of_every_feature_and_no_process(place: Path) -> None:
    with start(place, "--speed", "1000", "--keep") as process:
        said = read_until(process, "kept in")
        home = Path(re.findall(r"kept in (\S+):", said)[0])
        config = {"KIMIAEPD_CONFIG": str(home / "config.toml"), "HOME": "/elsewhere"}
        status = [sys.executable, "-m", "kimiaepd", "status"]
        told = subprocess.run(status, env=config, capture_output=True, text=True, check=True).stdout
        assert "session_demo: ended" in told
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    (file,) = settings.load(config).paths.log_dir.glob("*.jsonl")
    lines = file.read_bytes().splitlines()
    assert Counter(json.loads(line)["type"] for line in lines) == SHOWN
    assert b"sk-demo" not in file.read_bytes()
    assert left(place) == [home]


@pytest.mark.parametrize(
    ("words", "number", "status"),
    [
        ("a scratch instance", signal.SIGINT, 130),
        ("console:", signal.SIGINT, 130),
        ("held:", signal.SIGINT, 130),
        ("PostToolUse", signal.SIGTERM, -signal.SIGTERM),
        ("SubagentStart", signal.SIGHUP, -signal.SIGHUP),
    ],
)
def test_a_signal_at_any_moment_leaves_no_process_and_no_directory(
    place: Path, words: str, number: signal.Signals, status: int
) -> None:
    with start(place, "--speed", "10", "--keep") as process:
        read_until(process, words)
        assert left(place)
        process.send_signal(number)
        assert process.wait(10) == status
        assert process.stderr
        assert process.stderr.read().strip() == ("kimiaepd: interrupted" if status == 130 else "")
    assert left(place) == []


def test_a_reader_that_goes_ends_it(place: Path) -> None:
    with start(place, "--speed", "4") as process:
        read_until(process, "console:")
        assert process.stdout
        process.stdout.close()
        assert process.wait(20) == 1
        assert process.stderr
        assert process.stderr.read() == ""
    assert left(place) == []


def test_it_runs_twice_at_once_and_beside_a_daemon(place: Path) -> None:
    with scratch_daemon() as live:
        live.start()
        pair = [start(place, "--speed", "1000") for _ in range(2)]
        for process in pair:
            with process:
                out, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, ""), out
        assert live.log_files() == []
        assert live.stop() == 0
    assert left(place) == []


# --- what is not there is not shown ---------------------------------------------------------------

Edit = Callable[[pytest.MonkeyPatch], None]


def _without(event: str) -> Edit:
    """Kimi never sends this hook."""
    acts = [act for act in story.load() if (act.hook or {}).get("hook_event_name") != event]
    return lambda patch: patch.setattr(story, "load", lambda: acts)


def _with_settings(old: str, new: str) -> Edit:
    assert old in scratch.SETTINGS
    text = scratch.SETTINGS.replace(old, new)
    return lambda patch: patch.setattr(scratch, "SETTINGS", text)


@pytest.mark.parametrize(
    ("edit", "step"),
    [
        (_without("PermissionRequest"), "Kimi's own approval is observed"),
        (_with_settings("enabled = true\nmode", "enabled = false\nmode"), "a call is denied"),
        (_with_settings('"redacted"', '"full"'), "the secret in it is redacted"),
        (_with_settings("[instruct]\nenabled = true", ""), "an instruction waits"),
    ],
    ids=["no approval", "no gate", "no redaction", "no steering"],
)
def test_what_is_not_seen_is_named_and_fails_it(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    edit: Edit,
    step: str,
) -> None:
    edit(monkeypatch)
    monkeypatch.setattr(human, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(sys, "argv", ["kimiaepd", "demo", "--speed", "1000"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    out, errors = capsys.readouterr()
    assert errors.startswith("kimiaepd: the demo did not show: ")
    assert step in errors
    assert "MISSING" in out
    assert left(here) == []


async def test_a_daemon_that_dies_ends_it_with_one_line(here: Path) -> None:
    def say(who: Who, text: str) -> None:
        if who == "kimi" and text.startswith("TurnStarted"):
            (home,) = here.iterdir()
            lock = (home / "state/daemon.lock").read_text()
            os.kill(int(re.findall(r"\d+", lock)[0]), signal.SIGKILL)

    with pytest.raises(UserError, match="the demo's daemon ended with -9: "):
        await perform(story.load(), os.environ, Terms(speed=1000), say)
    assert left(here) == []


async def test_a_daemon_that_does_not_start_says_why(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "SETTINGS", "[gate]\nmode = 1\n")
    with pytest.raises(UserError, match=r"did not start: .*gate\.mode"):
        await perform(story.load(), os.environ, Terms(), lambda _who, _text: None)
    assert left(here) == []


async def test_with_wait_the_user_answers_and_the_story_goes_as_he_says(here: Path) -> None:
    send, told = trio.open_memory_channel[tuple[Who, str]](1000)

    def say(who: Who, text: str) -> None:
        send.send_nowait((who, text))

    async def user() -> None:
        async for who, text in told:
            if who == "person" and text.startswith("held: answer within 45 s"):
                break
        (home,) = here.iterdir()
        environ = {"HOME": str(home), "KIMIAEPD_CONFIG": str(home / "config.toml")}
        relay = find(settings.load(environ), environ, may_control=True)
        wish = Wish({"type": ["attention.requested"]}, since="all")
        async with consuming(relay, wish, "user") as consumer:
            asks: list[JSONObject] = []
            while not (asks and asks[-1]["subject"] == "Bash"):
                item = await consumer.next()
                if not isinstance(item, Change):
                    asks.append(item)
            ask = str(asks[-1]["id"])
            data: JSONObject = {"answer": {"text": "not on a Friday"}}
            outcome = await consumer.send(build(RESPOND, story.SESSION, subject=ask, data=data))
            assert outcome.is_accepted

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(user)
            verdict = await perform(story.load(), os.environ, Terms(speed=1000, waits=True), say)
    assert verdict.gaps is not None
    assert [step for step, what in verdict.gaps.items() if what] == []
    rest = [text for _, text in iter(partial(_next, told), None)]
    assert any("not on a Friday" in text for text in rest if text.startswith("writes"))
    assert "somebody else answered" in rest
    assert left(here) == []


def _next(told: trio.MemoryReceiveChannel[tuple[Who, str]]) -> tuple[Who, str] | None:
    try:
        return told.receive_nowait()
    except trio.WouldBlock:
        return None


# --- pure parts -----------------------------------------------------------------------------------


def test_an_object_matches_what_has_its_members_and_nothing_else_matches_but_its_like() -> None:
    event: JSONObject = {"type": "t", "data": {"a": {"b": [1]}, "c": None}}
    assert matches({"type": "t", "data": {"a": {"b": [1]}}}, event)
    assert matches({}, event)
    others: list[JSONObject] = [{"type": "u"}, {"data": {"a": {"b": []}}}, {"d": None}, {"data": 1}]
    for other in others:
        assert missing([other], [event]) == [other]
    assert not matches({}, None)


def test_the_session_is_told_in_the_vendor_s_names() -> None:
    hooks = [act.hook for act in story.load() if act.hook]
    assert {hook["session_id"] for hook in hooks} == {story.SESSION}
    for hook in hooks:
        assert list(hook)[:4] == ["hook_event_name", "session_id", "cwd", "client_type"]


# --- the last line of a start ---------------------------------------------------------------------


async def test_a_start_ends_with_a_line_that_opens_the_console() -> None:
    with trio.fail_after(30), scratch_daemon(KIMIAEPD_COLLECTOR_PORT="0") as live:
        ready = await trio.to_thread.run_sync(partial(live.start, "up", "--kimi-version", "2.1.0"))
        assert live.process
        assert live.process.stdout
        line = live.process.stdout.readline()
        found = re.fullmatch(
            r"console: (http://\S+)/#code=(\S+) \(once; .*kimiaepd console\)\n", line
        )
        assert found
        assert f"relay {found[1]}, code {found[2]} (once, within 60 s)\n" in ready
        async with httpx.AsyncClient(trust_env=False, base_url=found[1]) as client:
            answer = await client.post("/session", json={"code": found[2]})
        assert answer.status_code == 200
        link: JSON = None
        while link != "up":
            relay = (await request(live.where.socket, "status", timeout=5))["relay"]
            link = relay["link"] if isinstance(relay, dict) else None
        assert (live.home / "stderr").read_text() == "", "nothing comes after it"
        assert await trio.to_thread.run_sync(live.stop) == 0


async def test_where_there_is_no_relay_of_our_own_there_is_no_such_line() -> None:
    with scratch_daemon(KIMIAEPD_COLLECTOR="0") as live:
        await trio.to_thread.run_sync(live.start)
        assert live.process
        assert live.process.stdout
        live.process.terminate()
        assert live.process.stdout.read() == ""
        assert await trio.to_thread.run_sync(live.wait) == 0
