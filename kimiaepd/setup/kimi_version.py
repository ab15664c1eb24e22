"""Which release of Kimi Code is installed: found where its installers put it, and asked.

Rules:
- The `kimi` that the person would start comes first: PATH in its order, then the places where the
  native installer and the package managers put it (a daemon's PATH often lacks them).
- An answer counts only where it is a bare version on a line of its own. The retired Python program
  of the same name says "kimi, version 1.30.0", and would be taken for a release with twenty events.
- All the asking together takes at most ten seconds, and nothing that was started outlives it.
- Not to find one is an answer (`version` is None); a `--kimi` that does not answer is an error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from kimiaepd.errors import UsageError
from kimiaepd.setup.events import Version

ASK_SECONDS = 10.0
"""For all the asking together; one answer takes one to three seconds, most of it Node's start."""

_BELOW_HOME = (
    ".kimi-code/bin",  # the native installer
    ".local/bin",
    ".npm-global/bin",
    ".volta/bin",
    ".bun/bin",
    ".yarn/bin",
    ".local/share/pnpm",
    "Library/pnpm",
)
_SYSTEM = ("/opt/homebrew/bin", "/usr/local/bin", "/usr/bin")


@frozen
class Installed:
    """The installed release.

    Attributes:
        version: which; None where nobody could say.
        told_by: how that is known, for people: "/usr/bin/kimi", "--kimi-version".
    """

    version: Version | None
    told_by: str


NONE_FOUND = Installed(None, "no kimi found")


def said(text: str) -> Installed:
    """The release that the command line names.

    Raises:
        UsageError: it is no version.
    """
    version = Version.parse(text.strip().removeprefix("v"))
    if not version:
        raise UsageError(f"--kimi-version: {text!r} is no version; write it like 2.1.0")
    return Installed(version, "--kimi-version")


def at(kimi: Path, environ: Mapping[str, str], seconds: float = ASK_SECONDS) -> Installed:
    """The release of one `kimi`.

    Raises:
        UsageError: it does not answer with a version.
    """
    version = ask(kimi, environ, seconds)
    if not version:
        raise UsageError(
            f"--kimi: {kimi} did not answer `--version` with the version of a Kimi Code CLI within"
            f" {seconds:g} s; give its path, or say the version with --kimi-version"
        )
    return Installed(version, str(kimi))


def find(environ: Mapping[str, str], kimi_home: Path, seconds: float = ASK_SECONDS) -> Installed:
    """The release that is installed for the owner of an environment.

    Args:
        environ: where PATH and HOME come from; the programs that are asked run in it.
        kimi_home: the vendor's home, where its native installer puts the program.
        seconds: for all the asking together.
    """
    until = time.monotonic() + seconds
    asked: set[str] = set()
    for kimi in candidates(environ, kimi_home):
        real = os.path.realpath(kimi)
        left = until - time.monotonic()
        if real in asked or left <= 0 or not os.access(kimi, os.X_OK):
            continue
        asked.add(real)
        if version := ask(kimi, environ, left):
            return Installed(version, str(kimi))
    if asked:
        return Installed(None, f"no answer to --version from {', '.join(sorted(asked))}")
    return NONE_FOUND


def candidates(environ: Mapping[str, str], kimi_home: Path) -> Iterator[Path]:
    """Every place where `kimi` may be, in the order of asking; most of them do not exist."""
    for directory in environ.get("PATH", "").split(os.pathsep):
        if directory.startswith("/"):  # an empty or relative one depends on where we were started
            yield Path(directory, "kimi")
    yield kimi_home / "bin/kimi"
    if (home := environ.get("HOME", "")).startswith("/"):
        for below in _BELOW_HOME:
            yield Path(home, below, "kimi")
        yield from sorted(Path(home).glob(".nvm/versions/node/*/bin/kimi"), reverse=True)
    for directory in _SYSTEM:
        yield Path(directory, "kimi")


def ask(kimi: Path, environ: Mapping[str, str], seconds: float) -> Version | None:
    """What one program says to `--version`; None where it is no Kimi Code CLI, or too slow."""
    # A program installed with npm starts `node`, which stands beside it where PATH lacks both.
    path = os.pathsep.join(filter(None, (environ.get("PATH"), str(kimi.parent))))
    try:
        process = subprocess.Popen(  # noqa: S603 - asking the installed program is the point
            [kimi, "--version"],
            env={**environ, "PATH": path, "KIMI_CODE_NO_AUTO_UPDATE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    with process:
        try:
            said_bytes, _ = process.communicate(timeout=max(seconds, 0))
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:
                # The whole group: a wrapper's child would hold the pipe, and outlive us.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        return None
    lines = said_bytes.decode("utf-8", "replace").split("\n")
    versions = (Version.parse(line.strip()) for line in lines)
    return next((version for version in versions if version), None)
