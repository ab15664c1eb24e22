"""`kimiaepd setup` as a person types it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kimiaepd.cli.setup import TAKES_EFFECT, setup
from kimiaepd.errors import ConfigError, UsageError
from kimiaepd.setup import kimi_version


class Person:
    """Somebody with a scratch home, who types commands."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / ".kimi-code/config.toml"
        self.shim = home / ".local/share/kimiaepd/shim.py"

    def types(self, *words: str) -> Result:
        result = CliRunner().invoke(setup, words)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "KIMI_CODE_HOME"):
        monkeypatch.delenv(name, raising=False)
    # This machine may have a kimi of its own.
    monkeypatch.setattr(kimi_version, "_SYSTEM", ())
    home = tmp_path / "h"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(home / "bin"))
    kimi = home / "bin/kimi"
    kimi.write_text("#!/bin/sh\necho 2.1.0\n")
    kimi.chmod(0o755)
    return Person(home)


def test_install_asks_the_installed_kimi_and_says_what_it_did(person: Person) -> None:
    result = person.types("install")
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first == f"{person.config}: 20 hooks for kimi 2.1.0 ({person.home}/bin/kimi)"
    assert rest[-1] == TAKES_EFFECT
    assert person.config.read_text().count("[[hooks]]") == 20
    assert person.shim.is_file()


def test_a_second_install_says_that_nothing_changed(person: Person) -> None:
    person.types("install")
    before = person.config.read_bytes()
    assert person.types("install").stdout.endswith("nothing changed\n")
    assert person.config.read_bytes() == before


def test_without_a_kimi_the_sixteen_are_registered_and_that_is_said(person: Person) -> None:
    (person.home / "bin/kimi").write_text("#!/bin/sh\necho who knows\n")
    result = person.types("install")
    assert "16 hooks for kimi of unknown version" in result.stdout
    assert person.config.read_text().count("[[hooks]]") == 16


def test_where_no_kimi_is_found_it_says_what_to_do_later(person: Person) -> None:
    (person.home / "bin/kimi").unlink()
    later = "16 hooks that every release has; run this again once kimi is installed, for the rest"
    assert person.types("install").stdout.splitlines() == [
        f"{person.config}: 16 hooks",
        f"no kimi found: registered the {later}",
        f"made {person.config} (there was none)",
        TAKES_EFFECT,
    ]
    assert person.types("install").stdout.splitlines() == [
        f"{person.config}: 16 hooks, as they were; nothing changed",
        f"no kimi found: kept the {later}",
    ]


def test_an_install_that_only_mends_the_program_says_so(person: Person) -> None:
    person.types("install")
    head = f"{person.config}: 20 hooks for kimi 2.1.0 ({person.home}/bin/kimi), as they were"
    person.shim.unlink()
    said = person.types("install").stdout.splitlines()
    assert said == [head, f"hook program put back: {person.shim}"]
    person.shim.write_text("old")
    said = person.types("install").stdout.splitlines()
    assert said == [head, f"hook program brought up to date: {person.shim}"]


def test_the_version_can_be_said_and_the_program_can_be_named(person: Person) -> None:
    result = person.types("install", "--kimi-version", "0.28.0")
    assert "16 hooks for kimi 0.28.0 (--kimi-version)" in result.stdout
    result = person.types("install", "--kimi", str(person.home / "bin/kimi"))
    assert "20 hooks for kimi 2.1.0" in result.stdout
    with pytest.raises(UsageError):
        person.types("install", "--kimi-version", "newest")
    assert person.types("install", "--kimi", "/nowhere/kimi").exit_code != 0


