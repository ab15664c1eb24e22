"""Logs made by tests of the checker, event by event."""

from __future__ import annotations

import json

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate import Finding, LogChecker

SOURCE = "aep://host/agent/kimi-code/session/s1"


class Log:
    """A log in the making: gives each event the id, the position and the rest that it needs."""

    def __init__(self) -> None:
        self.events: list[JSONObject] = []

    def add(self, name: str, data: JSONObject | None = None, /, **attributes: JSON) -> Log:
        """Append an event; an attribute of "(absent)" is left out."""
        event: JSONObject = {
            "aep": "0.1",
            "id": f"E{len(self.events)}",
            "type": name,
            "time": "2026-07-03T10:00:00.000Z",
            "source": SOURCE,
            "agent": "kimi-code",
            "session": "s1",
            "seq": len(self.events),
        }
        event |= attributes
        if data is not None:
            event["data"] = data
        self.events.append({key: value for key, value in event.items() if value != "(absent)"})
        return self

    def lines(self) -> list[bytes]:
        """The log as it would be written."""
        return [json.dumps(event).encode() + b"\n" for event in self.events]

    def findings(self) -> list[Finding]:
        """What is wrong with the log."""
        return list(LogChecker().check_lines(self.lines()))


def tool(call: str) -> JSONObject:
    """The payload of a tool event, as far as all four have it."""
    return {"tool": {"name": "Bash", "call_id": call}}


def ask(**data: JSON) -> JSONObject:
    """The payload of an ask about Bash, at capture metadata."""
    return {"kind": "permission", "prompt": "kimi-code requests permission: Bash"} | data


def session() -> Log:
    """One of everything that a session of ours holds."""
    return (
        Log()
        .add("session.started", {"trigger": "startup", "client": {"name": "terminal"}})
        .add("run.started", {"trigger": "user"}, run="r1")
        .add("tool.requested", tool("c1") | {"args_digest": "00"}, run="r1", subject="Bash")
        .add("attention.requested", ask(), subject="Bash", severity="notice", cause="E2")
        .add("attention.answered", {"answer": {"option": "approved"}, "via": "oob"}, subject="E3")
        .add("attention.resolved", {"resolution": "answered", "latency_ms": 4}, subject="E3")
        .add("tool.completed", tool("c1"), run="r1", subject="Bash", cause="E2")
        .add("x.kimi-code.session.turn_started", {"turn_id": "t1"})
        .add("run.finished", {"duration_ms": 12}, run="r1", cause="E1")
        .add("agent.presence", {"state": "offline"}, session="(absent)", seq="(absent)")
        .add("run.started", run="r2", epoch=1, seq=0)
        .add("run.cancelled", {"by": "user"}, run="r2", epoch=1, seq=1, severity="notice")
        .add("session.ended", {"reason": "normal"}, epoch=1, seq=9)
        .add("tool.failed", tool("c9") | {"error": {}}, epoch=1, seq=10)
    )
