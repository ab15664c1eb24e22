"""Whether registered hooks of ours can reach a daemon: what they name, held against what is there.

Rules:
- The guard in front of every command makes a missing piece a silent success, so nobody else ever
  says that hooks do nothing. What is looked for here is what `command.py` tests for there.
- A cause is said once, however many hooks have it.
- A socket that is not there is no cause: there is none while no daemon runs.

It reads no config file (`install.inspect`) and mends nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from kimiaepd.paths import Paths
from kimiaepd.setup.command import Command
from kimiaepd.setup.config_text import ConfigText

INSTALL = "kimiaepd setup install"
"""What mends hooks that do nothing."""


def standing(text: ConfigText, paths: Paths, *, remedy: str = INSTALL) -> list[str]:
    """Why hooks of ours do nothing for this instance, a line a cause; empty where all can.

    Args:
        text: the vendor's config.
        paths: the instance that the hooks shall reach.
        remedy: the command that mends it.
    """
    found = (cause for hook in text.hooks if hook.ours for cause in causes(hook.ours, paths))
    return [f"these hooks do nothing: {cause}; run: {remedy}" for cause in dict.fromkeys(found)]


def causes(command: Command, paths: Paths) -> list[str]:
    """Why one command does nothing for this instance; empty where it can."""
    return list(_causes(command, paths))


def _causes(command: Command, paths: Paths) -> Iterator[str]:
    # `Path.is_file` raises where a directory on the way is closed, `access` where a NUL is in it.
    if not os.path.isfile(command.shim):  # noqa: PTH113 - never raises
        yield f"{_shown(command.shim)} is missing"
    elif not os.access(command.shim, os.R_OK):
        yield f"{_shown(command.shim)} cannot be read"
    if not os.path.isfile(command.python):  # noqa: PTH113 - never raises
        yield f"the interpreter {_shown(command.python)} is missing"
    elif not os.access(command.python, os.X_OK):
        yield f"the interpreter {_shown(command.python)} is not executable"
    if not same_file(command.socket, str(paths.socket)):
        yield (f"{_shown(command.socket)} is not this daemon's socket, {_shown(str(paths.socket))}")


def same_file(one: str, other: str) -> bool:
    """Whether two names lead to one place, which need not be there."""
    try:
        return one == other or os.path.realpath(one) == os.path.realpath(other)
    except ValueError:  # a NUL, which TOML can spell and no path can hold
        return False


def _shown(path: str) -> str:
    return path if path.isprintable() else repr(path)
