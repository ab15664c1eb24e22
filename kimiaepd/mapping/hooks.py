"""Hook payload to Draft: the mapping of the Kimi Code CLI's hooks, as a table.

The table reads as the documentation: a row says the event type, what becomes its subject, and the
data with the level of each member: `m` metadata, `r` redacted, `f` full. It is the standard's
pinned mapping for this vendor, plus the four events that the vendor added in 0.42.0; where the
vendor's real payloads differ from the pins (an `error` without a name, a `display` that is an
object), a row serves both.

Rules:
- Unknown events and events without what their row needs become the mechanical fallback
  `x.kimi-code.session.{snake_case}` (AEP-0001 section 6): degraded, never dropped.
- Digests are of the original value, before any redaction.
- Nothing of a session's state is here: whether a Stop ends a run is for `lifecycle` to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from kimiaepd.mapping.digest import digest
from kimiaepd.mapping.event import AGENT, SEVERITIES, Capture, Draft, Field, Severity
from kimiaepd.mapping.json_value import JSON
from kimiaepd.mapping.payloads import Absent, HookPayload

Read: TypeAlias = Callable[[HookPayload], JSON | Absent]


@frozen
class Member:
    """One member of a row's data: where it goes, its level, and what it is read from.

    `below` reads the stand-in at metadata, for what the standard wants synthesised there.
    """

    path: tuple[str, ...]
    level: Capture
    read: Read
    below: Callable[[HookPayload], str] | None = None


@frozen
class Row:
    """What one hook becomes."""

    type: str
    data: tuple[Member, ...] = ()
    subject: Callable[[HookPayload], str | None] = lambda _: None
    severity: Callable[[HookPayload], Severity | None] = lambda _: None
    needs: Callable[[HookPayload], object] = lambda _: True


def m(*path: str, read: Read) -> Member:
    """A member that rides at metadata."""
    return Member(path, Capture.METADATA, read)


def r(*path: str, read: Read) -> Member:
    """A member that rides at redacted, through the pipeline."""
    return Member(path, Capture.REDACTED, read)


def f(*path: str, read: Read) -> Member:
    """A member that rides at full, as it is."""
    return Member(path, Capture.FULL, read)


def _always(word: Severity) -> Callable[[HookPayload], Severity | None]:
    return lambda _: word


def _tool_name(payload: HookPayload) -> str | None:
    return payload.tool_name


def _agent_name(payload: HookPayload) -> str | None:
    return payload.agent_name


def _object(value: JSON | Absent) -> JSON:
    return value if isinstance(value, dict) else None


def _object_or_text(value: JSON | Absent) -> JSON:
    return value if isinstance(value, dict | str) else None


def _digest(value: JSON | Absent) -> JSON:
    return None if isinstance(value, Absent) else digest(value)


def _severity_word(payload: HookPayload) -> Severity | None:
    return next((word for word in SEVERITIES if word == payload.severity), None)


def _ask_prompt(payload: HookPayload) -> str:
    """What the vendor asks its user: `display` where it is text, else the action and command."""
    display = payload.display
    if isinstance(display, str) and display:
        return display
    command = display.get("command") if isinstance(display, dict) else None
    action = payload.action or ""
    if isinstance(command, str) and command not in action:
        return f"{action}: {command}" if action else command
    return action or synthesised_prompt(payload)


def synthesised_prompt(payload: HookPayload) -> str:
    """An ask's prompt from structure alone: agent, kind, subject (AEP-0003 section 9.2)."""
    return f"{AGENT} requests permission: {payload.tool_name}"


def _ask_context(payload: HookPayload) -> JSON:
    parts = {"tool_input": payload.tool_input, "display": payload.display}
    return {key: part for key, part in parts.items() if not isinstance(part, Absent)} or None


_TOOL = (
    m("tool", "name", read=lambda p: p.tool_name),
    m("tool", "call_id", read=lambda p: p.tool_call_id),
)

HOOKS: dict[str, Row] = {
    "SessionStart": Row(
        "session.started",
        (
            m("trigger", read=lambda p: p.source),
            m("gen_ai.request.model", read=lambda p: p.model),
            m("client", "name", read=lambda p: p.client_type),
        ),
    ),
    "SessionEnd": Row(
        "session.ended",
        (
            m("reason", read=lambda _: "normal"),
            m("detail", read=lambda p: None if p.reason == "exit" else p.reason),
        ),
    ),
    "UserPromptSubmit": Row(
        "run.started",
        (m("trigger", read=lambda _: "user"), r("prompt", read=lambda p: p.prompt)),
    ),
    "Stop": Row("run.finished"),
    "StopFailure": Row(
        "run.failed",
        (
            m("reason", read=lambda p: p.error_type or "error"),
            m("error", "type", read=lambda p: p.error_type or "error"),
            r("error", "message", read=lambda p: p.error_message),
        ),
        severity=_always("error"),
    ),
    "Interrupt": Row(
        "run.cancelled", (m("by", read=lambda _: "user"),), severity=_always("notice")
    ),
    "PreToolUse": Row(
        "tool.requested",
        (
            *_TOOL,
            m("args_digest", read=lambda p: _digest(p.tool_input)),
            r("args_redacted", read=lambda p: _object(p.tool_input)),
            f("args", read=lambda p: _object(p.tool_input)),
        ),
        subject=_tool_name,
        needs=_tool_name,
    ),
    "PostToolUse": Row(
        "tool.completed",
        (
            *_TOOL,
            m("result_digest", read=lambda p: _digest(p.tool_output)),
            r("result_redacted", read=lambda p: _object_or_text(p.tool_output)),
            f("result", read=lambda p: _object_or_text(p.tool_output)),
        ),
        subject=_tool_name,
        needs=_tool_name,
    ),
    "PostToolUseFailure": Row(
        "tool.failed",
        (
            *_TOOL,
            m("error", read=lambda _: {}),
            m("error", "type", read=lambda p: p.error.kind),
            r("error", "message", read=lambda p: p.error.message),
        ),
        subject=_tool_name,
        severity=_always("warning"),
        needs=_tool_name,
    ),
    "PermissionRequest": Row(
        "attention.requested",
        (
            m("kind", read=lambda _: "permission"),
            Member(("prompt",), Capture.REDACTED, _ask_prompt, below=synthesised_prompt),
            m("respond_via", read=lambda _: ["oob"]),
            f("context", read=_ask_context),
        ),
        subject=_tool_name,
        severity=_always("notice"),
        needs=_tool_name,
    ),
    "SubagentStart": Row(
        "delegation.subagent.started",
        (r("prompt", read=lambda p: p.prompt),),
        subject=_agent_name,
    ),
    "SubagentStop": Row(
        "delegation.subagent.stopped",
        (r("response", read=lambda p: p.response),),
        subject=_agent_name,
    ),
    "PostCompact": Row(
        "session.compacted",
        (
            m("trigger", read=lambda p: p.trigger),
            m("estimated_token_count", read=lambda p: p.estimated_token_count),
        ),
    ),
    "Notification": Row(
        "progress.status",
        (m("severity", read=lambda p: p.severity), r("message", read=lambda p: p.title)),
        subject=lambda p: p.notification_type,
        severity=_severity_word,
    ),
}

