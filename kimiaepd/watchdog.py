"""The service manager's watchdog, fed by a ping that goes the way of a hook.

Rules:
- A word to the manager is worth nothing if the event loop alone stands behind it: the accept loop
  can be stuck while everything else runs. So each word has a round trip through our own socket
  before it, and a trip that fails gives none.
- A daemon that is busy must not be killed: a trip that fails is tried again soon, so that two or
  more must fail in a row, each of them as slow as it may be.
- It holds nothing up: it ends as soon as the daemon stops, whatever it waits for.

Each trip is one ping among those that `kimiaepd status` counts, and holds a place for as long as a
ping takes. systemd sets WATCHDOG_USEC and WATCHDOG_PID (sd_watchdog_enabled(3)).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NoReturn

import structlog
import trio
from attrs import frozen

from kimiaepd import service_notify
from kimiaepd.errors import UserError
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSONObject

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@frozen
class Pace:
    """How often a watchdog is fed; in seconds.

    Attributes:
        between: from one word to the next trip: half of the manager's patience.
        trip: how long a ping may take.
        again: from a trip that failed to the next one.
        look: how often the socket's file is looked at, so that one that was deleted is there again
            before the manager loses its patience.
    """

    between: float
    trip: float
    again: float
    look: float

    @classmethod
    def within(cls, patience: float) -> Pace:
        """The pace for a manager that waits `patience` seconds for a word."""
        return cls(between=patience / 2, trip=patience / 5, again=patience / 20, look=patience / 3)


def pace(environ: Mapping[str, str]) -> Pace | None:
    """The pace that the manager asks for; None where it does not watch this process."""
    said = environ.get("WATCHDOG_USEC", "")
    if not said or environ.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return None
    if not (said.isascii() and said.isdigit() and int(said)):
        log.warning("WATCHDOG_USEC is no number of microseconds; no watchdog is fed", said=said)
        return None
    return Pace.within(int(said) / 1_000_000)


async def run(
    pace: Pace,
    environ: Mapping[str, str],
    socket: Path,
    stopping: trio.Event,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Feed the watchdog of the manager that started us, until the daemon stops.

    Args:
        pace: how often.
        environ: where the manager listens.
        socket: where our own accept loop listens.
        stopping: set when the daemon stops; nothing is fed from then on.
        task_status: says that it runs.
    """

    async def ping(seconds: float) -> JSONObject:
        return await request(socket, "ping", timeout=seconds)

    def fed() -> None:
        service_notify.notify(environ, service_notify.WATCHDOG)

    async with trio.open_nursery() as feeding_nursery:
        feeding_nursery.start_soon(feed, pace, ping, fed)
        task_status.started()
        await stopping.wait()
        feeding_nursery.cancel_scope.cancel()


async def feed(
    pace: Pace, ping: Callable[[float], Awaitable[object]], fed: Callable[[], None]
) -> NoReturn:
    """Feed a watchdog until cancelled.

    Args:
        pace: how often.
        ping: makes one round trip within so many seconds, or raises `UserError` or `OSError`.
        fed: tells the manager.
    """
    failing = False
    while True:
        await trio.sleep(pace.again if failing else pace.between)
        try:
            await ping(pace.trip)
        except (UserError, OSError) as error:  # an OSError: no descriptor is left for the ping
            if not failing:
                log.warning("the hook socket does not answer; watchdog not fed", why=str(error))
            failing = True
        else:
            if failing:
                log.info("the hook socket answers again; watchdog fed")
            fed()
            failing = False
