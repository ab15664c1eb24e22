"""Hooks that do nothing are said to: each missing piece, another socket, no hooks, no config."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd import paths
from kimiaepd.paths import Paths
from kimiaepd.settings import Settings
from kimiaepd.setup.command import Command, entries
from kimiaepd.setup.config_edit import plan_install
from kimiaepd.setup.config_text import read
from kimiaepd.setup.install import install_in, unreachable
from kimiaepd.setup.standing import causes, standing


@pytest.fixture
def places(tmp_path: Path) -> Paths:
    return paths.resolve({"HOME": str(tmp_path)})


def config(places: Paths) -> Path:
    return places.kimi_home / "config.toml"


def why(places: Paths) -> str:
    said = unreachable(places)
    assert said
    assert "\n" not in said
    return said


def lines(places: Paths) -> list[str]:
    return standing(read(config(places).read_bytes()), places)


def test_installed_hooks_stand_also_while_no_daemon_runs(places: Paths) -> None:
    install_in(Settings(places), None)
    assert not places.socket.exists()
    assert lines(places) == []
    assert unreachable(places) is None


def test_a_missing_shim_is_one_line_for_all_sixteen_hooks(places: Paths) -> None:
    install_in(Settings(places), None)
    places.installed_shim.unlink()
    assert lines(places) == [
        f"these hooks do nothing: {places.installed_shim} is missing; run: kimiaepd setup install"
    ]
    assert why(places) == (
        f"no hook in {config(places)} leads here: {places.installed_shim} is missing;"
        " run: kimiaepd setup install"
    )


def test_a_shim_that_is_a_directory_is_missing(places: Paths) -> None:
    install_in(Settings(places), None)
    places.installed_shim.unlink()
    places.installed_shim.mkdir()
    assert "shim.py is missing" in why(places)


def test_what_may_not_be_read_or_run_is_said(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_in(Settings(places), None)
    # Not by chmod: root may read and, where any x bit is set, run everything.
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    first, second = lines(places)
    assert f"{places.installed_shim} cannot be read" in first
    assert "is not executable" in second


def test_an_interpreter_that_is_gone_is_said(places: Paths) -> None:
    command = Command(str(places.socket), __file__, "/nowhere/python3", 0.25)
    assert causes(command, places) == ["the interpreter /nowhere/python3 is missing"]


def test_a_plain_file_is_no_interpreter(places: Paths, tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("")
    command = Command(str(places.socket), __file__, str(tmp_path / "python3"), 0.25)
    assert causes(command, places) == [f"the interpreter {tmp_path}/python3 is not executable"]


def test_hooks_of_another_instance_do_not_lead_here(places: Paths, tmp_path: Path) -> None:
    install_in(Settings(places), None)
    here = evolve(places, socket=tmp_path / "other.sock")
    assert why(here).endswith(
        f": {places.socket} is not this daemon's socket, {tmp_path}/other.sock;"
        " run: kimiaepd setup install"
    )


def test_another_name_of_the_same_socket_leads_here(places: Paths, tmp_path: Path) -> None:
    install_in(Settings(places), None)
    (tmp_path / "link").symlink_to(places.socket.parent)
    assert unreachable(evolve(places, socket=tmp_path / "link" / places.socket.name)) is None


def test_one_hook_that_leads_here_is_enough_to_be_reached(places: Paths) -> None:
    install_in(Settings(places), None)
    stale = Command(str(places.socket), "/nowhere/shim.py", "/nowhere/python3", 0.25).render()
    with config(places).open("a") as file:
        file.write(f'[[hooks]]\nevent = "Stop"\ncommand = """{stale}"""\ntimeout = 10\n')
    assert len(lines(places)) == 2
    assert unreachable(places) is None


@pytest.mark.parametrize("old", [None, b"", b"[[hooks]]\nevent = 'Stop'\ncommand = 'x'\n"])
def test_where_no_hook_is_ours_none_leads_here(places: Paths, old: bytes | None) -> None:
    if old is not None:
        config(places).parent.mkdir()
        config(places).write_bytes(old)
    assert why(places) == (
        f"no hook in {config(places)} leads here: none is ours; run: kimiaepd setup install"
    )


def test_an_entry_that_drops_every_hook_is_why_none_leads_here(places: Paths) -> None:
    install_in(Settings(places), None)
    with config(places).open("a") as file:
        file.write("yolo = true\n")
    assert why(places).endswith("makes kimi drop every hook: a hook has no key 'yolo'")


def to_directory(path: Path) -> None:
    path.mkdir()


def to_pipe(path: Path) -> None:
    os.mkfifo(path)


def to_loop(path: Path) -> None:
    path.symlink_to(path)


def to_nonsense(path: Path) -> None:
    path.write_bytes(b"a =\n\xff")


def to_depth(path: Path) -> None:
    path.write_bytes(b"a = " + b"[" * 100_000)


@pytest.mark.parametrize("make", [to_directory, to_pipe, to_loop, to_nonsense, to_depth])
def test_a_config_that_cannot_be_read_is_said_not_raised(
    places: Paths, make: Callable[[Path], None]
) -> None:
    config(places).parent.mkdir()
    make(config(places))
    assert why(places).startswith(f"whether any hook leads here is not known: {config(places)}")


@given(st.binary(max_size=60))
def test_no_bytes_in_the_config_raise(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    home = tmp_path_factory.mktemp("h")
    places = paths.resolve({"HOME": str(home)})
    config(places).parent.mkdir()
    config(places).write_bytes(raw)
    assert why(places)


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_no_path_in_a_command_raises(socket: str, shim: str, python: str) -> None:
    places = paths.resolve({"HOME": "/h"})
    made = causes(Command(f"/{socket}", f"/nowhere/{shim}", f"/nowhere/{python}", 0.25), places)
    assert len(made) == 3
    assert all(cause.isprintable() for cause in made)


def test_a_nul_that_toml_can_spell_does_not_raise(places: Paths) -> None:
    wanted = entries(socket="/s\0", shim="/d\0", python="/p\0", events=("Stop",))
    assert len(standing(read(plan_install(b"", wanted, None).new), places)) == 3