_ANSWERED = Row(
    "attention.answered",
    (
        m("answer", "option", read=lambda p: p.decision),
        r("answer", "text", read=lambda p: p.feedback),
        m("via", read=lambda _: "oob"),
        m("label", read=lambda p: p.selected_label),
    ),
)

DECISIONS: dict[str, Row] = {
    "approved": _ANSWERED,
    "rejected": _ANSWERED,
    "cancelled": Row("attention.resolved", (m("resolution", read=lambda _: "dismissed"),)),
}
"""PermissionResult, by its decision; any other decision is no answer, and falls back."""

STEERED = Row("x.kimi-code.run.steer_submitted")
"""A prompt that rides the running turn: it opens no run."""

FACTS: dict[str, tuple[Member, ...]] = {
    "PreCompact": (
        m("trigger", read=lambda p: p.trigger),
        m("token_count", read=lambda p: p.token_count),
    ),
    "UserPromptQueued": (m("queue_length", read=lambda p: p.queue_length),),
    "TurnStarted": (
        m("turn_id", read=lambda p: p.turn_id),
        m("origin_kind", read=lambda p: p.origin_kind),
        m("origin_name", read=lambda p: p.origin_name),
    ),
    "TaskStarted": (
        m("task_id", read=lambda p: p.task_id),
        m("kind", read=lambda p: p.kind),
        m("status", read=lambda p: p.status),
        m("detached", read=lambda p: p.detached),
    ),
    "SessionHeartbeat": (m("uptime_ms", read=lambda p: p.uptime_ms),),
}
"""Structural facts that the fallback of these events carries."""

WAITING_FACTS: dict[str, tuple[Member, ...]] = {
    "PostToolUseFailure": (*_TOOL, m("error", "type", read=lambda p: p.error.kind)),
    "PermissionResult": (*_TOOL, m("decision", read=lambda p: p.decision)),
}
"""What the fallback of an event says that is logged first and decided later."""


def map_hook(payload: HookPayload) -> Draft:
    """The draft of one hook, by the tables above. Never raises."""
    row = HOOKS.get(payload.event)
    if payload.event == "PermissionResult":
        row = DECISIONS.get(payload.decision or "")
    elif payload.event == "UserPromptSubmit" and payload.is_steer:
        row = STEERED
    if row is None or not row.needs(payload):
        return fallback(payload)
    return fill(row, payload)


def fill(row: Row, payload: HookPayload) -> Draft:
    """The draft that a row makes of a payload."""
    return Draft(row.type, row.subject(payload), _fields(row.data, payload), row.severity(payload))


def fallback(payload: HookPayload) -> Draft:
    """The draft of a hook that has no type of its own, or that must not use it."""
    return Draft(fallback_type(payload.event), None, _fields(FACTS.get(payload.event, ()), payload))


def seen(payload: HookPayload) -> Draft:
    """The draft of a hook whose story the stream of `kimi web` tells."""
    return Draft(f"x.{AGENT}.hook.{_snake(payload.event)}")


def waiting(payload: HookPayload) -> Draft:
    """The draft under which a hook is logged whose meaning is decided later."""
    facts = WAITING_FACTS.get(payload.event, ())
    return Draft(fallback_type(payload.event), None, _fields(facts, payload))


def _fields(members: tuple[Member, ...], payload: HookPayload) -> tuple[Field, ...]:
    fields = []
    for member in members:
        value = member.read(payload)
        if value is not None and not isinstance(value, Absent):
            below = member.below(payload) if member.below else None
            fields.append(Field(member.path, member.level, value, below))
    return tuple(fields)


_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_IN_A_TYPE = re.compile(r"[^a-z0-9_]")
_LONGEST_NAME = 64


def fallback_type(event: str) -> str:
    """`x.kimi-code.session.{snake_case}` for any event name at all."""
    return f"x.{AGENT}.session.{_snake(event)}"


def _snake(event: str) -> str:
    snake = _WORD_STARTS.sub("_", event[:_LONGEST_NAME]).lower()
    name = _NOT_IN_A_TYPE.sub("_", snake)[:_LONGEST_NAME]
    return name if name.strip("_") else "unknown"
