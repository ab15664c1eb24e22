"""A part of the daemon that may fail without the rest: said, waited for, and begun again.

Rules (design rule 1):
- What a part raises is a defect of ours: it is logged with its traceback and counted, and never
  reaches the nursery that the hook server runs in. Cancellation always passes through.
- The next try comes after a wait with jitter, longer each time, until a try lasted.

What a part does about failures that it expects is its own business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
import trio
from attrs import define, field

from kimiaepd.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@define(eq=False)
class Supervisor:
    """Keeps one part running.

    Attributes:
        name: for the log and `status`.
        backoff: how long to wait after a crash.
        crashes: how many there were.
        crashed: told of each crash, by the error's type and text.
    """

    name: str
    backoff: Backoff = field(factory=Backoff)
    crashes: int = 0
    crashed: Callable[[str], None] = lambda _: None

    async def run(
        self,
        work: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run the part until it returns."""
        task_status.started()
        while True:
            began = trio.current_time()
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - what the part raises is what this is for
                self._say(error)
            else:
                return
            self.backoff.lasted(trio.current_time() - began)
            await trio.sleep(self.backoff.next())

    def _say(self, error: Exception) -> None:
        self.crashes += 1
        log.error("a part failed and is begun again", part=self.name, exc_info=error)
        self.crashed(f"{type(error).__name__}: {error}")
