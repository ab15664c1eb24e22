"""The vendor's hook payloads as a type: lenient in, exact out.

One class for all twenty events, because the vendor's fields mean the same wherever they occur.
What each event carries is observed on 0.28.0, 0.42.0 and 2.1.0:

    always              hook_event_name, session_id, cwd
    from 0.42.0         client_type, session_title
    SessionStart        source, model, profile
    SessionEnd          reason
    UserPromptSubmit    prompt (content parts), is_steer
    PreToolUse          tool_name, tool_input, tool_call_id
    PostToolUse         + tool_output
    PostToolUseFailure  + error {code, message, retryable}; the standard's pin has error.name
    PermissionRequest   tool_name, tool_call_id, action, tool_input, display, turn_id; id, agent_id
    PermissionResult    as the request, + decision, scope, feedback, selected_label
    Stop                stop_hook_active
    StopFailure         error_type, error_message
    Interrupt           turn_id, reason
    SubagentStart/Stop  agent_name, prompt / response
    Pre/PostCompact     trigger, token_count / estimated_token_count
    Notification        notification_type, title, body, severity, source_kind, source_id, sink
    UserPromptQueued    prompt_id, prompt, queue_length
    TurnStarted         turn_id, origin_kind, origin_name, prompt
    TaskStarted         task_id, kind, description, status, detached, started_at
    SessionHeartbeat    uptime_ms

Rules: any field may be missing, of another type or huge. A field of the wrong type counts as
missing; nothing here raises but `NotAnObjectError`. `session_title` and everything else that may
never ride is not even read; but `cwd`, which the gate's rules on paths need, and no event has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import cattrs
from attrs import frozen
from cattrs.gen import make_dict_structure_fn

from kimiaepd.mapping.digest import digest
from kimiaepd.mapping.json_value import JSON, without_surrogates

UNKNOWN_SESSION: Final = "unknown"
"""The session of a hook that names none (the pinned mapping's `identity`)."""

LONGEST_SESSION: Final = 1024
"""Characters of a session's id; a longer one is cut, and told apart by a digest."""


class NotAnObjectError(ValueError):
    """The payload is JSON, but no object, so it has no event name and no session."""


class Absent:
    """The type of `ABSENT`: a member that was not there at all, where null is a value."""


ABSENT: Final = Absent()


@frozen(kw_only=True)
class ToolError:
    """`error` of PostToolUseFailure. The vendor sends a code, the standard's pin has a name."""

    name: str | None = None
    code: str | None = None
    message: str | None = None

    @property
    def kind(self) -> str | None:
        """What `error.type` becomes."""
        return self.name or self.code


@frozen(kw_only=True)
class HookPayload:
    """One hook's standard input, read leniently."""

    event: str = ""
    session: str = UNKNOWN_SESSION
    cwd: str | None = None

    source: str | None = None
    model: str | None = None
    client_type: str | None = None
    reason: str | None = None
    prompt: str | None = None
    is_steer: bool | None = None

    tool_name: str | None = None
    tool_input: JSON | Absent = ABSENT
    tool_call_id: str | None = None
    tool_output: JSON | Absent = ABSENT
    error: ToolError = ToolError()

    id: str | None = None
    agent_id: str | None = None
    action: str | None = None
    display: JSON | Absent = ABSENT
    decision: str | None = None
    feedback: str | None = None
    selected_label: str | None = None

    error_type: str | None = None
    error_message: str | None = None

    agent_name: str | None = None
    response: str | None = None

    trigger: str | None = None
    token_count: int | None = None
    estimated_token_count: int | None = None

    notification_type: str | None = None
    title: str | None = None
    severity: str | None = None

    queue_length: int | None = None
    turn_id: int | None = None
    origin_kind: str | None = None
    origin_name: str | None = None
    task_id: str | None = None
    kind: str | None = None
    status: str | None = None
    detached: bool | None = None
    uptime_ms: int | None = None


def read_payload(value: JSON) -> HookPayload:
    """Type one parsed payload.

    Raises:
        NotAnObjectError: the value is no JSON object.
    """
    if not isinstance(value, dict):
        raise NotAnObjectError
    payload: HookPayload = _CONVERTER.structure(value, HookPayload)
    return payload


# --- lenient readers: the wrong type is the same as nothing ----------------------------------


def _word(value: object, _: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object, _: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _flag(value: object, _: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _same(value: object, _: object) -> object:
    return value


def _event(value: object, _: object) -> str:
    return value if isinstance(value, str) else ""


def _session(value: object, _: object) -> str:
    """A session's id as every event of it carries it; one that is absurdly long is cut."""
    if not isinstance(value, str) or not value:
        return UNKNOWN_SESSION
    if len(value) > LONGEST_SESSION:
        value = f"{value[: LONGEST_SESSION - 33]}~{digest(value)}"
    return without_surrogates(value)


def _prompt(value: object, _: object) -> str | None:
    """The text parts of a prompt joined by newlines; other parts (images) are not text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    parts = (part for part in value if isinstance(part, dict) and part.get("type") == "text")
    return "\n".join(text for part in parts if isinstance(text := part.get("text"), str))


def _error(value: object, _: object) -> ToolError:
    if not isinstance(value, dict):
        return ToolError(message=_word(value, None))
    return ToolError(
        name=_word(value.get("name"), None),
        code=_word(value.get("code"), None),
        message=_word(value.get("message"), None),
    )


def _is(kind: object) -> Callable[[object], bool]:
    return lambda other: other == kind


_CONVERTER = cattrs.Converter(detailed_validation=False)
for _kind, _reader in (
    (str | None, _word),
    (int | None, _count),
    (bool | None, _flag),
    (ToolError, _error),
):
    _CONVERTER.register_structure_hook_func(_is(_kind), _reader)


_CONVERTER.register_structure_hook(
    HookPayload,
    make_dict_structure_fn(
        HookPayload,
        _CONVERTER,
        _cattrs_detailed_validation=False,
        event=cattrs.override(rename="hook_event_name", struct_hook=_event),
        session=cattrs.override(rename="session_id", struct_hook=_session),
        prompt=cattrs.override(struct_hook=_prompt),
        tool_input=cattrs.override(struct_hook=_same),
        tool_output=cattrs.override(struct_hook=_same),
        display=cattrs.override(struct_hook=_same),
    ),
)
