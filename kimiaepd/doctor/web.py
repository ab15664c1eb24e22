"""The `kimi web` servers of this home: which there are, and whether they take the home's token.

Rules:
- A server says where it is in a file, and leaves the file behind when it is killed: what is there
  is believed only of a process that lives.
- Two calls are made, `healthz` and `meta`, and no other: listing sessions can wake them, and fires
  the user's own hooks.
- The token goes to this machine alone, and only to what has just answered as such a server does.
- A server reads its hooks once (observed at 0.28.0 and 2.1.0), so one that is older than its
  config.toml may run others; the vendor's own save touches that file too: so it is a warning alone.

Not running is nothing bad: most people never start one.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

import trio
from attrs import frozen

from kimiaepd.doctor.check import Check, Patient, ok, warning
from kimiaepd.http_call import UnreachableError, get
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSONObject, MalformedJSONError, parse
from kimiaepd.setup.install import CONFIG_NAME
from kimiaepd.storage.file_safety import lives

WEB = "kimi web"

ANSWER_SECONDS = 2.0

MOST = 16
"""Servers that are asked; nobody has so many."""

_FILE_BYTES = 64 << 10
_TOKEN_BYTES = 4096
_PORTS = 65535
_UNAUTHORIZED = 401
_WILDCARDS = ("", "0.0.0.0", "::", "*")  # noqa: S104 - what others bind to


@frozen
class _Server:
    """What a server's file says; `began` in seconds since 1970, 0 where it does not say."""

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


async def examine(patient: Patient) -> tuple[Check, ...]:
    """Look which servers there are, and ask each that lives."""
    home = patient.settings.paths.kimi_home
    try:
        files = sorted((home / "server/instances").glob("*.json"))
    except OSError as error:
        return (_warned(f"{home}/server/instances cannot be read: {error.strerror}", "mend it"),)
    found = [_read(file) for file in files]
    servers = [server for server in found if server and lives(server.pid)]
    checks = [*await _all(servers[:MOST], home), *_outdated(servers, home / CONFIG_NAME)]
    if servers:
        checks += _closed(home / "server.token")
    if left := sum(1 for server in found if server and not lives(server.pid)):
        checks.append(ok(WEB, f"files of servers that are gone: {left}; the next one removes them"))
    if odd := [file for file, server in zip(files, found, strict=True) if server is None]:
        said = f"{tame(str(odd[0]))} does not say where a server is"
        checks.append(_warned(said, "remove it, or report it: kimi may have changed its format"))
    return tuple(checks) or (ok(WEB, "none running"),)


def _outdated(servers: Sequence[_Server], config: Path) -> list[Check]:
    """A warning for each server that may run other hooks than the file has now."""
    try:
        changed = config.stat().st_mtime
    except OSError:
        return []
    return [
        _warned(
            f"{server.name} began before {config} was last changed, and keeps the hooks of then",
            "start kimi web again, if it was the hooks that changed",
        )
        for server in servers
        if 0 < server.began < changed
    ]


async def _all(servers: Sequence[_Server], home: Path) -> list[Check]:
    """One check a server, in their order; they are asked at once."""
    checks: dict[int, Check] = {}

    async def ask(number: int, server: _Server) -> None:
        checks[number] = await _ask(server, home)

    async with trio.open_nursery() as nursery:
        for number, server in enumerate(servers):
            nursery.start_soon(ask, number, server)
    return [checks[number] for number in sorted(checks)]


async def _ask(server: _Server, home: Path) -> Check:
    if not server.port:
        return ok(WEB, f"pid {server.pid} is starting: it has no port yet")
    contact = server.contact()
    if contact is None:
        return ok(WEB, f"{server.name} is not asked: its address is not this machine's own")
    base = f"http://{contact}:{server.port}/api/v1"
    try:
        health = await get(f"{base}/healthz", seconds=ANSWER_SECONDS)
    except UnreachableError as error:
        return _warned(
            f"{server.name} does not answer: {error}",
            "if it is not just starting or stopping, start kimi web again",
        )
    if (health.json() or {}).get("code") != 0:
        return _warned(
            f"what listens where {server.name} should be is not kimi web (HTTP {health.status})",
            "start kimi web again",
        )
    return await _authorised(server, base, home / "server.token")


async def _authorised(server: _Server, base: str, file: Path) -> Check:
    token = _token(file)
    if token is None:
        said = f"{server.name} answers, version {tame(server.version)}; {file} has no token for it"
        return _warned(said, "start kimi web again, or run: kimi web rotate-token")
    try:
        headers = {"Authorization": f"Bearer {token}"}
        meta = await get(f"{base}/meta", headers=headers, seconds=ANSWER_SECONDS)
    except UnreachableError as error:
        return _warned(f"{server.name} answers healthz, but not meta: {error}", "try again")
    if meta.status == _UNAUTHORIZED:
        return _warned(
            f"{server.name} refuses the token in {file}",
            "it may be another home's server: start kimi web again",
        )
    data = (meta.json() or {}).get("data")
    if not isinstance(data, dict):
        return _warned(f"{server.name} gives no meta data (HTTP {meta.status})", "try again")
    return _described(server, data)


def _described(server: _Server, data: JSONObject) -> Check:
    said = f"{server.name} answers and takes the token, version {data.get('server_version')}"
    if data.get("dangerous_bypass_auth") is True:
        return _warned(
            tame(f"{said}; it takes everybody else too: it runs with --dangerous-bypass-auth"),
            "start it without",
        )
    return ok(WEB, tame(said))


# --- files ---------------------------------------------------------------------------------------


def _read(file: Path) -> _Server | None:
    """What a server's file says; None where it does not say what it must."""
    try:
        value = parse(_head(file, _FILE_BYTES))
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
    return _Server(pid, host, port, str(value.get("host_version")), seconds)


def _token(file: Path) -> str | None:
    """The home's token; None where there is none that could stand in a header."""
    try:
        token = _head(file, _TOKEN_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return token if token and all("!" <= letter <= "~" for letter in token) else None


def _head(file: Path, most: int) -> bytes:
    """The beginning of a regular file; nothing of anything else, which could hang us.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, most) if is_file else b""
    finally:
        os.close(descriptor)


def _closed(token: Path) -> list[Check]:
    """A warning where others can read the token."""
    try:
        mode = stat.S_IMODE(token.stat().st_mode)
    except OSError:
        return []
    if not mode & 0o077:
        return []
    said = f"{token} can be read by others (mode {mode:04o}): who has it controls every session"
    remedy = f"run: chmod 600 {shlex.quote(str(token))}; then: kimi web rotate-token"
    return [_warned(said, remedy)]


def _warned(said: str, remedy: str) -> Check:
    return warning(WEB, said, remedy)
