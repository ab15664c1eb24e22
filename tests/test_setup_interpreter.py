"""The interpreter that hooks run: no launcher, a name that lasts, and one that really works."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from kimiaepd.errors import ConfigError
from kimiaepd.setup import interpreter
from kimiaepd.setup.interpreter import checked, lasting, running_interpreter

CELLAR = "/opt/homebrew/Cellar/python@3.12/3.12.4/Frameworks/Python.framework/bin/python3.12"
OPT = "/opt/homebrew/opt/python@3.12/Frameworks/Python.framework/bin/python3.12"


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_it_is_a_real_binary_outside_any_environment() -> None:
    python = running_interpreter()
    assert python.is_absolute()
    assert python.read_bytes()[:2] != b"#!"
    assert not (python.parent.parent / "pyvenv.cfg").exists()
    assert "shims" not in python.parts


def test_a_virtual_environment_of_one_is_seen_through(tmp_path: Path) -> None:
    venv.create(tmp_path / "v", symlinks=True, with_pip=False)
    python = tmp_path / "v/bin/python"
    assert Path(os.path.realpath(python)) == running_interpreter()


def test_homebrews_own_link_survives_an_upgrade_and_is_taken() -> None:
    asked: list[tuple[str, str]] = []

    def is_same(one: str, other: str) -> bool:
        asked.append((one, other))
        return True

    assert lasting(CELLAR, is_same) == Path(OPT)
    assert asked == [(OPT, CELLAR)]


def test_a_link_to_another_release_or_to_nothing_is_not_taken() -> None:
    def missing(one: str, other: str) -> bool:
        raise FileNotFoundError(one, other)

    assert lasting(CELLAR, lambda _one, _other: False) == Path(CELLAR)
    assert lasting(CELLAR, missing) == Path(CELLAR)
    assert lasting("/usr/bin/python3.12", missing) == Path("/usr/bin/python3.12")


def test_it_is_run_once_as_a_hook_runs_it(tmp_path: Path) -> None:
    said = tmp_path / "said"
    python = program(tmp_path / "python", f'echo "$1 $2 ${{HOME-no home}}" > "{said}"')
    assert checked(python) == python
    assert said.read_text() == "-I -S no home\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'ImportError: no _socket' >&2; exit 1", "ImportError: no _socket"),
        ("exit 7", "status 7"),
        ("kill -9 $$", "status -9"),
        ("exec /nowhere/python", "not found|No such file"),
    ],
)
def test_one_that_cannot_run_hooks_is_refused_with_its_own_words(
    tmp_path: Path, script: str, why: str
) -> None:
    python = program(tmp_path / "python", script)
    with pytest.raises(ConfigError, match=rf"cannot run hooks: .*({why}).*; use another") as caught:
        checked(python)
    assert "\n" not in str(caught.value)


def test_one_that_hangs_or_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"cannot run hooks: .*No such file"):
        checked(tmp_path / "none")
    monkeypatch.setattr(interpreter, "PROBE_SECONDS", 0.01)
    with pytest.raises(ConfigError, match=r"cannot run hooks: .*timed out"):
        checked(program(tmp_path / "python", "exec /bin/sleep 60"))


def test_a_python_that_does_not_know_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_base_executable", "")
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ConfigError, match="does not know its own path"):
        running_interpreter()
