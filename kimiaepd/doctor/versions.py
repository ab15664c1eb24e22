"""Which versions meet here: ours, what runs it, and kimi's, which decides what may be registered.

A running daemon of another version than this program is said by `complaints.py`.
"""

from __future__ import annotations

import importlib.metadata
import platform

from kimiaepd import __version__
from kimiaepd.doctor.check import Check, finding, ok, warning
from kimiaepd.setup.events import NEWEST_TRIED, OLDEST_TRIED
from kimiaepd.setup.kimi_version import NONE_FOUND, Installed

NAME = "versions"


def examine(installed: Installed) -> Check:
    """Say what is installed, and whether kimi's release is one that was tried."""
    version, by = installed.version, installed.told_by
    if version is None:
        whom = by if installed == NONE_FOUND else f"kimi's version is not known: {by}"
        said = f"{_ours()}; {whom}, so hooks are held against what every release has"
        return warning(NAME, said, "install Kimi Code, or name it with --kimi PATH")
    said = f"{_ours()}, kimi {version} ({by})"
    if version < OLDEST_TRIED:
        return finding(
            NAME,
            f"{said}: older than {OLDEST_TRIED}, and which hooks it has is not known",
            "update kimi",
        )
    if version > NEWEST_TRIED:
        said += f", newer than {NEWEST_TRIED}, the newest that was tried"
    if installed.others:
        others = ", ".join(map(str, installed.others))
        said += f"; not asked: {others} (choose one with --kimi)"
    return ok(NAME, said)


def _ours() -> str:
    trio = importlib.metadata.version("trio")
    return f"kimiaepd {__version__}, Python {platform.python_version()}, trio {trio}"
