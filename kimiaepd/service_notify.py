"""Tell a service manager how we are: systemd's notification socket, one datagram a word.

Nothing is said where `NOTIFY_SOCKET` is not set, and a manager that does not listen is no error of
ours: the daemon does not depend on who started it (sd_notify(3)).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

READY = b"READY=1"
STOPPING = b"STOPPING=1"
RELOADING = b"RELOADING=1"
WATCHDOG = b"WATCHDOG=1"


def notify(environ: Mapping[str, str], word: bytes) -> None:
    """Send one word to the service manager that started us, if there is one."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.setblocking(False)
        sender.sendto(word, address)
