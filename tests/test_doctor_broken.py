"""Broken set-ups, each with the one finding that names what is broken, and nothing beside it.

What a config, a hook program and the settings can be wrong in is tried beside one daemon that runs;
what can be wrong with a daemon and its places, each in an instance of its own.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from doctor_room import Room, checks, room
from live import Live, scratch

SETUP = "run: kimiaepd setup install"
OTHER = '\n[[hooks]]\nevent = "Stop"\ncommand = "say done"\n'


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """A daemon that all of these set-ups share."""
    with scratch() as live:
        live.start()
        yield live


@pytest.fixture
def here(live: Live) -> Iterator[Room]:
    with room(live) as here:
        yield here


# --- what can be broken ------------------------------------------------------------------------


def no_home(here: Room) -> None:
    shutil.rmtree(here.where.kimi_home)


def home_below_nothing(here: Room) -> None:
    here.environ["KIMI_CODE_HOME"] = "/nowhere/kimi"


def home_is_a_file(here: Room) -> None:
    no_home(here)
    here.where.kimi_home.touch()


def no_config(here: Room) -> None:
    here.config.unlink()


def not_toml(here: Room) -> None:
    here.write("a = 1\nb = \n")


def not_utf8(here: Room) -> None:
    here.config.write_bytes(b'a = "\xff"\n')


def directory_in_its_place(here: Room) -> None:
    here.config.unlink()
    here.config.mkdir()


def circle_in_its_place(here: Room) -> None:
    here.config.unlink()
    here.config.symlink_to(here.config)


def byte_order_mark(here: Room) -> None:
    here.config.write_bytes(b"\xef\xbb\xbf" + here.config.read_bytes())


def number_too_great(here: Room) -> None:
    here.write("a = 1\nb = [9007199254740993]\n" + here.config.read_text())


def event_of_ours_changed(here: Room) -> None:
    here.swap('event = "Interrupt"', 'event = "Interupt"')


def other(*lines: str) -> Callable[[Room], None]:
    """Another tool's hook, with these lines for its own."""

    def broken(here: Room) -> None:
        here.write("\n".join(["[[hooks]]", *lines, "", here.config.read_text()]))

    return broken


def event_of_a_later_release(here: Room) -> None:
    here.config.unlink()
    here.install("0.28.0")
    here.add('\n[[hooks]]\nevent = "TurnStarted"\ncommand = "x"\n')


def hooks_of_a_later_release(here: Room) -> None:
    here.version = "0.28.0"


def key_below_the_block(here: Room) -> None:
    here.add("yolo = true\n")


def table_of_a_hook_below_the_block(here: Room) -> None:
    here.add("[hooks.mine]\na = 1\n")


def own_timeout(value: str) -> Callable[[Room], None]:
    def broken(here: Room) -> None:
        here.swap("timeout = 10", f"timeout = {value}", 1)

    return broken


def empty_over_lines(here: Room) -> None:
    here.write("hooks = [\n]\n")


def inline(here: Room) -> None:
    here.write('a = 1\nhooks = [{ event = "Stop", command = "say done" }]\n')


def no_array(here: Room) -> None:
    here.write('hooks = "all"\n')


def placeholder(here: Room) -> None:
    here.write("hooks = []\n")


def none_of_ours(here: Room) -> None:
    here.write(OTHER)


def two_events_missing(here: Room) -> None:
    text = here.config.read_text()
    blocks = text.split("[[hooks]]\n")
    kept = [block for block in blocks if "PreToolUse" not in block and "Interrupt" not in block]
    here.write("[[hooks]]\n".join(kept))


def twice(here: Room) -> None:
    text = here.config.read_text()
    here.add(text[text.index("[[hooks]]") : text.index("[[hooks]]", 100)])


def matcher(here: Room) -> None:
    here.swap('event = "PreToolUse"\n', 'event = "PreToolUse"\nmatcher = "Bash"\n')


def stale_shim(here: Room) -> None:
    here.swap(str(here.shim), "/nowhere/shim.py")


def another_shim(here: Room) -> None:
    copy = here.folder / "copy.py"
    shutil.copy(here.shim, copy)
    here.swap(str(here.shim), str(copy))


def no_shim(here: Room) -> None:
    here.shim.unlink()


def program(text: str) -> Callable[[Room], None]:
    """Another program in the place of ours."""

    def broken(here: Room) -> None:
        here.shim.write_text(text)

    return broken


