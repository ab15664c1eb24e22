"""What the checks say: a fault in an event, and a finding with the line where it stands.

Every text here is safe to print: what an event contains is quoted as Python quotes it, so neither
an escape sequence nor a lone surrogate reaches a terminal, and it is cut short.
"""

from __future__ import annotations

import reprlib

from attrs import frozen

_SHOWN = 60
"""How many characters of a value a message quotes."""


@frozen
class Fault:
    """One thing that is wrong with an event.

    Attributes:
        rule: the section of the standard that is broken, "AEP-0001 §5.2".
        message: what is wrong, in one line for people.
    """

    rule: str
    message: str


@frozen
class Finding:
    """A fault and the line of the log, counted from 1, that has it."""

    line: int
    rule: str
    message: str


def shown(value: object) -> str:
    """A value as a message quotes it: printable, and short however large it is."""
    return _QUOTE.repr(value)


_QUOTE = reprlib.Repr()
_QUOTE.maxstring = _QUOTE.maxother = _QUOTE.maxlong = _SHOWN
_QUOTE.maxdict = _QUOTE.maxlist = 3
_QUOTE.maxlevel = 2
