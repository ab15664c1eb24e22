"""Waiting for another process: look again until a deadline, and then say what was missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_AGAIN_S = 0.05


def until(look: Callable[[], T], what: str, *, seconds: float = 20) -> T:
    """What `look` gives as soon as it is truthy.

    Raises:
        AssertionError: it was not in time; the message says `what` was waited for.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(LOOK_AGAIN_S)
    return found