def test_home_names_another_kimi(person: Person, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    person.types("install", "--home", str(tmp_path / "other"))
    assert (tmp_path / "other/config.toml").is_file()
    assert not person.config.exists()


def test_nothing_is_registered_in_the_home_of_the_retired_program(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired = person.home / ".kimi"
    retired.mkdir()
    (retired / "config.toml").write_text("a = 1\n")
    for words in (("--home", str(retired)), ("--home", f"{retired}/", "--dry-run")):
        with pytest.raises(UsageError, match=r"/\.kimi belongs to another program.*; use"):
            person.types("install", *words)
    assert [file.name for file in retired.iterdir()] == ["config.toml"]
    assert (retired / "config.toml").read_text() == "a = 1\n"
    assert not person.shim.exists()
    monkeypatch.setenv("KIMI_CODE_HOME", str(retired))
    assert person.types("install").exit_code == 0


@pytest.mark.parametrize("command", ["install", "uninstall", "show"])
def test_an_empty_home_is_not_the_current_directory(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = person.types(command, "--home", "")
    assert result.exit_code != 0
    assert "the directory has no name" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["h"]


def test_kimis_own_variable_is_obeyed_and_the_retired_home_is_not_touched(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired = person.home / ".kimi/config.toml"
    retired.parent.mkdir()
    retired.write_text("a = 1\n")
    monkeypatch.setenv("KIMI_CODE_HOME", str(tmp_path / "code"))
    person.types("install")
    assert (tmp_path / "code/config.toml").is_file()
    assert not person.config.exists()
    assert [path.name for path in retired.parent.iterdir()] == ["config.toml"]
    assert retired.read_text() == "a = 1\n"


def test_a_dry_run_prints_a_diff_and_writes_nothing(person: Person) -> None:
    result = person.types("install", "--dry-run")
    assert result.stdout.startswith("--- /dev/null\n")
    assert not person.config.parent.exists()
    assert not person.shim.exists()
    person.types("install")
    result = person.types("install", "--dry-run")
    assert (result.stdout, result.stderr) == ("", "nothing would change\n")
    result = person.types("uninstall", "--dry-run")
    assert "-[[hooks]]" in result.stdout
    assert result.stderr == f"hook program would be removed: {person.shim}\n"
    assert person.config.read_text().count("[[hooks]]") == 20


def test_a_dry_run_where_nothing_is_to_do_but_for_the_program_says_that(person: Person) -> None:
    assert person.types("uninstall", "--dry-run").stderr == "nothing would change\n"
    person.types("install")
    person.shim.unlink()
    result = person.types("install", "--dry-run")
    assert (result.stdout, result.stderr) == (
        "", f"hook program would be written: {person.shim}\n",
    )  # fmt: skip
    assert not person.shim.exists()


def test_a_dry_run_of_uninstall_says_that_another_home_keeps_the_program(
    person: Person, tmp_path: Path
) -> None:
    person.types("install")
    result = person.types("uninstall", "--home", str(tmp_path), "--dry-run")
    assert result.stderr == (
        f"nothing would change\nhook program would be kept: hooks in {person.config} use it\n"
    )


def test_uninstall_says_what_stays_and_only_that(person: Person) -> None:
    assert "kept" not in person.types("uninstall").stdout
    person.types("install")
    (person.home / ".aep/logs/kimi-code").mkdir(parents=True)
    (person.home / ".local/state/kimiaepd").mkdir(parents=True)
    kept = (
        f"kept: the log {person.home}/.aep/logs/kimi-code,"
        f" the state {person.home}/.local/state/kimiaepd"
    )
    said = person.types("uninstall").stdout.splitlines()
    assert said[-1] == f"{kept}, 1 backup beside config.toml"
    person.types("install")
    said = person.types("uninstall").stdout.splitlines()
    assert said[-1] == f"{kept}, 3 backups beside config.toml"
    assert len(list(person.config.parent.glob("config.toml.kimiaepd-*.bak"))) == 3


def test_uninstall_removes_and_says_so_and_a_second_one_has_nothing_to_do(person: Person) -> None:
    person.types("install")
    said = person.types("uninstall").stdout
    assert f"hooks removed from {person.config}" in said
    assert f"hook program removed: {person.shim}" in said
    assert person.config.read_bytes() == b""
    assert person.types("uninstall").stdout == (
        f"no hooks of kimiaepd in {person.config}; nothing changed there\n"
        "kept: 1 backup beside config.toml\n"
    )


def test_uninstall_elsewhere_keeps_the_program_that_the_configured_home_uses(
    person: Person, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    person.types("install")
    person.types("install", "--home", str(other))
    said = person.types("uninstall", "--home", str(other)).stdout
    assert f"hooks removed from {other}/config.toml" in said
    assert f"hook program kept: hooks in {person.config} use it\n" in said
    assert person.shim.is_file()
    assert f"hook program removed: {person.shim}" in person.types("uninstall").stdout
    assert not person.shim.exists()


def test_uninstall_in_a_home_of_the_environment_keeps_what_the_usual_home_uses(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.types("install")
    monkeypatch.setenv("KIMI_CODE_HOME", str(tmp_path / "code"))
    person.types("install")
    said = person.types("uninstall").stdout
    assert f"hook program kept: hooks in {person.config} use it\n" in said
    assert person.shim.is_file()


def test_uninstall_keeps_the_program_where_it_cannot_tell_who_uses_it(
    person: Person, tmp_path: Path
) -> None:
    person.types("install")
    person.config.write_text("a =\n")
    said = person.types("uninstall", "--home", str(tmp_path)).stdout
    assert f"hook program kept: {person.config} cannot be read, and its hooks may use it\n" in said
    assert person.shim.is_file()


def test_the_same_home_by_another_name_is_no_other_user_of_the_program(
    person: Person, tmp_path: Path
) -> None:
    person.types("install")
    (tmp_path / "link").symlink_to(person.config.parent)
    said = person.types("uninstall", "--home", str(tmp_path / "link")).stdout
    assert f"hook program removed: {person.shim}" in said


def test_show_tells_ours_from_others_with_their_lines(person: Person) -> None:
    person.config.parent.mkdir()
    person.config.write_text("a = 1\n\n[[hooks]]\nevent = 'Stop'\ncommand = 'say done'\n")
    person.types("install")
    found = json.loads(person.types("show", "--json").stdout)
    assert (found["config"], found["exists"]) == (str(person.config), True)
    other, ours = found["hooks"][0], found["hooks"][1]
    assert (other["line"], other["by"], other["event"]) == (3, "other", "Stop")
    assert (ours["line"], ours["by"], ours["timeout"]) == (8, "kimiaepd", 10)
    assert ours["socket"] == str(person.home / ".local/state/kimiaepd/hook.sock")
    assert len(found["hooks"]) == 21
    assert (other["program"], ours["program"]) == ("say", str(person.shim))
    lines = person.types("show").stdout.splitlines()
    assert lines[0] == str(person.config)
    assert lines[1].split() == ["3", "other", "Stop", "say"]
    assert lines[2].split() == ["8", "kimiaepd", "SessionStart"]
    assert lines[-1] == f"hooks of kimiaepd lead to {ours['socket']}"


def test_show_keeps_to_eighty_columns_and_to_one_line_a_hook(person: Person) -> None:
    person.config.parent.mkdir()
    deep = "/".join(["a rather long directory"] * 8)
    person.config.write_text(
        f"[[hooks]]\nevent = 'AnEventWithAVeryLongNameIndeed'\ncommand = '\"/{deep}/hook.sh\" x'\n"
        '[[hooks]]\nevent = "Stop\\n\\u001b[2J"\ncommand = "\'/a\\nb\'"\n'
        "[[hooks]]\nevent = 5\n"
    )
    _, first, second, third, *_ = person.types("show").stdout.splitlines()
    assert len(first) == 80
    assert first.split()[2].endswith("LongNameIndeed")
    assert first.endswith("directory/hook.sh")
    assert second.split() == ["4", "other", r"'Stop\n\x1b[2J'", r"'/a\nb'"]
    assert third.split() == ["7", "other", "5", "?"]


def test_show_holds_the_hooks_against_a_release_that_is_said(person: Person) -> None:
    person.types("install")
    assert person.types("show", "--kimi-version", "2.1.0").exit_code == 0
    result = person.types("show", "--kimi-version", "0.28.0")
    assert result.exit_code == 1
    assert "drop every hook: kimi 0.28.0 knows no event 'SessionHeartbeat'" in result.stdout
    found = json.loads(person.types("show", "--kimi-version", "0.28.0", "--json").stdout)["hooks"]
    assert [hook["event"] for hook in found if hook["fault"]] == [
        "SessionHeartbeat", "UserPromptQueued", "TurnStarted", "TaskStarted",
    ]  # fmt: skip
    with pytest.raises(UsageError):
        person.types("show", "--kimi-version", "newest")


def test_show_names_the_hook_that_turns_all_off_also_in_an_inline_array(person: Person) -> None:
    person.config.parent.mkdir()
    person.config.write_text(
        "a = 1\nhooks = [{event = 'Stop', command = 'x', yolo = 1979-05-27}]\n"
    )
    shown = person.types("show")
    assert "kimi drop every hook: a hook has no key 'yolo'" in shown.stdout
    assert shown.exit_code == 1
    person.config.write_text("[[hooks]]\nevent='Stop'\ncommand='x'\nby='kimiaepd'\nfault=''\n")
    (hook,) = json.loads(person.types("show", "--json").stdout)["hooks"]
    assert (hook["by"], hook["fault"]) == ("other", "a hook has no key 'by'")
    person.config.write_text(
        "a = 1\nhooks = [{event = 'Stop', command = 'x', yolo = 1979-05-27}]\n"
    )
    (hook,) = json.loads(person.types("show", "--json").stdout)["hooks"]
    assert (hook["line"], hook["by"]) == (2, "other")


def test_show_of_hooks_that_work_is_a_success_without_a_fault(person: Person) -> None:
    person.types("install")
    assert person.types("show").exit_code == 0
    result = person.types("show", "--json")
    assert result.exit_code == 0
    assert {hook["fault"] for hook in json.loads(result.stdout)["hooks"]} == {None}


def test_show_says_once_why_hooks_do_nothing_and_fails(person: Person) -> None:
    person.types("install")
    person.shim.unlink()
    result = person.types("show")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        f"these hooks do nothing: {person.shim} is missing; run: kimiaepd setup install"
    )
    assert result.stdout.count("missing") == 1
    result = person.types("show", "--json")
    assert result.exit_code == 1
    faults = {hook["fault"] for hook in json.loads(result.stdout)["hooks"]}
    assert faults == {f"it does nothing: {person.shim} is missing"}


def test_show_names_the_home_in_what_mends_it(person: Person, tmp_path: Path) -> None:
    home = tmp_path / "another home"
    home.mkdir()
    person.types("install", "--home", str(home))
    person.shim.unlink()
    last = person.types("show", "--home", str(home)).stdout.splitlines()[-1]
    assert last.endswith(f"run: kimiaepd setup install --home '{home}'")


def test_show_says_that_hooks_lead_to_another_socket(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.types("install")
    monkeypatch.setenv("KIMIAEPD_SOCKET", "/elsewhere/hook.sock")
    result = person.types("show")
    assert result.exit_code == 1
    assert result.stdout.count("is not this daemon's socket, /elsewhere/hook.sock") == 1


def test_show_says_where_nothing_is(person: Person) -> None:
    assert person.types("show").stdout == f"{person.config}: does not exist\n"
    assert json.loads(person.types("show", "--json").stdout)["exists"] is False
    person.config.parent.mkdir()
    person.config.write_text("a = 1\n")
    result = person.types("show")
    assert (result.exit_code, result.stdout) == (0, f"{person.config}: no hooks\n")


def test_warnings_go_to_stderr_and_refusals_are_one_line(person: Person) -> None:
    person.config.parent.mkdir()
    person.config.write_bytes(b"\xef\xbb\xbfa = 1\n")
    result = person.types("install")
    assert result.stderr.startswith(
        f"warning: {person.config}: line 1: the file begins with a byte"
    )
    person.config.write_text("hooks = 5\n")
    with pytest.raises(ConfigError, match=r"config\.toml:1: `hooks` is no array of tables"):
        person.types("install")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_signal_in_the_middle_leaves_the_file_as_it_was_and_nothing_beside_it(
    person: Person,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    number: signal.Signals,
    status: int,
) -> None:
    person.config.parent.mkdir()
    person.config.write_text("a = 1\n")
    if command == "uninstall":
        person.types("install")
    before = {path: path.read_bytes() for path in person.config.parent.iterdir()}
    real = os.fsync

    def signalled(handle: int) -> None:
        real(handle)
        if list(person.config.parent.glob(".config.toml.*")):
            signal.raise_signal(number)

    monkeypatch.setattr(os, "fsync", signalled)
    assert person.types(command).exit_code == status
    assert {path: path.read_bytes() for path in person.config.parent.iterdir()} == before
    assert person.shim.exists()  # no hook ever names what is not there
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# --- for programs -----------------------------------------------------------------------------


def told(person: Person, *words: str) -> dict[str, Any]:
    result = person.types(*words, "--json")
    assert result.stdout.count("\n") == 1
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_install_tells_programs_what_it_did(person: Person) -> None:
    found = told(person, "install")
    events = found.pop("events")
    assert len(events) == 20
    assert "PreToolUse" in events
    assert found == {
        "config": str(person.config),
        "action": "added",
        "changed": True,
        "backup": None,
        "shim": {"path": str(person.shim), "action": "added", "kept": None},
        "warnings": [],
        "dry_run": False,
        "kimi": {"version": "2.1.0", "told_by": f"{person.home}/bin/kimi", "others": []},
    }
    again = told(person, "install")
    assert (again["action"], again["changed"], len(again["events"])) == ("unchanged", False, 20)
    older = told(person, "install", "--kimi-version", "0.28.0")
    assert (older["action"], len(older["events"])) == ("refreshed", 16)
    assert older["kimi"] == {"version": "0.28.0", "told_by": "--kimi-version", "others": []}
    assert Path(older["backup"]).is_file()


def test_a_dry_run_tells_programs_the_diff_too(person: Person) -> None:
    found = told(person, "install", "--dry-run")
    assert found["dry_run"] is True
    assert found["action"] == "added"
    assert found["diff"].startswith("--- /dev/null\n+++ ")
    assert not person.config.exists()
    person.types("install")
    assert told(person, "install", "--dry-run")["diff"] == ""


def test_uninstall_tells_programs_what_it_did(person: Person) -> None:
    person.types("install")
    found = told(person, "uninstall")
    assert (found["action"], found["changed"], found["events"]) == ("removed", True, [])
    assert found["shim"] == {"path": str(person.shim), "action": "removed", "kept": None}
    assert found["left"] == ["1 backup beside config.toml"]
    assert "kimi" not in found
    again = told(person, "uninstall")
    assert (again["action"], again["changed"]) == ("unchanged", False)
    assert again["shim"]["action"] == "unchanged"


def test_a_warning_is_in_the_object_and_not_on_stderr(person: Person) -> None:
    person.config.parent.mkdir()
    person.config.write_bytes(b"\xef\xbb\xbfa = 1\n")
    result = person.types("install", "--json")
    assert result.stderr == ""
    assert "byte-order mark" in json.loads(result.stdout)["warnings"][0]
