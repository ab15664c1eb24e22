"""Which kimi is asked, and what counts as an answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kimiaepd.errors import UsageError
from kimiaepd.setup import kimi_version
from kimiaepd.setup.events import Version
from kimiaepd.setup.kimi_version import Installed, ask, at, candidates, find, said

LONG = 60.0
"""Seconds that no test here waits for: what is asked answers at once."""


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # This machine may have a kimi of its own.
    monkeypatch.setattr(kimi_version, "_SYSTEM", ())
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def environment(home: Path, *path: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": ":".join(map(str, path))}


def found(home: Path, *path: Path) -> Installed:
    return find(environment(home, *path), home / ".kimi-code", LONG)


def test_the_first_on_path_is_asked_before_the_usual_places(home: Path, tmp_path: Path) -> None:
    program(home / ".kimi-code/bin/kimi", "echo 2.1.0")
    first = program(tmp_path / "first/kimi", "echo 0.28.1")
    program(tmp_path / "second/kimi", "echo 0.42.0")
    answer = found(home, tmp_path / "none", first.parent, tmp_path / "second")
    assert (answer.version, answer.told_by) == (Version(0, 28, 1), str(first))


def test_further_ones_are_named_and_not_asked(home: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    native = program(home / ".kimi-code/bin/kimi", f"echo x > '{asked}'")
    first = program(tmp_path / "first/kimi", "echo 0.28.1")
    second = program(tmp_path / "second/kimi", f"echo x > '{asked}'")
    (tmp_path / "third").mkdir()
    (tmp_path / "third/kimi").symlink_to(first)
    answer = found(home, first.parent, second.parent, tmp_path / "third")
    assert answer == Installed(Version(0, 28, 1), str(first), (second, native))
    assert not asked.exists()


@pytest.mark.parametrize(
    "place",
    [".kimi-code/bin", ".local/bin", ".npm-global/bin", ".nvm/versions/node/v24.1.0/bin"],
)
def test_a_daemons_bare_path_finds_it_where_installers_put_it(home: Path, place: str) -> None:
    kimi = program(home / place / "kimi", "echo 2.1.0")
    assert found(home) == Installed(Version(2, 1, 0), str(kimi))


def test_the_newest_node_of_nvm_comes_first(home: Path) -> None:
    for release in ("v9.0.0", "v22.9.0", "v22.19.0", "odd"):
        program(home / f".nvm/versions/node/{release}/bin/kimi", f"echo 1.0.{len(release)}")
    answer = found(home)
    assert answer.told_by == str(home / ".nvm/versions/node/v22.19.0/bin/kimi")
    assert [place.parts[-3] for place in answer.others] == ["v22.9.0", "v9.0.0", "odd"]


def test_kimis_own_home_may_be_elsewhere(home: Path, tmp_path: Path) -> None:
    kimi = program(tmp_path / "code home/bin/kimi", "echo 2.1.0")
    answer = find(environment(home), tmp_path / "code home", LONG)
    assert answer == Installed(Version(2, 1, 0), str(kimi))


@pytest.mark.parametrize(
    "script",
    [
        "echo 'kimi, version 1.30.0'",  # the retired Python program
        "echo 2.1.0; exit 1",
        "echo 2.1.0 >&2",
        "echo kimi 2.1.0",
        "printf '\\377\\376'",
        ":",
        "exec /nowhere",
    ],
)
def test_what_is_no_answer_is_passed_over(home: Path, tmp_path: Path, script: str) -> None:
    other = program(tmp_path / "bin/kimi", script)
    right = program(home / ".local/bin/kimi", "echo 2.1.0")
    assert found(home, other.parent) == Installed(Version(2, 1, 0), str(right))


def test_an_answer_may_have_notices_around_it(home: Path, tmp_path: Path) -> None:
    kimi = program(tmp_path / "kimi", "echo 'A new version: 9.9.9'; echo 2.1.0; echo bye")
    assert ask(kimi, environment(home), LONG) == Version(2, 1, 0)


def test_what_cannot_be_run_is_passed_over(home: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kimi").mkdir()
    program(home / ".local/bin/kimi", "echo 2.1.0").chmod(0o644)
    program(home / ".bun/bin/kimi", "echo 2.1.0").write_text("#!/nowhere/node\n")
    right = program(home / "Library/pnpm/kimi", "echo 0.28.0")
    assert found(home, tmp_path / "bin") == Installed(Version(0, 28, 0), str(right))


def test_the_same_program_is_asked_once(home: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    kimi = program(tmp_path / "real/kimi", f"echo x >> '{asked}'")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/kimi").symlink_to(kimi)
    found(home, kimi.parent, tmp_path / "linked", kimi.parent)
    assert asked.read_text() == "x\n"


def test_nobody_answers(home: Path, tmp_path: Path) -> None:
    kimi = program(tmp_path / "kimi", "echo something else")
    answer = found(home, tmp_path)
    assert answer.version is None
    assert str(kimi) in answer.told_by
    assert find(environment(home), home, seconds=0).version is None


def test_npms_kimi_finds_the_node_beside_it(home: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin/node", "echo 2.1.0")
    kimi = program(tmp_path / "bin/kimi", "")
    kimi.write_text("#!/usr/bin/env node\n")
    assert ask(kimi, environment(home), LONG) == Version(2, 1, 0)


def test_asking_starts_no_update_and_gives_no_input(home: Path, tmp_path: Path) -> None:
    script = '[ "$KIMI_CODE_NO_AUTO_UPDATE" = 1 ] && [ "$1" = --version ] && ! read x && echo 2.1.0'
    kimi = program(tmp_path / "kimi", script)
    assert ask(kimi, environment(home), LONG) == Version(2, 1, 0)


def test_one_that_hangs_costs_its_time_box_and_nothing_of_it_is_left(
    home: Path, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    # A child that holds the pipe, as a wrapper script's would.
    script = f"exec 9> '{alive}'; echo started >&9; /bin/sleep 600 & wait"
    kimi = program(tmp_path / "kimi", script)
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    seconds, said_alive = 0.01, b""
    while not said_alive:  # a busy machine may not even have started it
        assert ask(kimi, environment(home), seconds) is None
        seconds *= 2
        with os.fdopen(reader, "rb", closefd=False) as file:
            said_alive = file.read()  # ends when the last that could write has gone
    os.close(reader)
    assert said_alive == b"started\n"


# --- what the command line says ---------------------------------------------------------------


@pytest.mark.parametrize("text", ["2.1.0", "v2.1.0", " 2.1.0\n"])
def test_a_version_can_be_said(text: str) -> None:
    assert said(text) == Installed(Version(2, 1, 0), "--kimi-version")


@pytest.mark.parametrize("text", ["", "latest", "2.1", "2.1.0.0"])
def test_a_word_that_is_no_version_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--kimi-version"):
        said(text)


def test_a_given_kimi_must_answer(home: Path, tmp_path: Path) -> None:
    kimi = program(tmp_path / "kimi", "echo 0.42.0")
    assert at(kimi, environment(home)) == Installed(Version(0, 42, 0), str(kimi))
    program(kimi, "exit 3")
    with pytest.raises(UsageError, match="did not answer"):
        at(kimi, environment(home))


def test_relative_places_on_path_are_not_searched(home: Path) -> None:
    environ = {"HOME": str(home), "PATH": ".::bin:/abs"}
    places = list(candidates(environ, home / ".kimi-code"))
    assert places[:2] == [Path("/abs/kimi"), home / ".kimi-code/bin/kimi"]
    assert all(place.is_absolute() for place in places)


def test_without_a_home_the_system_places_are_left() -> None:
    places = list(candidates({}, Path("/k")))
    assert places == [
        Path("/k/bin/kimi"),
        Path("/opt/homebrew/bin/kimi"),
        Path("/home/linuxbrew/.linuxbrew/bin/kimi"),
        Path("/usr/local/bin/kimi"),
        Path("/usr/bin/kimi"),
    ]
