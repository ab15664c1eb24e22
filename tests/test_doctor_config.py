"""What the doctor says of Kimi's home and its config file; `test_doctor_broken.py` has the rest."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kimiaepd import settings
from kimiaepd.doctor import config, home
from kimiaepd.doctor.check import Level, Patient
from kimiaepd.setup.events import SINCE, Version
from kimiaepd.setup.install import install_in
from kimiaepd.setup.kimi_version import Installed
from patients import bad, lines, patient

TOOL = '[[hooks]]\nevent = "Stop"\ncommand = "say done"\n'


@pytest.fixture
def someone(tmp_path: Path) -> Patient:
    """Somebody whose hooks are registered for 2.1.0, which is installed."""
    made = using(patient({"HOME": str(tmp_path)}), "2.1.0")
    install_in(made.settings, made.installed.version)
    return made


def using(whom: Patient, version: str) -> Patient:
    return evolve(whom, installed=Installed(Version.parse(version), "--kimi-version"))


def file_of(whom: Patient) -> Path:
    return whom.settings.paths.kimi_home / "config.toml"


def add(whom: Patient, text: str) -> None:
    with file_of(whom).open("a") as file:
        file.write(text)


def see(whom: Patient) -> list[str]:
    """What is not ok."""
    return bad(config.examine(whom).checks)


def test_a_file_that_is_right_is_said_to_be_and_its_commands_are_given(someone: Patient) -> None:
    add(someone, TOOL)
    seen = config.examine(someone)
    assert [(check.level, check.name) for check in seen.checks] == [
        (Level.OK, name) for name in ("kimi home", "config file", "hooks", "our hooks")
    ]
    assert [check.said for check in seen.checks[2:]] == [
        "21, 1 of other tools; kimi 2.1.0 takes them",
        "20, complete and current",
    ]
    assert seen.configured
    ((text, parts),) = seen.commands.items()
    assert text == parts.render()


def test_the_home_is_named_with_what_named_it(someone: Patient) -> None:
    (said,) = lines(home.examine(evolve(someone, home_by="--home")))
    assert f"{someone.settings.paths.kimi_home} (--home)" in said


def test_where_a_kimi_that_is_started_here_reads_another_home_that_is_said(
    someone: Patient, tmp_path: Path
) -> None:
    other = f"{tmp_path}/other"
    (said,) = lines(home.examine(evolve(someone, environ={"KIMI_CODE_HOME": other})))
    assert said.startswith("ok kimi home: ")
    assert f"(the default; a kimi that is started here reads {other})" in said


def test_a_home_below_a_file_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    whom = patient({"HOME": str(tmp_path), "KIMI_CODE_HOME": f"{tmp_path}/file/home"})
    (line,) = see(whom)
    assert "does not exist -> name the right one" in line


# --- the retired home --------------------------------------------------------------------------


def test_the_retired_home_is_no_business_of_ours_where_it_has_none_of_our_hooks(
    someone: Patient, tmp_path: Path
) -> None:
    (tmp_path / ".kimi").mkdir()
    for text in (TOOL, "not TOML"):
        (tmp_path / ".kimi/config.toml").write_text(text)
        assert see(someone) == []


def test_hooks_of_ours_in_the_retired_home_are_named_with_what_removes_them(
    someone: Patient, tmp_path: Path
) -> None:
    retired = tmp_path / ".kimi"
    retired.mkdir()
    (retired / "config.toml").write_bytes(file_of(someone).read_bytes())
    (line,) = see(someone)
    assert line.startswith(f"warning kimi home: {retired}/config.toml has hooks of ours too")
    assert line.endswith(f"run: kimiaepd setup uninstall --home {shlex.quote(str(retired))}")


def test_the_retired_home_in_the_place_of_the_real_one_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / ".kimi").mkdir()
    whom = patient({"HOME": str(tmp_path), "KIMI_CODE_HOME": f"{tmp_path}/.kimi"})
    install_in(whom.settings, None)
    (line,) = see(whom)
    assert "belongs to another program, the retired kimi-cli" in line


def test_the_retired_home_that_no_kimi_reads_is_a_finding_and_nothing_is_to_be_registered_there(
    tmp_path: Path,
) -> None:
    (tmp_path / ".kimi").mkdir()
    made = patient({"HOME": str(tmp_path)})
    whom = evolve(made, settings=settings.load(made.environ, kimi_home=tmp_path / ".kimi"))
    (line,) = see(whom)
    assert line.startswith(f"finding kimi home: {tmp_path}/.kimi")
    assert line.endswith("use Kimi Code's own home: ~/.kimi-code")


# --- releases ----------------------------------------------------------------------------------


def test_where_no_release_is_known_what_is_registered_for_any_is_current(someone: Patient) -> None:
    unknown = evolve(someone, installed=Installed(None, "no kimi found"))
    assert see(unknown) == []
    file_of(someone).unlink()
    install_in(someone.settings, None)
    assert see(unknown) == []
    assert "no hook of ours for SessionHeartbeat, UserPromptQueued" in see(someone)[0]


def test_of_a_release_that_was_never_tried_no_hook_is_said_to_be_bad(someone: Patient) -> None:
    assert see(using(someone, "0.20.0")) == []
    assert see(using(someone, "9.0.0")) == []


def test_an_event_that_a_newer_release_may_have_is_a_warning(someone: Patient) -> None:
    add(someone, '[[hooks]]\nevent = "Later"\ncommand = "x"\n')
    (line,) = see(using(someone, "9.0.0"))
    assert line.startswith("warning hooks: ")
    assert "may make kimi drop every hook: it is not known whether kimi 9.0.0 has" in line
    assert see(someone)[0].startswith("finding hooks: ")


def test_an_event_of_ours_that_setup_would_not_write_is_named(someone: Patient) -> None:
    text = file_of(someone).read_text()
    file_of(someone).write_text(text.replace('"Interrupt"', '"Later"'))
    (line,) = see(using(someone, "9.0.0"))
    assert "no hook of ours for Interrupt; setup would register no hook for Later" in line


# --- every hook --------------------------------------------------------------------------------


def test_each_bad_hook_is_named_with_its_line_whoever_wrote_it(someone: Patient) -> None:
    start = len(file_of(someone).read_text().splitlines())
    add(someone, '[[hooks]]\nevent = "Stop"\n' + TOOL + "timeout = 0\n")
    file_of(someone).write_text(
        file_of(someone).read_text().replace("timeout = 10", "timeout = 601", 1)
    )
    said = see(someone)
    assert [line.partition("config.toml:")[2].partition(":")[0] for line in said] == [
        str(start + 1), str(start + 3), "2",
    ]  # fmt: skip
    assert "a hook of ours" in said[2]


def test_a_key_in_another_tools_table_is_named_with_its_own_line(someone: Patient) -> None:
    file_of(someone).write_text(TOOL + "\n# a remark\nmodel = 1\n" + file_of(someone).read_text())
    (line,) = see(someone)
    assert "config.toml:6: another tool's hook makes kimi drop every hook" in line


def test_many_bad_hooks_are_counted_after_the_first_ten(someone: Patient) -> None:
    add(someone, '[[hooks]]\nevent = "Stop"\n' * 25)
    said = see(someone)
    assert len(said) == config.MOST_NAMED + 1
    assert "15 more such hooks" in said[-1]


def test_what_another_tool_runs_is_not_printed(someone: Patient) -> None:
    add(someone, '[[hooks]]\nevent = "No"\ncommand = "TOKEN=secret curl"\n')
    assert "secret" not in "".join(lines(config.examine(someone).checks))


# --- ours --------------------------------------------------------------------------------------


def test_all_that_is_wrong_with_ours_is_one_line(someone: Patient) -> None:
    text = file_of(someone).read_text()
    text = text.replace("timeout = 10", "timeout = 20").replace("0.25", "0.5")
    file_of(someone).write_text(text.replace(str(someone.settings.paths.socket), "/other.sock"))
    (line,) = see(someone)
    named = ", ".join([*SINCE][:5]) + " and 15 more"
    for part in (
        f"the timeout of {named} is 20 s, and must be 10 s",
        f"the wait of {named} is 0.5 s, and must be 0.25 s",
        "these hooks do nothing: /other.sock is not this daemon's socket",
    ):
        assert line.count(part) == 1


def test_another_interpreter_that_works_is_a_warning(someone: Patient, tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    text = file_of(someone).read_text()
    python = text.partition("exec '")[2].partition("'")[0]
    file_of(someone).write_text(text.replace(python, str(other)))
    (line,) = see(someone)
    assert line.startswith("warning our hooks: ")
    assert f"they run with {other}, and setup would name {python} now" in line


def test_a_hook_of_ours_without_a_timeout_is_named(someone: Patient) -> None:
    text = file_of(someone).read_text()
    file_of(someone).write_text(text.replace("timeout = 10\n", "", 1))
    assert "the timeout of SessionStart is missing, and must be 10 s" in see(someone)[0]


def test_two_keys_that_others_wrote_into_ours_are_two_findings_and_nothing_is_said_to_be_current(
    someone: Patient,
) -> None:
    text = file_of(someone).read_text()
    file_of(someone).write_text(text.replace("[[hooks]]\n", "[[hooks]]\na = 1\n", 2))
    said = lines(config.examine(someone).checks)
    assert sum("`a` stands inside a [[hooks]] table of ours" in line for line in said) == 2
    assert not any("complete and current" in line for line in said)


# --- any bytes ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def anybody(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    made = using(patient({"HOME": str(tmp_path_factory.mktemp("h"))}), "2.1.0")
    install_in(made.settings, made.installed.version)
    return made


PIECES = st.sampled_from([
    b"[[hooks]]\n", b'event = "Stop"\n', b"command = 'x'\n", b"timeout = 5\n", b"hooks = [\n]\n",
    b"hooks = [{}]\n", b"[hooks]\n", b"[hooks.x]\n", b"matcher = 1\n", b"'\x00' = 1\n", b"\r\n",
    b"\xef\xbb\xbf", b"'''\n", b"event = 1979-05-27\n", b"[a]\n", b"a.b = 1\n", b"\xff",
])  # fmt: skip


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(PIECES, max_size=8), st.booleans())
def test_no_bytes_in_the_file_raise_and_all_is_said_in_lines(
    anybody: Patient, pieces: list[bytes], ours_first: bool
) -> None:
    file = file_of(anybody)
    original = file.read_bytes()
    ours = original if ours_first else b""
    try:
        file.write_bytes(ours + b"".join(pieces))
        seen = config.examine(anybody)
    finally:
        file.write_bytes(original)
    assert seen.checks
    assert all("\n" not in line for line in lines(seen.checks))
    assert seen.configured is not any(check.level is Level.FINDING for check in seen.checks)


def test_nothing_is_written(someone: Patient, tmp_path: Path) -> None:
    add(someone, TOOL)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    config.examine(someone)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
