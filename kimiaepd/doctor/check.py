"""One check of the doctor: its name, how it went, what was seen, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from attrs import frozen

from kimiaepd.settings import Settings
from kimiaepd.setup.kimi_version import Installed


class Level(enum.StrEnum):
    """How a check went.

    A *finding* is something that keeps the set-up from doing what it is for; a *warning* is
    something that a person should know, and can be as they want it.
    """

    OK = "ok"
    WARNING = "warning"
    FINDING = "finding"


@frozen
class Check:
    """What one look saw.

    Attributes:
        name: the subject, one or two words: "config file", "socket".
        level: how it went.
        said: one line: what is so, and which file, line, or key it is about.
        remedy: one line, what to do: a command where there is one. None where all is well.
    """

    name: str
    level: Level
    said: str
    remedy: str | None = None


@frozen
class Patient:
    """What is examined.

    Attributes:
        settings: the instance's; `settings.paths.kimi_home` is Kimi's home.
        environ: the environment that they come from.
        home_by: how the home is known, for people: "--home", "KIMI_CODE_HOME", "the default".
        installed: the installed release of kimi.
        setup_command: the command that registers the hooks in this home.
    """

    settings: Settings
    environ: Mapping[str, str]
    home_by: str
    installed: Installed
    setup_command: str


def ok(name: str, said: str) -> Check:
    """All is well."""
    return Check(name, Level.OK, said)


def warning(name: str, said: str, remedy: str) -> Check:
    """Something to know."""
    return Check(name, Level.WARNING, said, remedy)


def finding(name: str, said: str, remedy: str) -> Check:
    """Something to mend."""
    return Check(name, Level.FINDING, said, remedy)
