"""Whether what came in is an event: the envelope's rules, as a collector holds to them.

The rules are those of `validate/shape.py`, which has them from the standard's own schema; nothing
of them is written again here. A payload is not looked at: AEP-0003 section 3.2 refuses for the
envelope alone, and a relay carries what it does not understand. So an event of an unknown core
type, or one whose data its schema would refuse, is taken, and goes out as it came in.

An event that is in order costs some fifteen microseconds. One that is not costs some hundred,
however many faults it has: only the first is looked for.
"""

from __future__ import annotations

from kimiaepd.mapping.event import is_command
from kimiaepd.mapping.json_value import JSON
from kimiaepd.validate.shape import first_envelope_fault

__all__ = ["envelope_fault", "is_command", "warm"]


def envelope_fault(event: JSON) -> str | None:
    """What is wrong with an event's envelope: one printable line, or None where nothing is."""
    fault = first_envelope_fault(event)
    return None if fault is None else f"{fault.message} ({fault.rule})"


def warm() -> None:
    """Load what only the first event that is none needs: it takes a twentieth of a second."""
    envelope_fault({})
