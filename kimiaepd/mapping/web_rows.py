"""What the frames of `kimi web` become, as a table: the rows of primary, and the names of the rest.

The table reads as the documentation, as that of `hooks.py` does, and is made of the same rows.
Which row a frame takes, and what it needs of earlier frames, is `web.py`'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from attrs import evolve

from kimiaepd.mapping import hooks
from kimiaepd.mapping.event import AGENT
from kimiaepd.mapping.hooks import Row, m, r
from kimiaepd.mapping.payloads import HookPayload

SILENT: Final = frozenset(
    (
        *("server_hello", "ack", "ping", "pong", "resync_required"),
        *("permission.approval.requested", "permission.approval.resolved"),
        *("agent.status.updated", "assistant.delta", "thinking.delta"),
        *("tool.call.delta", "tool.progress"),
    )
)
"""Frames that become nothing: the connection's, echoes, and what is volatile also unmarked."""


def bare(kind: str) -> Callable[[HookPayload], str]:
    """An ask's prompt from structure alone: agent, kind, subject (AEP-0003 section 9.2)."""
    return lambda p: f"{AGENT} requests {kind}: {p.id}"


_TOOL = (
    m("tool", "name", read=lambda p: p.tool_name),
    m("tool", "call_id", read=lambda p: p.tool_call_id),
)
_OF_A_HOOK = {member.path: member for member in hooks.HOOKS["PermissionRequest"].data}

ROWS: dict[str, Row] = {
    "turn.started": Row(
        "run.started",
        (
            m("trigger", read=lambda p: "user" if p.origin_kind == "user" else None),
            r("prompt", read=lambda p: p.prompt),
        ),
    ),
    "turn.ended completed": Row("run.finished"),
    "turn.ended cancelled": Row("run.cancelled", severity=lambda _: "notice"),
    "turn.ended": Row(
        "run.failed",
        (
            m("reason", read=lambda p: p.reason or "error"),
            m("error", "type", read=lambda p: p.error_type),
            r("error", "message", read=lambda p: p.error_message),
        ),
        severity=lambda _: "error",
    ),
    "tool.call.started": hooks.HOOKS["PreToolUse"],
    "tool.result": hooks.HOOKS["PostToolUse"],
    "tool.result error": hooks.HOOKS["PostToolUseFailure"],
    "tool.result refused": Row(
        "tool.denied",
        (*_TOOL, m("by", read=lambda _: "runtime")),
        subject=lambda p: p.tool_name,
        severity=lambda _: "notice",
    ),
    "event.approval.requested": Row(
        "attention.requested",
        (
            _OF_A_HOOK[("kind",)],
            evolve(_OF_A_HOOK[("prompt",)], below=bare("permission")),
            _OF_A_HOOK[("context",)],
        ),
        subject=lambda p: p.id,
        severity=lambda _: "notice",
        needs=lambda p: p.id and p.tool_name,
    ),
    "event.approval.resolved": hooks.DECISIONS["cancelled"],
    "event.approval.resolved approved": hooks.DECISIONS["approved"],
    "event.approval.resolved rejected": hooks.DECISIONS["rejected"],
    "event.question.requested": Row(
        "attention.requested",
        (m("kind", read=lambda _: "form"),),
        subject=lambda p: p.id,
        severity=lambda _: "notice",
    ),
    "event.question.answered": Row("attention.answered", (m("via", read=lambda _: "oob"),)),
    "event.question.dismissed": hooks.DECISIONS["cancelled"],
}
"""What a frame becomes: by its type, or by its type and how it ended where that is known.

The rows of calls and approvals are the hooks' own, so that both channels say the same of them. The
prompt, the fields and the answers of questions are `web_forms.py`'s.
"""

WORK_CHANGED: Final = f"x.{AGENT}.web.event.session.work_changed"
WORK_FACTS: Final = ("busy", "pending_interaction")
"""What the visibility of this frame carries, both of level metadata, in primary alone."""

RESOLVED = Row("attention.resolved", (m("resolution", read=lambda _: "answered"),))
"""What follows an answer."""


_NOT_IN_A_TYPE = re.compile(r"[^a-z0-9_.]")
_LONGEST_NAME = 64


def web_type(frame_type: str) -> str:
    """`x.kimi-code.web.{frame type}` for any frame type at all."""
    name = _NOT_IN_A_TYPE.sub("_", frame_type[:_LONGEST_NAME].lower())[:_LONGEST_NAME]
    parts = [part for part in name.split(".") if part.strip("_")]
    return ".".join((f"x.{AGENT}.web", *(parts or ["unknown"])))
