"""Is there a daemon that is not the service's: one that somebody runs in a terminal?

A second daemon ends at once with status 75, so a service beside it would only fail. Nothing is
stopped here: whoever runs the other one decides.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from kimiaepd.errors import BusyError
from kimiaepd.hook_socket.client import NotAnswering, NotRunning, request
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.paths import Paths
from kimiaepd.storage.lock_holder import lock_holder

PING_SECONDS = 2.0

_AGAIN = "stop it (Ctrl-C where it runs), then run this again"


async def answer(socket: Path) -> JSONObject | None:
    """What the daemon at the socket says to a ping; None where none runs or none answers."""
    with contextlib.suppress(NotRunning, NotAnswering):
        return await request(socket, "ping", timeout=PING_SECONDS)
    return None


async def refuse_rival(paths: Paths, service_pid: int | None) -> None:
    """Make sure that no other daemon stands in the service's way.

    Args:
        paths: the instance's.
        service_pid: the service's own daemon; None while it does not run.

    Raises:
        BusyError: one does; the line says which, and what to do.
    """
    try:
        said = await request(paths.socket, "ping", timeout=PING_SECONDS)
    except NotRunning:
        holder = lock_holder(paths.state_dir / "daemon.lock")
        if service_pid is None and holder is not None:
            raise BusyError(
                f"a daemon that is not the service runs on {paths.state_dir} (pid {holder});"
                f" {_AGAIN}"
            ) from None
    except NotAnswering as error:
        if service_pid is None:
            raise BusyError(f"{error} (it is not the service); {_AGAIN}") from None
    else:
        if said.get("pid") != service_pid:
            raise BusyError(
                f"a daemon that is not the service runs already (pid {said.get('pid')}); {_AGAIN}"
            )
