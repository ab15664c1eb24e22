"""A log, line by line: the checks of this folder in their order.

The order matters in three places. An event whose envelope is refused takes no further part, so
that one fault is not told twice. A redelivery, the same bytes under the same id, is passed over. A
line that was torn in the middle of a write is reported as that, and not as bad JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kimiaepd.mapping.json_value import JSONObject, MalformedJSONError, parse
from kimiaepd.validate.finding import Fault, Finding, shown
from kimiaepd.validate.forms import Forms
from kimiaepd.validate.levels import level_faults
from kimiaepd.validate.lifecycle import Lifecycles
from kimiaepd.validate.order import Identities, Positions, Seen
from kimiaepd.validate.shape import envelope_faults, payload_faults, type_faults

_JSONL = "AEP-0003 §3.1"
_TORN = Fault(_JSONL, "the last line has no newline: a write was cut off here")
_BLANK = Fault(_JSONL, "a blank line")
_TOO_DEEP = Fault("not checked", "nested too deep")


class LogChecker:
    """Checks the lines of a log against the standard, in the order in which they were written.

    What it keeps grows with the log, and holds no payload but the field specs of open forms: about
    120 bytes for each event, and about 250 for each session, run, call, ask and command.

    Attributes:
        events: how many of the lines so far held an event, a faulty one included.
    """

    def __init__(self) -> None:
        self.events = 0
        self._line = 0
        self._identities = Identities()
        self._positions = Positions()
        self._lifecycles = Lifecycles()
        self._forms = Forms()

    def check(self, line: bytes) -> list[Finding]:
        """Check the next line, its newline included; never raises, whatever the bytes are."""
        self._line += 1
        try:
            faults = self._line_faults(line)
        except RecursionError:  # what parses can still be too deep to compare or to walk
            faults = [_TOO_DEEP]
        return [Finding(self._line, fault.rule, fault.message) for fault in faults]

    def check_lines(self, lines: Iterable[bytes]) -> Iterator[Finding]:
        """Check the lines of one file, counted from 1.

        A log may be more than one file: what earlier ones held is remembered.
        """
        self._line = 0
        for line in lines:
            yield from self.check(line)

    def _line_faults(self, line: bytes) -> list[Fault]:
        faults = [] if line.endswith(b"\n") else [_TORN]
        try:
            value = parse(line)
        except MalformedJSONError as error:
            return faults or [_malformed(error)]
        if not isinstance(value, dict):
            return faults or envelope_faults(value)
        self.events += 1
        return faults + self._event_faults(value, line)

    def _event_faults(self, event: JSONObject, line: bytes) -> list[Fault]:
        faults = envelope_faults(event)
        if faults:
            return faults
        seen = self._identities.see(event, line)
        if seen is Seen.REDELIVERED:
            return []
        if seen is Seen.COLLIDES:
            faults.append(_collision(event))
        return [
            *faults,
            *type_faults(event),
            *payload_faults(event),
            *level_faults(event),
            *self._positions.check(event),
            *self._lifecycles.check(event),
            *self._forms.check(event),
        ]


def _malformed(error: MalformedJSONError) -> Fault:
    match error.code:
        case "empty":
            return _BLANK
        case "too-deep":
            return _TOO_DEEP
    return Fault(_JSONL, f"not JSON: {error}")


def _collision(event: JSONObject) -> Fault:
    return Fault("AEP-0001 §5.1", f"id: {shown(event['id'])} names another event of this source")
