"""attr-match: which events a subscriber wants, by their envelopes alone (AEP-0003 section 6).

A filter is compiled once and asked for every event. It fails closed: what the grammar does not
know is refused, and never taken for a filter that lets everything through.

Where the text leaves room:
- A `*` stands at the end of a type, after a dot, or nowhere: a filter with a glob in any other
  place was meant to match more than it would.
- An integer is one by its value, so 1.0 is 1; true is not.
- A predicate that can never match, like a band from error to info, is legal.

What a filter may cost is bounded: `MOST_MEMBERS` attributes and `MOST_ALTERNATIVES` values in all,
of `LONGEST` characters each, which is 1 MiB at worst.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from kimiaepd.mapping.event import SEVERITIES
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate.finding import shown

MOST_MEMBERS = 32
MOST_ALTERNATIVES = 512
LONGEST = 512

ATTRIBUTES = frozenset(
    (
        *("id", "type", "subject", "source", "agent", "session", "run", "step"),
        *("epoch", "cause", "severity", "capture"),
    )
)
"""The attributes of the envelope that can be filtered by."""

NOT_FILTERABLE = frozenset(("aep", "time", "seq", "traceparent", "data"))
"""Those that cannot, and are no names for an extension either."""

DEFAULTS: JSONObject = {"severity": "info", "capture": "metadata", "epoch": 0}
"""What an event says that leaves one of these out (AEP-0001 section 5.1)."""

_EXTENSION = re.compile(r"[a-z0-9]{1,20}")
_RANKS: dict[JSON, int] = {word: rank for rank, word in enumerate(SEVERITIES)}

Test: TypeAlias = Callable[[JSON], bool]
"""Whether an attribute's value is wanted; an absent one is None, which never is."""


class FilterError(ValueError):
    """The filter is none; `str()` is one printable line, fit for an error's `detail`."""


class FilterTooLargeError(FilterError):
    """It may be one, and is larger than a limit allows; `str()` names the limit."""


@frozen
class Filter:
    """A compiled filter.

    Attributes:
        tests: for each of its members the attribute, its default, and whether a value is wanted.
    """

    tests: tuple[tuple[str, JSON, Test], ...]

    def matches(self, event: JSONObject) -> bool:
        """Whether the filter wants an event; never raises, whatever the event's values are."""
        for name, default, is_wanted in self.tests:  # noqa: SIM110 - all() costs twice as much
            if not is_wanted(event.get(name, default)):
                return False
        return True


def compile_filter(value: JSON) -> Filter:
    """The filter that a JSON value describes.

    Raises:
        FilterTooLargeError: it has more members or values than a limit allows, or longer ones.
        FilterError: it is no filter.
    """
    if not isinstance(value, dict):
        raise FilterError(f"a filter is a JSON object, not {shown(value)}")
    if len(value) > MOST_MEMBERS:
        raise FilterTooLargeError(f"a filter has at most {MOST_MEMBERS} members")
    if sum(len(part) for part in value.values() if isinstance(part, list)) > MOST_ALTERNATIVES:
        raise FilterTooLargeError(f"a filter has at most {MOST_ALTERNATIVES} values in its lists")
    return Filter(tuple((name, DEFAULTS.get(name), _test(name, value[name])) for name in value))


def _test(name: str, predicate: JSON) -> Test:
    if name in NOT_FILTERABLE:
        raise FilterError(f"no filter can ask for {name}")
    if name not in ATTRIBUTES and not _EXTENSION.fullmatch(name):
        raise FilterError(f"{shown(name)} is no attribute and no name for an extension")
    if name == "severity" and isinstance(predicate, dict):
        return _band(predicate)
    entries = predicate if isinstance(predicate, list) else [predicate]
    if not entries:
        raise FilterError(f"{name}: a list of no values matches nothing; name one at least")
    values = [_scalar(name, entry) for entry in entries]
    if name == "type":
        return _types(values)
    return _any_of(values)


def _scalar(name: str, value: JSON) -> str | float:
    """A value that an attribute can be compared with."""
    match value:
        case str():
            if len(value) > LONGEST:
                raise FilterTooLargeError(f"{name}: a value has at most {LONGEST} characters")
            if "*" in (value.removesuffix(".*") if name == "type" else value) or value == ".*":
                raise FilterError(f"{name}: {shown(value)} is no pattern; only a type ends in .*")
            return value
        case bool() | int():
            return value
        case float() if value.is_integer():
            return value
    raise FilterError(f"{name}: must be text, an integer or a boolean, not {shown(value)}")


def _types(values: list[str | float]) -> Test:
    texts = [value for value in values if isinstance(value, str)]
    exact = frozenset(text for text in texts if not text.endswith(".*"))
    prefixes = tuple(text.removesuffix("*") for text in texts if text.endswith(".*"))

    def is_wanted(value: JSON) -> bool:
        return isinstance(value, str) and (value in exact or value.startswith(prefixes))

    return is_wanted


def _any_of(values: list[str | float]) -> Test:
    """One of the values; true and 1 are equal to Python, and not to JSON."""
    booleans = frozenset(value for value in values if isinstance(value, bool))
    others = frozenset(value for value in values if not isinstance(value, bool))

    def is_wanted(value: JSON) -> bool:
        if isinstance(value, bool):
            return value in booleans
        return isinstance(value, str | int | float) and value in others

    return is_wanted


def _band(bounds: JSONObject) -> Test:
    if not bounds or bounds.keys() - {"gte", "lte"}:
        raise FilterError(f"severity: a band has gte, lte or both, not {shown(list(bounds))}")
    least, most = _rank(bounds.get("gte", "debug")), _rank(bounds.get("lte", "critical"))
    wanted = frozenset(SEVERITIES[least : most + 1])

    def is_wanted(value: JSON) -> bool:
        return isinstance(value, str) and value in wanted

    return is_wanted


def _rank(word: JSON) -> int:
    rank = _RANKS.get(word) if isinstance(word, str) else None
    if rank is None:
        raise FilterError(f"severity: must be one of {', '.join(SEVERITIES)}, not {shown(word)}")
    return rank
