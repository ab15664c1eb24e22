"""The `kimi web` servers of this home: which there are, and whether they take the home's token.

Rules:
- Two calls are made, `healthz` and `meta`, and no other: most calls about a session wake it, which
  fires the user's own hooks (`web/answers.py`).
- The token goes to this machine alone, and only to what has just answered as such a server does.
- A server reads its hooks once (observed at 0.28.0 and 2.1.0), so one that is older than its
  config.toml may run others; the vendor's own save touches that file too: so it is a warning alone.

Not running is nothing bad: most people never start one.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import trio

from kimiaepd.doctor.check import Check, Patient, ok, warning
from kimiaepd.http_call import UnreachableError, get
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.setup.install import CONFIG_NAME
from kimiaepd.web.errors import NoTokenError
from kimiaepd.web.home import INSTANCES, TOKEN, Instance, find, read_token

WEB = "kimi web"

ANSWER_SECONDS = 2.0

MOST = 16
"""Servers that are asked; nobody has so many."""

_UNAUTHORIZED = 401


async def examine(patient: Patient) -> tuple[Check, ...]:
    """Look which servers there are, and ask each that lives."""
    home = patient.settings.paths.kimi_home
    try:
        found = find(home)
    except OSError as error:
        return (_warned(f"{home / INSTANCES} cannot be read: {error.strerror}", "mend it"),)
    servers = found.servers
    checks = [*await _all(servers[:MOST], home), *_outdated(servers, home / CONFIG_NAME)]
    if servers:
        checks += _closed(home)
    if left := len(found.gone):
        checks.append(ok(WEB, f"files of servers that are gone: {left}; the next one removes them"))
    if found.odd:
        said = f"{tame(str(found.odd[0]))} does not say where a server is"
        checks.append(_warned(said, "remove it, or report it: kimi may have changed its format"))
    return tuple(checks) or (ok(WEB, "none running"),)


def _outdated(servers: Sequence[Instance], config: Path) -> list[Check]:
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


async def _all(servers: Sequence[Instance], home: Path) -> list[Check]:
    """One check a server, in their order; they are asked at once."""
    checks: dict[int, Check] = {}

    async def ask(number: int, server: Instance) -> None:
        checks[number] = await _ask(server, home)

    async with trio.open_nursery() as nursery:
        for number, server in enumerate(servers):
            nursery.start_soon(ask, number, server)
    return [checks[number] for number in sorted(checks)]


async def _ask(server: Instance, home: Path) -> Check:
    if not server.port:
        return ok(WEB, f"pid {server.pid} is starting: it has no port yet")
    base = server.base_url()
    if base is None:
        return ok(WEB, f"{server.name} is not asked: its address is not this machine's own")
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
    return await _authorised(server, base, home)


async def _authorised(server: Instance, base: str, home: Path) -> Check:
    file = home / TOKEN
    try:
        headers = {"Authorization": f"Bearer {read_token(home).value}"}
    except NoTokenError:
        said = f"{server.name} answers, version {tame(server.version)}; {file} has no token for it"
        return _warned(said, "start kimi web again, or run: kimi web rotate-token")
    try:
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


def _described(server: Instance, data: JSONObject) -> Check:
    said = f"{server.name} answers and takes the token, version {data.get('server_version')}"
    if data.get("dangerous_bypass_auth") is True:
        return _warned(
            tame(f"{said}; it takes everybody else too: it runs with --dangerous-bypass-auth"),
            "start it without",
        )
    return ok(WEB, tame(said))


def _closed(home: Path) -> list[Check]:
    """A warning where others can read the token."""
    try:
        token = read_token(home)
    except NoTokenError:
        return []  # each server says so
    if token.is_private:
        return []
    file = home / TOKEN
    said = (
        f"{file} can be read by others (mode {token.mode:04o}): who has it controls every session"
    )
    remedy = f"run: chmod 600 {shlex.quote(str(file))}; then: kimi web rotate-token"
    return [_warned(said, remedy)]


def _warned(said: str, remedy: str) -> Check:
    return warning(WEB, said, remedy)
