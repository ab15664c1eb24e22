"""What a Kimi home says of its `kimi web` servers: where each is, and the token that all take.

Rules:
- A server says where it is in a file, and leaves the file behind when it is killed: what is there
  is believed only of a process that lives. The process may be another program by now; that tells
  who answers at the port, not the file.
- The file is there before the server listens: port 0, or a refused connection, is "not ready yet".
- A server's address is asked only where it is this machine's own.
- The token is read each time it is needed: `kimi web rotate-token` changes it under a running
  server. It is the vendor's file, so one that others can read is used, and said to be so: the
  servers take it too, and refusing it here would close nothing.

Observed at 0.28.0 and 2.1.0. Nothing is asked here (`client.py`), and no file is changed or
removed: the vendor sweeps its own.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path

from attrs import field, frozen

from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import MalformedJSONError, parse
from kimiaepd.storage.file_safety import lives
from kimiaepd.web.errors import NoTokenError

INSTANCES = "server/instances"
TOKEN = "server.token"  # noqa: S105 - where it is, not what

_FILE_BYTES = 64 << 10
_TOKEN_BYTES = 4096
_PORTS = 65535
_WILDCARDS = ("", "0.0.0.0", "::", "*")  # noqa: S104 - what others bind to


@frozen
class Instance:
    """What a server's file says of it.

    Attributes:
        id: the file's name; the server's own word for itself is another one.
        pid: its process.
        host: the address as it was given on the command line.
        port: 0 while the server is starting.
        version: the vendor's.
        began: in seconds since 1970; 0 where it does not say.
    """

    id: str
    pid: int
    host: str
    port: int
    version: str
    began: float = 0

    @property
    def name(self) -> str:
        """For people."""
        return tame(f"pid {self.pid} at {self.host}:{self.port}")

    def contact(self) -> str | None:
        """The host to ask, as a URL has it; None where it is not this machine alone."""
        if self.host in _WILDCARDS:
            return "127.0.0.1"
        if self.host == "localhost":
            return self.host
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return None
        if not address.is_loopback:
            return None
        return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004

    def base_url(self) -> str | None:
        """Where its REST calls are; None where it cannot be asked: no port yet, or not here."""
        contact = self.contact()
        return f"http://{contact}:{self.port}/api/v1" if contact and self.port else None


@frozen
class Found:
    """The files of a home, each in the order of their names.

    Attributes:
        servers: those whose process lives.
        gone: those whose process does not.
        odd: files that do not say what a server's file must.
    """

    servers: tuple[Instance, ...] = ()
    gone: tuple[Instance, ...] = ()
    odd: tuple[Path, ...] = ()


def find(home: Path) -> Found:
    """Look which servers there are.

    Raises:
        OSError: the directory is there and cannot be read.
    """
    folder = home / INSTANCES
    try:
        # Not `Path.glob`, to which a directory that cannot be read is an empty one.
        names = os.listdir(folder)  # noqa: PTH208 - as above
    except (FileNotFoundError, NotADirectoryError):
        names = []
    files = sorted(folder / name for name in names if name.endswith(".json"))
    read = [(file, read_instance(file)) for file in files]
    said = [instance for _, instance in read if instance]
    living = {instance.pid for instance in said if lives(instance.pid)}
    return Found(
        servers=tuple(one for one in said if one.pid in living),
        gone=tuple(one for one in said if one.pid not in living),
        # What vanished in between is a server that ended well.
        odd=tuple(file for file, instance in read if instance is None and file.exists()),
    )


def read_instance(file: Path) -> Instance | None:
    """What a server's file says; None where it does not say what it must."""
    try:
        value = parse(_head(file, _FILE_BYTES)[0])
    except (OSError, MalformedJSONError):
        return None
    if not isinstance(value, dict):
        return None
    pid, host, port = value.get("pid"), value.get("host"), value.get("port")
    if not (isinstance(pid, int) and isinstance(host, str) and isinstance(port, int)):
        return None
    if pid <= 0 or not 0 <= port <= _PORTS:
        return None
    began = value.get("started_at")
    seconds = began / 1000 if isinstance(began, int | float) else 0
    return Instance(file.stem, pid, host, port, str(value.get("host_version")), seconds)


@frozen
class Token:
    """The bearer of a home's servers.

    Attributes:
        value: what stands in the header; in no `repr`.
        mode: the file's permissions.
    """

    value: str = field(repr=False)
    mode: int

    @property
    def is_private(self) -> bool:
        """Whether its owner alone can read it, as the vendor writes it (0600)."""
        return not self.mode & 0o077


def read_token(home: Path) -> Token:
    """The token as it is now.

    Raises:
        NoTokenError: there is none that could stand in a header.
    """
    file = home / TOKEN
    try:
        content, mode = _head(file, _TOKEN_BYTES + 1)
        value = content.decode("ascii").strip()
    except OSError as error:
        raise NoTokenError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NoTokenError(f"{file} is no token: it is not plain ASCII") from None
    if not value or len(content) > _TOKEN_BYTES or not all("!" <= one <= "~" for one in value):
        raise NoTokenError(f"{file} has no token: it must be one line without blanks")
    return Token(value, mode)


def _head(file: Path, most: int) -> tuple[bytes, int]:
    """The beginning of a regular file and its mode; nothing of anything else, which could hang us.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        content = os.read(descriptor, most) if stat.S_ISREG(status.st_mode) else b""
        return content, stat.S_IMODE(status.st_mode)
    finally:
        os.close(descriptor)
