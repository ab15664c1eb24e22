"""The installed shim and the interpreter that runs it."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

import kimiaepd
from kimiaepd.errors import ConfigError
from kimiaepd.setup import installed_shim
from kimiaepd.setup.interpreter import checked, lasting, running_interpreter


def test_the_source_is_the_packages_own_shim() -> None:
    package = Path(kimiaepd.__file__).parent
    assert installed_shim.source() == (package / "shim.py").read_bytes()


def test_installing_makes_the_place_and_a_second_time_touches_nothing(tmp_path: Path) -> None:
    place = tmp_path / "data/kimiaepd/shim.py"
    assert installed_shim.install(place, b"one")
    before = place.stat()
    assert not installed_shim.install(place, b"one")
    assert place.stat().st_ino == before.st_ino
    assert stat.S_IMODE(before.st_mode) == 0o644
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700


def test_an_old_shim_is_replaced_whole(tmp_path: Path) -> None:
    place = tmp_path / "shim.py"
    installed_shim.install(place, b"one")
    with place.open("rb") as running:
        assert installed_shim.install(place, b"two")
        assert running.read() == b"one"
    assert place.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [place]


def test_a_disk_that_is_full_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "shim.py"
    installed_shim.install(place, b"one")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match=r"shim\.py: .* No space left"):
        installed_shim.install(place, b"two")
    assert place.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [place]


def test_a_place_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/shim\.py"):
        installed_shim.install(tmp_path / "file/shim.py", b"one")


def test_removing_takes_the_empty_directory_too_and_nothing_else(tmp_path: Path) -> None:
    alone, shared = tmp_path / "alone/shim.py", tmp_path / "shared/shim.py"
    installed_shim.install(alone, b"")
    installed_shim.install(shared, b"")
    (shared.parent / "other").write_text("")
    assert installed_shim.remove(alone)
    assert installed_shim.remove(shared)
    assert not installed_shim.remove(alone)
    assert [path.name for path in tmp_path.rglob("*")] == ["shared", "other"]


# --- the interpreter --------------------------------------------------------------------------


def test_the_interpreter_is_a_real_binary_outside_any_environment() -> None:
    python = running_interpreter()
    assert python.is_absolute()
    assert python.read_bytes()[:2] != b"#!"
    assert not (python.parent.parent / "pyvenv.cfg").exists()
    assert "shims" not in python.parts


def test_a_python_that_does_not_know_itself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_base_executable", "")
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ConfigError, match="does not know its own path"):
        running_interpreter()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo \"ModuleNotFoundError: No module named '_socket'\" >&2; exit 1", "_socket"),
        ("exit 3", "status 3"),
    ],
)
def test_an_interpreter_that_cannot_run_hooks_is_named(
    tmp_path: Path, script: str, said: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=rf"python: cannot run hooks: .*{said}"):
        checked(python)


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="python: cannot run hooks"):
        checked(tmp_path / "python")


BREWED = "/opt/homebrew/Cellar/python@3.12/3.12.4_1/bin/python3.12"
LINK = "/opt/homebrew/opt/python@3.12/bin/python3.12"


def missing(_link: str, _real: str) -> bool:
    raise FileNotFoundError


def test_homebrews_lasting_link_is_taken_where_it_leads_to_the_binary() -> None:
    assert lasting(BREWED, lambda link, real: (link, real) == (LINK, BREWED)) == Path(LINK)
    assert lasting(BREWED, lambda _link, _real: False) == Path(BREWED)
    assert lasting(BREWED, missing) == Path(BREWED)
    assert lasting("/usr/bin/python3.12", missing) == Path("/usr/bin/python3.12")
