"""What the running daemon says of its bridge to `kimi web`: servers, sessions, mode, gaps, errors.

Only its status is read. Whether a server answers at all is `web.py`'s to ask.
"""

from __future__ import annotations

from collections.abc import Iterator

from kimiaepd.doctor.check import Check, ok, warning
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSON, JSONObject

BRIDGE = "web bridge"

_STDERR = "report the traceback in what it wrote to stderr"


def examine(status: JSONObject | None) -> tuple[Check, ...]:
    """One check a server, and one for the home where that cannot be looked at.

    Args:
        status: what the daemon answered; any member of it may be missing or of another type. None
            where none did.
    """
    if status is None or "web" not in status:
        return ()
    bridge = status["web"]
    if not isinstance(bridge, dict):
        return (ok(BRIDGE, 'switched off (web.mode = "off")'),)
    servers = bridge.get("servers")
    listed = servers if isinstance(servers, list) else []
    checks = [*_home(bridge)]
    for server in listed:
        if isinstance(server, dict):
            checks += _server(server, _text(bridge, "mode"))
    mode, control = _text(bridge, "mode"), bridge.get("control") is True
    said = f"{mode}{', with control' if control else ''}; no server runs"
    return tuple(checks) or (ok(BRIDGE, said),)


def _home(bridge: JSONObject) -> Iterator[Check]:
    if error := bridge.get("last_error"):
        yield warning(BRIDGE, f"servers cannot be looked for: {tame(str(error))}", "mend it")


def _server(server: JSONObject, mode: str) -> Iterator[Check]:
    name = f"pid {_text(server, 'pid')} at {_text(server, 'url')}"
    if server.get("link") == "connected":
        yield ok(BRIDGE, f"{name} is watched ({mode}): {_text(server, 'sessions')} sessions")
    else:
        error = tame(str(server.get("last_error") or "it does not answer yet"))
        yield warning(BRIDGE, f"{name} is not watched: {error}", "if it stays so, start it again")
    for key, said, remedy in (
        ("gaps", "times that frames were missed", "the x.kimi-code.web.gap events say how many"),
        ("odd", "messages that could not be understood", "report it, with kimi's version"),
        ("crashes", "times that watching failed by a defect of kimiaepd", _STDERR),
    ):
        if count := server.get(key):
            yield warning(BRIDGE, f"{name}: {said}: {tame(str(count))} since it started", remedy)


def _text(table: JSONObject, key: str) -> str:
    found: JSON = table.get(key)
    return tame(str(found))
