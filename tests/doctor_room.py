"""A set-up on a scratch home for `kimiaepd doctor`, and the command as a person types it.

Many rooms can share one daemon: each has a Kimi home and a hook program of its own.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field
from click.testing import CliRunner

from kimiaepd import paths, settings
from kimiaepd.cli.doctor import doctor
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.setup.events import Version
from kimiaepd.setup.install import install_in
from live import Live

VERSION = "2.1.0"


@define
class Room:
    """One Kimi home with our hooks in it.

    Attributes:
        folder: its own scratch folder.
        environ: what doctor is run in; a test may add to it.
    """

    folder: Path
    environ: dict[str, str] = field(factory=dict)
    version: str = VERSION

    @property
    def where(self) -> paths.Paths:
        return settings.load(self.environ).paths

    @property
    def config(self) -> Path:
        return self.where.kimi_home / "config.toml"

    @property
    def shim(self) -> Path:
        return self.where.installed_shim

    def install(self, version: str = VERSION) -> None:
        """Register the hooks for a release, and examine it as that one."""
        self.version = version
        install_in(settings.load(self.environ), Version.parse(version))

    def write(self, text: str) -> None:
        """Put this in the place of the config."""
        self.config.write_text(text, encoding="utf-8")

    def add(self, text: str) -> None:
        """Put this below everything in the config."""
        with self.config.open("a", encoding="utf-8") as file:
            file.write(text)

    def swap(self, old: str, new: str, count: int = -1) -> None:
        """Write one text for another in the config."""
        text = self.config.read_text(encoding="utf-8")
        assert old in text
        self.write(text.replace(old, new, count))

    def line(self, text: str) -> int:
        """The number of the last line of the config that has this in it."""
        lines = self.config.read_text(encoding="utf-8").splitlines()
        return max(number for number, line in enumerate(lines, 1) if text in line)

    def types(self, *words: str) -> tuple[int, str]:
        """`kimiaepd doctor` with these words; its exit status and what it prints."""
        clean = {name: None for name in os.environ if name.startswith(("KIMI", "AEP_", "XDG_"))}
        ask = [] if "--kimi" in words else ["--kimi-version", self.version]
        result = CliRunner().invoke(doctor, [*ask, *words], env={**clean, **self.environ})
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    def report(self, *words: str) -> JSONObject:
        """What `--json` prints; its exit status is that of its findings."""
        status, printed = self.types("--json", *words)
        report = json.loads(printed)
        assert isinstance(report, dict)
        assert status == (1 if report["findings"] else 0)
        return report


@contextmanager
def room(live: Live) -> Iterator[Room]:
    """A room of its own at this instance, with our hooks in it."""
    with tempfile.TemporaryDirectory(prefix="kd", dir="/tmp") as folder:
        environ = {
            **live.environ,
            "KIMI_CODE_HOME": f"{folder}/kimi",
            "XDG_DATA_HOME": f"{folder}/data",
        }
        made = Room(Path(folder), environ)
        made.install()
        yield made


def checks(report: JSONObject, level: str) -> list[tuple[str, str, str]]:
    """Name, what was said, and remedy, of every check at a level."""
    found = report["checks"]
    assert isinstance(found, list)
    return [
        (str(check["name"]), str(check["said"]), str(check["remedy"]))
        for check in found
        if isinstance(check, dict) and check["level"] == level
    ]
