"""axe-core, a checker of what people with other senses and hands can use; for tests alone.

It comes from npm once, into the checkout's ignored folder `.vendor/`, by the version in its name.
No script of it runs but in the page that is checked.
"""

from __future__ import annotations

import fcntl
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from browser.driver import Browser
from vendor.install import FOLDER, UnavailableError, node

VERSION = "4.14.1"
NPM_DEADLINE_S = 120
SERIOUS = ("serious", "critical")
_PROGRAM = "package/axe.min.js"
_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  ({violations}) => done(violations.map(({id, impact, help, nodes}) =>
    ({id, impact, help, nodes: nodes.map(one => one.html + " | " + one.failureSummary)}))),
  error => done(String(error)));
"""


def axe() -> str:
    """The checker's program.

    Raises:
        UnavailableError: npm did not give it.
    """
    FOLDER.mkdir(exist_ok=True)
    place = FOLDER / f"axe-core-{VERSION}.js"
    with (FOLDER / "axe.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            part = place.with_suffix(".part")
            part.write_bytes(_fetched())
            part.rename(place)
    return place.read_text(encoding="utf-8")


def faults(browser: Browser) -> list[str]:
    """What is serious or worse on the page as it is shown now, a line each."""
    browser.run(axe())
    found = browser.ask("POST", "execute/async", {"script": _RUN, "args": []})
    assert isinstance(found, list), found
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {one['nodes'][:3]}"
        for one in found
        if one["impact"] in SERIOUS
    ]


def _fetched() -> bytes:
    found = node()
    with TemporaryDirectory() as folder:
        what = f"axe-core@{VERSION}"
        command: list[str | Path] = [found.program, found.npm, "pack", what, "--loglevel=error"]
        try:
            said = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=NPM_DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"npm did not end in {NPM_DEADLINE_S} s") from None
        packed = next(Path(folder).glob("*.tgz"), None)
        if packed is None:
            lines = said.stderr.strip().splitlines() or ["it said nothing"]
            raise UnavailableError(f"npm did not give {what}: {lines[0]}")
        with tarfile.open(packed) as archive, archive.extractfile(_PROGRAM) as program:  # type: ignore[union-attr] # it is a file
            return program.read()
