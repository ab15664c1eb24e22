"""Where paths really lead, for rules on paths: every link followed, looked at in a thread.

A file system may hang, and a hook must not hang with it: a look takes `SECONDS` at most, and
`LOOKERS` threads are all that may be left behind. Who does not know is told so, and holds the call.
"""

from __future__ import annotations

import os

import trio
from attrs import define, field

SECONDS = 0.25
LOOKERS = 4


@define
class Looker:
    """Looks at paths."""

    _threads: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(LOOKERS))

    async def real(self, *paths: str) -> tuple[str | None, ...]:
        """Where each of them leads; None for all where nobody can say in time."""
        with trio.move_on_after(SECONDS):
            try:
                return await trio.to_thread.run_sync(
                    lambda: tuple(map(os.path.realpath, paths)),
                    abandon_on_cancel=True,
                    limiter=self._threads,
                )
            except (OSError, ValueError, RuntimeError):  # also where the system gives no thread
                pass
        return (None,) * len(paths)