def program_with_one_more_byte(here: Room) -> None:
    with here.shim.open("a") as file:
        file.write("#")


def no_interpreter(here: Room) -> None:
    text = here.config.read_text()
    python = text.partition("exec '")[2].partition("'")[0]
    here.swap(python, "/nowhere/python3")


def another_socket(here: Room) -> None:
    here.swap(str(here.where.socket), "/nowhere/hook.sock")


def control_on(here: Room) -> None:
    here.environ["AEP_KIMI_CONTROL"] = "1"


def old_kimi(here: Room) -> None:
    here.version = "0.27.9"


def relay_that_is_not_there(here: Room) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        here.environ["AEP_RELAY_URL"] = f"http://127.0.0.1:{nobody.getsockname()[1]}"


def wrong_setting(here: Room) -> None:
    file = here.folder / "settings.toml"
    file.write_text("[log]\nsink = 1\n")
    here.environ["KIMIAEPD_CONFIG"] = str(file)


def wrong_variable(here: Room) -> None:
    here.environ["AEP_CAPTURE"] = "everything"


@frozen
class Case:
    """A way to break a set-up, and the finding for it."""

    broken: Callable[[Room], None]
    name: str
    said: str
    remedy: str


DROPS = "another tool's hook makes kimi drop every hook: "
STOP = 'event = "Stop"'
COMMAND = 'command = "x"'

