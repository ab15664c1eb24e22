"""A whole instance under paths of every kind: installed, run by sh, and the event in the log.

The real `setup install` of a virtual environment in the odd place, a real daemon there, and every
registered command through `/bin/sh -c`, as the CLI runs it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import ROOT
from kimiaepd.setup.command import entries
from kimiaepd.setup.config_text import Hook
from kimiaepd.setup.events import NEWEST_TRIED, known_to
from kimiaepd.setup.install import inspect, install
from live import Live

ODD = [
    'it\'s a "q" & b',
    "-x $HOME \\ `id` ;|",
    "é 日本 🙂",
    "a\n b\t#'\\''",
]


@contextmanager
def instance(name: str) -> Iterator[Live]:
    """An instance whose every place is below an odd name, and whose Python is a venv there."""
    root = Path(tempfile.mkdtemp(prefix="ko", dir="/tmp"))
    odd = root / name
    odd.mkdir()
    packages = sysconfig.get_path("purelib")
    live = Live(odd, {
        "HOME": str(odd), "XDG_DATA_HOME": f"{odd}/d", "XDG_STATE_HOME": f"{odd}/s",
        "KIMI_CODE_HOME": f"{odd}/k", "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:{packages}",
    })  # fmt: skip
    try:
        yield live
    finally:
        if live.process:
            live.kill()
        shutil.rmtree(root, ignore_errors=True)


def ours(live: Live) -> list[Hook]:
    text = inspect(live.where.kimi_home / "config.toml")
    assert text
    return [hook for hook in text.hooks if hook.ours]


def fire(hook: Hook, session: str) -> subprocess.CompletedProcess[bytes]:
    payload = {"hook_event_name": hook.values["event"], "session_id": session, "cwd": "/w"}
    return subprocess.run(
        ["/bin/sh", "-c", str(hook.values["command"])],
        env={}, cwd="/", input=json.dumps(payload).encode(), capture_output=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_every_registered_hook_arrives_from_an_odd_place(name: str) -> None:
    with instance(name) as live:
        venv.create(live.home / "v", symlinks=True, with_pip=False)
        done = subprocess.run(
            [f"{live.home}/v/bin/python", "-m", "kimiaepd", "setup", "install",
             "--kimi-version", "2.1.0"],
            env=live.environ, capture_output=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        assert live.where.installed_shim.is_relative_to(live.home)
        assert live.where.socket.is_relative_to(live.home)
        hooks = ours(live)
        assert len(hooks) == len(known_to(NEWEST_TRIED))
        live.start()
        arrive(live, hooks, "whole")
        through_a_link(live)
        arrive(live, ours(live), "linked")


def arrive(live: Live, hooks: list[Hook], name: str) -> None:
    """Run hooks as the CLI does: each says nothing, succeeds, and is in a log of its own."""
    sessions = [f"{name}-{number}" for number in range(len(hooks))]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(fire, hooks, sessions))
    assert {(one.returncode, one.stdout, one.stderr) for one in answers} == {(0, b"", b"")}
    for hook, session in zip(hooks, sessions, strict=True):
        assert live.events(session), hook.values["event"]


def through_a_link(live: Live) -> None:
    """Register one hook again, run by an interpreter whose own name is odd."""
    link = live.home / "my python"
    link.symlink_to(os.path.realpath(sys.executable))
    socket, shim = str(live.where.socket), live.where.installed_shim
    wanted = entries(socket=socket, shim=str(shim), python=str(link), events=("Stop",))
    install(live.where.kimi_home / "config.toml", wanted, shim=shim)
    (hook,) = ours(live)
    assert hook.ours
    assert hook.ours.python == str(link)


@pytest.mark.parametrize("variable", ["HOME", "XDG_DATA_HOME", "KIMIAEPD_STATE_DIR"])
def test_a_place_that_toml_cannot_spell_is_refused_in_one_line_with_nothing_written(
    variable: str,
) -> None:
    with instance("plain") as live:
        odd = live.home / os.fsdecode(b"caf\xe9")
        odd.mkdir()
        live.environ = {"HOME": str(live.home), "PATH": "/usr/bin:/bin", variable: str(odd)}
        before = sorted(live.home.rglob("*"))
        for words in (["install"], ["install", "--dry-run"]):
            done = live.run("setup", *words, "--kimi-version", "2.1.0")
            assert done.returncode == 78
            (line,) = done.stderr.splitlines()
            assert "cannot be registered as a hook: its name is not UTF-8" in line
            assert done.stdout == ""
        assert sorted(live.home.rglob("*")) == before
