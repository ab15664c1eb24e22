"""`kimiaepd token`: a token alone on stdout, made once, renewed on demand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kimiaepd.collector.access import Access, Role, token_files
from kimiaepd.collector.same_site import Site

SITE = Site.at("127.0.0.1", 8398)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state/kimiaepd"


def token(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": os.environ["PATH"],
    }
    command = [sys.executable, "-m", "kimiaepd", "token", *words]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def told(tmp_path: Path, *words: str) -> str:
    done = token(tmp_path, *words)
    assert (done.returncode, done.stderr) == (0, "")
    said, newline, rest = done.stdout.partition("\n")
    assert (newline, rest) == ("\n", "")
    return said


def role(state_dir: Path, said: str) -> Role:
    return Access.open(state_dir, SITE).role_of(said.encode())


def test_show_says_the_token_that_the_daemon_has(tmp_path: Path, state_dir: Path) -> None:
    state_dir.mkdir(parents=True, mode=0o700)
    Access.open(state_dir, SITE)
    assert role(state_dir, told(tmp_path, "show")) is Role.CONTROL
    assert role(state_dir, told(tmp_path, "show", "--read-only")) is Role.OBSERVE


def test_show_before_the_first_start_makes_the_one_that_will_be_taken(
    tmp_path: Path, state_dir: Path
) -> None:
    said = told(tmp_path, "show")
    assert said == told(tmp_path, "show")
    assert state_dir.stat().st_mode & 0o777 == 0o700
    assert role(state_dir, said) is Role.CONTROL


def test_rotate_renews_one_and_leaves_the_other(tmp_path: Path, state_dir: Path) -> None:
    first, reader = told(tmp_path, "show"), told(tmp_path, "show", "--read-only")
    running = Access.open(state_dir, SITE)
    renewed = told(tmp_path, "rotate", "--read-only")
    assert [running.role_of(one.encode()) for one in (first, reader, renewed)] == [
        Role.CONTROL,
        Role.NONE,
        Role.OBSERVE,
    ]
    again = told(tmp_path, "rotate")
    assert [running.role_of(one.encode()) for one in (first, again)] == [Role.NONE, Role.CONTROL]


def test_a_token_that_others_can_read_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, state_dir: Path
) -> None:
    said = told(tmp_path, "show", "--read-only")
    token_files(state_dir)[1].path.chmod(0o644)
    refused = token(tmp_path, "show", "--read-only")
    assert refused.returncode == 78
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert "kimiaepd token rotate --read-only" in refused.stderr
    assert said not in refused.stderr
    assert told(tmp_path, "rotate", "--read-only") != said
