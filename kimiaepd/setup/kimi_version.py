"""Which release of Kimi Code is installed: found where its installers put it, and asked.

Rules:
- The `kimi` that the person would start comes first: PATH in its order, then the places where the
  native installer and the package managers put it (a daemon's PATH often lacks them).
- An answer counts only where it is a bare version on a line of its own. The retired Python program
  of the same name says "kimi, version 1.30.0", and would be taken for a release with twenty events.
- All the asking together takes at most ten seconds, and nothing that was started outlives it.
- Others that are installed are named and not asked: each would cost two seconds more.
- Not to find one is an answer (`version` is None); a `--kimi` that does not answer is an error.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attrs import frozen

from kimiaepd.errors import UsageError
from kimiaepd.setup.events import Version
from kimiaepd.setup.leashed import output

ASK_SECONDS = 10.0
"""For all the asking together; one answer takes one to three seconds, most of it Node's start."""

_BELOW_HOME = (
    ".kimi-code/bin",  # the native installer; it only adds this to a login shell's PATH
    ".local/bin",
    ".npm-global/bin",
    ".volta/bin",
    ".bun/bin",
    ".yarn/bin",
    ".local/share/pnpm",
    ".local/share/pnpm/bin",  # since pnpm 11
    "Library/pnpm",
    "Library/pnpm/bin",
    ".nix-profile/bin",  # the vendor has a flake
)
_BELOW_NVM = ".nvm/versions/node/*/bin/kimi"
_SYSTEM = (
    "/opt/homebrew/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "/usr/local/bin",
    "/usr/bin",
)


@frozen
class Installed:
    """The installed release.

    Attributes:
        version: which; None where nobody could say.
        told_by: how that is known, for people: "/usr/bin/kimi", "--kimi-version".
        others: further programs of that name, which may be other releases, or something else.
    """

    version: Version | None
    told_by: str
    others: tuple[Path, ...] = ()


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
    asked: list[Path] = []
    programs = list(_distinct(candidates(environ, kimi_home)))
    for place, kimi in enumerate(programs):
        if (left := until - time.monotonic()) <= 0:
            break
        if version := ask(kimi, environ, left):
            return Installed(version, str(kimi), tuple(programs[place + 1 :]))
        asked.append(kimi)
    if asked:
        return Installed(None, f"no answer to --version from {', '.join(map(str, asked))}")
    return NONE_FOUND


def _distinct(places: Iterable[Path]) -> Iterator[Path]:
    """Those that can be run, each program by its first name."""
    seen: set[str] = set()
    for place in places:
        real = os.path.realpath(place)
        if real not in seen and os.path.isfile(real) and os.access(real, os.X_OK):  # noqa: PTH113 - never raises
            seen.add(real)
            yield place


def candidates(environ: Mapping[str, str], kimi_home: Path) -> Iterator[Path]:
    """Every place where `kimi` may be, in the order of asking; most of them do not exist."""
    for directory in environ.get("PATH", "").split(os.pathsep):
        if directory.startswith("/"):  # an empty or relative one depends on where we were started
            yield Path(directory, "kimi")
    yield kimi_home / "bin/kimi"
    if (home := environ.get("HOME", "")).startswith("/"):
        for below in _BELOW_HOME:
            yield Path(home, below, "kimi")
        yield from sorted(Path(home).glob(_BELOW_NVM), key=_node_release, reverse=True)
    for directory in _SYSTEM:
        yield Path(directory, "kimi")


def _node_release(kimi: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", kimi.parts[-3])]


def ask(kimi: Path, environ: Mapping[str, str], seconds: float) -> Version | None:
    """What one program says to `--version`; None where it is no Kimi Code CLI, or too slow."""
    # A program installed with npm starts `node`, which stands beside it where PATH lacks both.
    path = os.pathsep.join(filter(None, (environ.get("PATH"), str(kimi.parent))))
    said_bytes = output(
        [kimi, "--version"], {**environ, "PATH": path, "KIMI_CODE_NO_AUTO_UPDATE": "1"}, seconds
    )
    lines = said_bytes.decode("utf-8", "replace").split("\n")
    versions = (Version.parse(line.strip()) for line in lines)
    return next((version for version in versions if version), None)