CASES = {
    "no home": Case(no_home, "kimi home", "(KIMI_CODE_HOME) does not exist", SETUP),
    "home below nothing": Case(home_below_nothing, "kimi home", "does not exist", "--home"),
    "home is a file": Case(home_is_a_file, "kimi home", "is no directory", "move"),
    "no config": Case(no_config, "config file", "does not exist", SETUP),
    "not TOML": Case(not_toml, "config file", "config.toml:2: not TOML", "mend"),
    "not UTF-8": Case(not_utf8, "config file", "config.toml:1: not UTF-8", ""),
    "a directory": Case(directory_in_its_place, "config file", "is no regular file", "move it"),
    "a circle": Case(circle_in_its_place, "config file", "cannot be read: Too many levels", "read"),
    "BOM": Case(byte_order_mark, "config file", ":1: the file begins with a byte-order", "save it"),
    "too great": Case(
        number_too_great, "config file", ":2: kimi refuses to read a file with", "in quotes"
    ),
    "our event, misspelt": Case(
        event_of_ours_changed, "hooks", "drop every hook: kimi 2.1.0 knows no event 'Interu", SETUP
    ),
    "unknown key": Case(
        other(STOP, COMMAND, "yolo = 1"), "hooks", f":4: {DROPS}a hook has no key 'yolo'", "move it"
    ),
    "unknown event": Case(
        other('event = "Stopp"', COMMAND), "hooks", f":1: {DROPS}kimi 2.1.0 knows no", "mend or"
    ),
    "no event": Case(other(COMMAND), "hooks", f":1: {DROPS}it has no event", "mend or remove"),
    "later event": Case(
        event_of_a_later_release, "hooks", f"{DROPS}kimi 0.28.0 knows no event 'TurnSt", "mend"
    ),
    "our later events": Case(
        hooks_of_a_later_release,
        "hooks",
        "a hook of ours makes kimi drop every hook: kimi 0.28.0 knows no event 'SessionHeartbeat'"
        " (and 3 more such)",
        f"{SETUP} --kimi-version 0.28.0",
    ),
    "timeout 0": Case(other(STOP, COMMAND, "timeout = 0"), "hooks", "timeout is not a", "mend"),
    "timeout 601": Case(other(STOP, COMMAND, "timeout = 601"), "hooks", "from 1 to 600", "mend"),
    "timeout 2.5": Case(other(STOP, COMMAND, "timeout = 2.5"), "hooks", "from 1 to 600", "mend"),
    "empty command": Case(other(STOP, 'command = ""'), "hooks", "it has no command", "mend"),
    "key below ours": Case(
        key_below_the_block, "hooks", "`yolo` stands inside a [[hooks]] table of ours", "above"
    ),
    "table below ours": Case(
        table_of_a_hook_below_the_block, "hooks", "`mine` stands inside", "under its own"
    ),
    "our timeout 0": Case(own_timeout("0"), "hooks", "a hook of ours makes kimi drop", SETUP),
    "empty, several lines": Case(empty_over_lines, "hooks", ":1: `hooks` is an empty", "delete"),
    "inline array": Case(inline, "hooks", ":2: `hooks` is an inline array", "delete"),
    "no array": Case(no_array, "hooks", ":1: `hooks` is no array of tables", "delete"),
    "placeholder": Case(placeholder, "our hooks", "no hook of ours in", SETUP),
    "none of ours": Case(none_of_ours, "our hooks", "no hook of ours in", SETUP),
    "events missing": Case(
        two_events_missing, "our hooks", "no hook of ours for PreToolUse, Interrupt", SETUP
    ),
    "our timeout": Case(
        own_timeout("30"),
        "our hooks",
        "the timeout of SessionStart is 30 s, and must be 10 s",
        SETUP,
    ),
    "twice": Case(twice, "our hooks", "more than one hook of ours for SessionStart", SETUP),
    "matcher": Case(matcher, "our hooks", "a matcher was added to one of our hooks", "delete that"),
    "stale shim": Case(stale_shim, "our hooks", "/nowhere/shim.py is missing", SETUP),
    "another shim": Case(another_shim, "our hooks", "and the installed hook program is", SETUP),
    "no shim": Case(no_shim, "our hooks", "data/kimiaepd/shim.py is missing", SETUP),
    "no interpreter": Case(
        no_interpreter, "our hooks", "the interpreter /nowhere/python3 is missing", SETUP
    ),
    "another socket": Case(
        another_socket, "our hooks", "/nowhere/hook.sock is not this daemon's socket", SETUP
    ),
    "another program": Case(
        program_with_one_more_byte, "hook program", "shim.py is not this version's", SETUP
    ),
    "exits 2": Case(
        program("raise SystemExit(2)\n"), "hook command", "exits 2, and kimi takes that for a DENY",
        SETUP,
    ),
    "no Python": Case(program("def (\n"), "hook command", "it exits 1: SyntaxError", SETUP),
    "prints": Case(
        program("print('{}')\n"), "hook command", "writes 3 bytes to stdout, which kimi", SETUP
    ),
    "complains": Case(
        program("import sys\nsys.stderr.write('hm')\n"), "hook command", "to stderr: hm", SETUP
    ),
    "sends nothing": Case(program("\n"), "hook command", "its probe did not arrive", SETUP),
    "control without its hook": Case(
        control_on, "our hooks", "the wait of PreToolUse is 0.25 s, and must be 53 s", SETUP
    ),
    "old kimi": Case(old_kimi, "versions", "older than 0.28.0", "update kimi"),
    "no relay": Case(relay_that_is_not_there, "relay", "cannot be reached", "the relay runs"),
    "wrong setting": Case(
        wrong_setting, "settings", "settings.toml: log: unknown key sink", "mend that"
    ),
    "wrong variable": Case(
        wrong_variable, "settings", "AEP_CAPTURE: must be one of none, metadata", "mend that"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_broken_is_the_one_finding(here: Room, case: Case) -> None:
    case.broken(here)
    report = here.report()
    assert [name for name, _, _ in checks(report, "finding")] == [case.name]
    ((_, said, remedy),) = checks(report, "finding")
    assert case.said in said
    assert case.remedy in remedy
    assert "\n" not in said + remedy
    unasked = {name for name, _, _ in checks(report, "warning")} - {"last hook", "hook command"}
    assert unasked <= {"settings", "control", "gate"}, "what the daemon was not started with"
    in_the_config = ("kimi home", "config file", "hooks", "our hooks", "settings")
    assert report["configured"] is (case.name not in in_the_config)


# --- the daemon and its places -----------------------------------------------------------------


@pytest.fixture
def alone() -> Iterator[Room]:
    """A set-up without a daemon."""
    with scratch() as live, room(live) as alone:
        yield alone


def places(here: Room) -> tuple[Path, Path]:
    """State directory and log directory, as a daemon leaves them."""
    for place in (here.where.state_dir, here.where.log_dir):
        place.mkdir(mode=0o700, parents=True)
    return here.where.state_dir, here.where.log_dir


def findings(here: Room) -> dict[str, tuple[str, str]]:
    report = here.report()
    assert (report["configured"], report["probed"]) == (True, False)
    return {name: (said, remedy) for name, said, remedy in checks(report, "finding")}


def test_without_a_daemon_that_is_the_finding_and_the_command_is_run_all_the_same(
    alone: Room,
) -> None:
    report = alone.report()
    ((name, said, remedy),) = checks(report, "finding")
    assert (name, said) == ("daemon", "no daemon is running: hooks do nothing until one does")
    assert "kimiaepd run" in remedy
    fine = {name: said for name, said, _ in checks(report, "ok")}
    assert fine["hook command"].startswith("exits 0 in an empty environment, says nothing")
    assert fine["without daemon"].startswith("it exits 0 and says nothing, with no socket")


def test_a_file_in_the_place_of_the_socket_is_named(alone: Room) -> None:
    places(alone)
    alone.where.socket.touch()
    found = findings(alone)
    assert "is a regular file and not a socket" in found.pop("socket")[0]
    assert [*found] in ([], ["daemon"])


def test_a_state_directory_that_others_write_to_is_named_with_its_cure(alone: Room) -> None:
    state, _ = places(alone)
    state.chmod(0o777)
    said, remedy = findings(alone)["state directory"]
    assert str(state) in said
    assert "chmod" in remedy


def test_a_log_directory_that_others_write_to_is_named_with_its_cure(alone: Room) -> None:
    _, log = places(alone)
    log.chmod(0o777)
    found = findings(alone)
    assert [*found] == ["daemon", "log directory"]
    said, remedy = found["log directory"]
    assert str(log) in said
    assert "chmod" in remedy


def test_a_daemon_that_hangs_is_told_from_one_that_is_not_there() -> None:
    with scratch() as live, room(live) as here:
        live.start()
        assert live.process
        pid = live.process.pid
        live.process.send_signal(signal.SIGSTOP)
        try:
            found = findings(here)
        finally:
            live.process.send_signal(signal.SIGCONT)
    ((said, remedy),) = found.values()
    assert said.startswith(f"pid {pid} holds the daemon's lock and does not answer")
    assert f"kill {pid}" in remedy


@pytest.mark.parametrize("name", ["collector-token", "collector-token-read"])
def test_a_token_of_our_own_relay_that_others_can_read_is_the_one_finding(name: str) -> None:
    with scratch() as live, room(live) as here:
        live.start()
        (here.where.state_dir / name).chmod(0o640)
        ((found, said, remedy),) = checks(here.report(), "finding")
    assert (found, "others can read this token (mode 0640)" in said) == ("relay", True)
    assert "kimiaepd token rotate" in remedy


def test_the_retired_home_is_named_where_the_real_one_is_missing(alone: Room) -> None:
    home = Path(alone.environ["HOME"])
    (home / ".kimi").mkdir()
    del alone.environ["KIMI_CODE_HOME"]
    found = {name: said for name, said, _ in checks(alone.report(), "finding")}
    assert found["kimi home"] == (
        f"{home}/.kimi-code (the default) does not exist; {home}/.kimi is there, but belongs to"
        " another program, the retired kimi-cli"
    )
    assert [*found] == ["kimi home", "daemon"]


# --- nothing broken ----------------------------------------------------------------------------


def test_a_set_up_that_works_has_no_finding_and_leaves_no_trace(here: Room, live: Live) -> None:
    hooks = json.loads(live.run("status", "--json").stdout)["hooks"]
    before = {path: path.stat().st_mtime_ns for path in here.folder.rglob("*")}
    report = here.report()
    assert checks(report, "finding") == []
    assert (report["configured"], report["probed"]) == (True, True)
    status = json.loads(live.run("status", "--json").stdout)
    assert (status["hooks"], status["sessions"]) == (hooks, [])
    assert live.log_files() == []
    assert {path: path.stat().st_mtime_ns for path in here.folder.rglob("*")} == before


def test_the_last_real_hook_is_told_by_the_daemon_and_after_it_by_its_ledger() -> None:
    with scratch() as live, room(live) as here:
        live.start()
        assert here.report()["fired"] is None
        assert [name for name, _, _ in checks(here.report(), "warning")] == ["last hook"]
        live.shim(b'{"hook_event_name":"SessionStart","session_id":"s","source":"startup"}')
        report = here.report()
        assert report["warnings"] == 0
        fired = dt.datetime.fromisoformat(str(report["fired"]))
        assert dt.timedelta() <= dt.datetime.now(dt.UTC) - fired < dt.timedelta(seconds=20)
        live.stop()
        later = dt.datetime.fromisoformat(str(here.report()["fired"]))
        assert abs(later - fired) < dt.timedelta(seconds=2)
