"""The terminal that a daemon was started in, and whether it was closed since.

A closed terminal says SIGHUP, and so does an operator who wants the settings read again. They are
told apart by asking the terminal: one that hung up cannot be opened any more.
"""

from __future__ import annotations

import os

_CONTROLLING = "/dev/tty"


class Terminal:
    """The controlling terminal as it was at the start, if there was one."""

    def __init__(self) -> None:
        self._had_one = _can_open()

    def is_gone(self) -> bool:
        """Whether there was a terminal and it is not there any more."""
        return self._had_one and not _can_open()


def _can_open() -> bool:
    try:
        descriptor = os.open(_CONTROLLING, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(descriptor)
    return True
