"""The registered command: to the byte, through a real sh, with anything missing."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.errors import ConfigError
from kimiaepd.settings import LONGEST_HOLD_MS, GateSettings, HoldMs
from kimiaepd.setup.command import (
    OBSERVED,
    Budget,
    Command,
    budgets,
    entries,
    quote,
    unquote,
)

SHELLS = [shell for shell in ("/bin/sh", "/bin/bash", "/bin/dash") if Path(shell).exists()]
ODD_NAMES = [
    "plain",
    "a b",
    "it's",
    "''",
    '"q"',
    "$HOME",
    "`id`",
    "a&b;c|d",
    "é 日本",
    "a\nb",
    "-x\\",
]
NOBODY = 65534

path_text = st.text(
    st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1
).map("/".__add__)


def test_the_command_is_exactly_this() -> None:
    assert Command("/s/hook.sock", "/d/shim.py", "/p/python3", 0.25).render() == (
        "trap '' TERM; [ -S '/s/hook.sock' ] && [ -f '/d/shim.py' ] && [ -r '/d/shim.py' ]"
        " && [ -x '/p/python3' ] || exit 0;"
        " exec '/p/python3' -I -S '/d/shim.py' '/s/hook.sock' 0.25"
    )


@given(path_text, path_text, path_text, st.sampled_from([0.25, 1, 53, 55.5]))
def test_ours_is_recognised_whatever_its_paths(s: str, d: str, p: str, seconds: float) -> None:
    command = Command(s, d, p, seconds)
    assert Command.recognise(command.render()) == command


@given(st.text())
def test_quoting_can_be_undone(text: str) -> None:
    assert unquote(quote(text)) == text


OURS = Command("/s", "/d", "/p", 0.25).render()


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "python3 ~/.kimi/hook.py",
        "trap '' TERM; exec /p -I -S /d /s 0.25",
        OURS + " ",
        OURS + "; rm -rf x",
        "env " + OURS,
        OURS.replace("exec '/p'", "exec '/other'"),
        OURS.replace("-S '/d' '/s'", "-S '/other' '/s'"),
        OURS.replace("0.25", "$(id)"),
    ],
)
def test_what_only_resembles_ours_is_not_ours(foreign: str) -> None:
    assert Command.recognise(foreign) is None


def test_an_observed_hook_has_a_quarter_second_and_a_whole_small_timeout() -> None:
    held = Budget(seconds=53, timeout=60)
    made = entries(
        socket="/s", shim="/d", python="/p", events=("Stop", "PreToolUse"),
        exceptions={"PreToolUse": held},
    )  # fmt: skip
    assert [(entry.event, entry.timeout) for entry in made] == [("Stop", 10), ("PreToolUse", 60)]
    assert made[0].command.endswith(" 0.25")
    assert made[1].command.endswith(" 53")
    assert OBSERVED.timeout > 5 + OBSERVED.seconds  # the shim waits 5 s for its input to end


def test_a_gate_that_is_off_changes_no_budget() -> None:
    assert budgets(GateSettings()) == {}


@given(st.integers(1, LONGEST_HOLD_MS))
def test_a_hold_ends_before_the_shim_gives_up_and_that_before_the_vendor_kills(hold: int) -> None:
    held = budgets(GateSettings(enabled=True, hold_ms=HoldMs(hold)))
    assert list(held) == ["PreToolUse"]
    budget = held["PreToolUse"]
    assert hold / 1000 + 2.9 < budget.seconds < budget.timeout == 60
    assert type(budget.timeout) is int
    read_back = Command.recognise(Command("/s", "/d", "/p", budget.seconds).render())
    assert read_back
    assert read_back.seconds == pytest.approx(budget.seconds, abs=1e-9)


def test_whole_seconds_are_written_as_such_and_read_back() -> None:
    text = Command("/s", "/d", "/p", 53.0).render()
    assert text.endswith(" '/s' 53")
    assert Command.recognise(text) == Command("/s", "/d", "/p", 53.0)


@pytest.mark.parametrize("seconds", [0, 60, 61.5, -1])
def test_a_shim_that_the_vendor_would_kill_is_no_budget(seconds: float) -> None:
    with pytest.raises(ValueError, match="under a timeout of 60 s"):
        Budget(seconds=seconds, timeout=60)


@pytest.mark.parametrize("path", ["shim.py", "", os.fsdecode(b"/caf\xe9")])
def test_a_path_that_no_config_file_can_name_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be registered"):
        entries(socket="/s", shim=path, python="/p", events=("Stop",))


# --- through a shell -------------------------------------------------------------------------


class Place:
    """A directory with all that a command needs; its interpreter denies, as Python would."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.socket, self.shim, self.python = (directory / name for name in ("s", "shim", "python"))
        listener = socket.socket(socket.AF_UNIX)
        # By a relative name, because odd names can make a path too long to bind.
        here = Path.cwd()
        os.chdir(directory)
        try:
            listener.bind("s")
        finally:
            os.chdir(here)
        self.listener = listener
        self.shim.write_text("")
        self.interpret("echo denied; echo denied >&2; exit 2")

    def interpret(self, script: str) -> None:
        self.python.write_text(f"#!/bin/sh\n{script}\n")
        self.python.chmod(0o755)

    @property
    def command(self) -> Command:
        return Command(str(self.socket), str(self.shim), str(self.python), 0.25)

    def run(
        self, shell: str = "/bin/sh", command: Command | None = None, user: int | None = None
    ) -> tuple[int, bytes, bytes]:
        text = (command or self.command).render()
        done = subprocess.run(
            [shell, "-c", text], env={}, input=b"{}", capture_output=True, check=False, user=user
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def place() -> Iterator[Place]:
    # Not tmp_path: that is closed to the other user of one test below.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        made = Place(Path(name, "it's here"))
        yield made
        made.listener.close()


SILENT = (0, b"", b"")


def test_with_everything_there_the_shim_runs(place: Place) -> None:
    assert place.run() == (2, b"denied\n", b"denied\n")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("missing", ["socket", "shim", "python"])
def test_what_is_deleted_makes_a_silent_success(place: Place, shell: str, missing: str) -> None:
    getattr(place, missing).unlink()
    assert place.run(shell) == SILENT


def test_a_whole_install_that_is_gone_makes_a_silent_success(place: Place) -> None:
    gone = Command("/nowhere/s", "/nowhere/shim.py", "/nowhere/python", 0.25)
    assert place.run(command=gone) == SILENT


def test_a_plain_file_in_the_sockets_place_makes_a_silent_success(place: Place) -> None:
    place.socket.unlink()
    place.socket.write_text("")
    assert place.run() == SILENT


def test_a_directory_in_the_shims_place_makes_a_silent_success(place: Place) -> None:
    place.shim.unlink()
    place.shim.mkdir()
    assert place.run() == SILENT


def test_an_interpreter_that_may_not_be_run_makes_a_silent_success(place: Place) -> None:
    place.python.chmod(0o644)
    assert place.run() == SILENT


def test_a_shim_that_may_not_be_read_makes_a_silent_success(place: Place) -> None:
    place.shim.chmod(0o000)
    # root reads everything, so root looks on as somebody else
    assert place.run(user=None if os.getuid() else NOBODY) == SILENT


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_paths_reach_the_shim_as_they_are(place: Place, shell: str, name: str) -> None:
    odd = Place(place.directory / name)
    odd.interpret(r'''printf '%s\0' "$@"''')
    status, said, complaint = odd.run(shell)
    odd.listener.close()
    assert (status, complaint) == (0, b"")
    wanted = ("-I", "-S", str(odd.shim), str(odd.socket), "0.25")
    assert said == b"".join(os.fsencode(word) + b"\0" for word in wanted)


def test_a_hook_that_the_cli_abandons_lives_on_after_sigterm(place: Place) -> None:
    place.interpret("kill -TERM $$; echo alive")
    assert place.run() == (0, b"alive\n", b"")


def test_odd_seconds_are_written_as_a_number_that_python_reads(place: Place) -> None:
    place.interpret('for last; do :; done; echo "$last"')
    for seconds in (0.25, 1.0, 53.0, 0.5):
        _, said, _ = place.run(command=evolve(place.command, seconds=seconds))
        assert float(said) == seconds
