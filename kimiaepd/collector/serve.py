"""The collector's life: a port of its own, Hypercorn on it, and an orderly end.

Rules:
- The wanted port, or the next free one: whoever needs it reads it from us, never from a guess.
- A stop tells every consumer, waits `GRACE_SECONDS`, and cuts off who is still there.
- What the application raises costs one connection and is logged here; Hypercorn itself says nothing
  to stderr, and no request line, which could hold what nobody should read, is ever logged.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from functools import partial
from pathlib import Path

import structlog
import trio
from attrs import frozen
from hypercorn.config import Config
from hypercorn.trio import serve as serve_asgi

from kimiaepd.collector.duplex import MOST_MESSAGE
from kimiaepd.collector.routes import Collector
from kimiaepd.errors import BusyError, ConfigError

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PORT = 8398
PORTS_TRIED = 20
GRACE_SECONDS = 2.0
BACKLOG = 128

_TAKEN = (errno.EADDRINUSE, errno.EACCES)
_QUIET = "kimiaepd.collector.hypercorn"


@frozen
class Tls:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


def bind(host: str, port: int, *, others: int = PORTS_TRIED) -> socket.socket:
    """A listening socket on the port, or on the first free one of those after it.

    Args:
        host: an address of this machine, as a number.
        port: the wanted one; 0: any.
        others: how many more are tried.

    Raises:
        BusyError: none is free.
        ConfigError: the address cannot be bound at all.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, port + others + 1) if port else (0,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, number))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno not in _TAKEN:
                raise ConfigError(
                    f"the collector cannot listen at {host}:{number}: {error.strerror}"
                ) from None
        else:
            return listener
    raise BusyError(f"no port from {port} to {port + others} is free for the collector")


async def serve(
    collector: Collector,
    listener: socket.socket,
    *,
    tls: Tls | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `collector.stopping` is set and everybody has gone, or the grace is over.

    The listener is closed in every case.
    """
    config = Config()
    # Hypercorn takes a descriptor over, and lets children inherit it.
    descriptor = os.dup(listener.fileno())
    config.bind = [f"fd://{descriptor}"]
    config.accesslog = None
    config.errorlog = _quiet_logger()
    config.graceful_timeout = GRACE_SECONDS
    config.include_server_header = False
    config.websocket_max_message_size = MOST_MESSAGE
    config.h11_max_incomplete_size = 64 << 10
    config.alpn_protocols = ["http/1.1"]
    if tls:
        config.certfile, config.keyfile = str(tls.certificate), str(tls.key)
    with contextlib.closing(listener):
        async with trio.open_nursery() as asgi_nursery:
            run = partial(
                serve_asgi,
                collector.app(),  # type: ignore[arg-type] # the two spell one protocol differently
                config,
                shutdown_trigger=collector.stopping.wait,
            )
            await asgi_nursery.start(run)
            os.set_inheritable(descriptor, False)
            task_status.started()


class _ToOurLog(logging.Handler):
    """Hypercorn's own words, as lines of ours; what it says of its start is nobody's news."""

    def emit(self, record: logging.LogRecord) -> None:
        log.error("collector", what=record.getMessage(), exc_info=record.exc_info)


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger(_QUIET)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    if not logger.handlers:
        logger.addHandler(_ToOurLog())
    return logger
