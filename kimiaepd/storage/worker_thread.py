"""Work for a thread, where a system that has no thread to give is an error like any other.

`threading` says it with a bare RuntimeError, which nobody who guards a disk expects. It knows no
disk: what the work is, and what its failure means, is the caller's business.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

import trio

_Result = TypeVar("_Result")


async def in_thread(
    work: Callable[[], _Result], *, limiter: trio.CapacityLimiter | None = None
) -> _Result:
    """Do blocking work in a thread; when cancelled, the thread is left to itself.

    Args:
        work: it raises no RuntimeError of its own.
        limiter: how many such threads there may be; default Trio's own.

    Raises:
        OSError: EAGAIN where the system has no thread for us now; and whatever `work` raises.
    """
    try:
        return await trio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
