"""Beginnings and ends: each run, call, ask, command and session ends at most once.

The table `_ENDS` is the rule: what each event ends, and how the thing that it ends is named. Ends
are for good, over all epochs, but for tool calls: a request under an id that has ended is a new
call, because models use ids again. An end without a beginning is legal (a log may start late, and
hooks get lost), and so is anything that comes late, except a second end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate.finding import Fault, shown
from kimiaepd.validate.reading import Stream, as_object, data_of, stream_of


def _run(event: JSONObject) -> JSON:
    return event.get("run")


def _session(event: JSONObject) -> JSON:
    return event.get("session")


def _call(event: JSONObject) -> JSON:
    return as_object(data_of(event).get("tool")).get("call_id")


def _ask(event: JSONObject) -> JSON:
    return event.get("subject")


def _command(event: JSONObject) -> JSON:
    return event.get("cause")


@frozen
class _End:
    """That an event ends something.

    Attributes:
        what: the end and the kind of thing that it ends, "terminal of run".
        rule: the section that allows one end only.
        name: reads the ended thing's name from the event; None where it has none.
    """

    what: str
    rule: str
    name: Callable[[JSONObject], JSON]


_RUN_ENDS = _End("terminal of run", "AEP-0002 §2 convention 5", _run)
_CALL_ENDS = _End("terminal of tool call", "AEP-0002 §2 convention 5", _call)
_SESSION_ENDS = _End("end of session", "AEP-0002 §2 convention 5", _session)
_ASK_ENDS = _End("terminal of attention request", "AEP-0002 §7.2", _ask)
_ASK_ANSWERED = _End("answer to attention request", "AEP-0002 §7.1", _ask)
_COMMAND_ACKED = _End("acknowledgement of command", "AEP-0004 §3", _command)

_ENDS = {
    "run.finished": _RUN_ENDS,
    "run.failed": _RUN_ENDS,
    "run.cancelled": _RUN_ENDS,
    "tool.completed": _CALL_ENDS,
    "tool.failed": _CALL_ENDS,
    "tool.denied": _CALL_ENDS,
    "session.ended": _SESSION_ENDS,
    "attention.answered": _ASK_ANSWERED,
    "attention.resolved": _ASK_ENDS,
    "attention.timeout": _ASK_ENDS,
    "control.accepted": _COMMAND_ACKED,
    "control.rejected": _COMMAND_ACKED,
}

_LINKS = {
    "attention.routed": ("subject", "AEP-0002 §7.1"),
    "attention.answered": ("subject", "AEP-0002 §7.1"),
    "attention.resolved": ("subject", "AEP-0002 §7.1"),
    "attention.timeout": ("subject", "AEP-0002 §7.1"),
    "control.attention.respond": ("subject", "AEP-0004 §5"),
    "control.accepted": ("cause", "AEP-0004 §3"),
    "control.rejected": ("cause", "AEP-0004 §3"),
}
"""The attribute without which an event of this type does not say what it is about."""

_Ended: TypeAlias = tuple[Stream, str, str]
"""A thing that has ended: whose, what, and its name."""


class Lifecycles:
    """What has begun and ended; one for each log.

    It keeps a name for each call that was requested, each ask that is open, and each run, call,
    ask, command and session that has ended: some 250 bytes for each.
    """

    def __init__(self) -> None:
        self._ended: set[_Ended] = set()
        self._requested: set[tuple[Stream, str]] = set()
        self._pending: dict[Stream, dict[str, None]] = {}

    def check(self, event: JSONObject) -> list[Fault]:
        """Note what an event begins or ends, and say what it may not end."""
        name = str(event["type"])
        stream = stream_of(event)
        if stream is None:
            return []
        if name == "tool.requested":
            self._request(stream, _call(event))
        elif name == "attention.requested":
            self._pending.setdefault(stream, {})[str(event["id"])] = None
        return [
            *_link_faults(event),
            *self._end_faults(stream, event),
            *self._pending_faults(stream, event),
        ]

    def _request(self, stream: Stream, call: JSON) -> None:
        if isinstance(call, str):
            self._requested.add((stream, call))
            self._ended.discard((stream, _CALL_ENDS.what, call))

    def _end_faults(self, stream: Stream, event: JSONObject) -> list[Fault]:
        end = _ENDS.get(str(event["type"]))
        name = None if end is None else end.name(event)
        if end is None or not isinstance(name, str):
            return []
        if end is _CALL_ENDS and (stream, name) not in self._requested:
            return []
        ended = (stream, end.what, name)
        if ended in self._ended:
            return [Fault(end.rule, f"{event['type']} is a second {end.what} {shown(name)}")]
        self._ended.add(ended)
        return []

    def _pending_faults(self, stream: Stream, event: JSONObject) -> list[Fault]:
        """Which asks are open as their session ends (AEP-0002 section 7, rule 2)."""
        pending = self._pending.get(stream, {})
        if event["type"] in {"attention.resolved", "attention.timeout"}:
            pending.pop(str(event.get("subject")), None)
        if event["type"] != "session.ended" or not pending:
            return []
        del self._pending[stream]
        return [
            Fault("AEP-0002 §7.2", f"the session ends while attention request {shown(ask)} is open")
            for ask in pending
        ]


def _link_faults(event: JSONObject) -> list[Fault]:
    attribute, rule = _LINKS.get(str(event["type"]), ("", ""))
    if not attribute or attribute in event:
        return []
    return [Fault(rule, f"{attribute}: must be given")]
