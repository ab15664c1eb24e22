"""Capture: which field of a draft rides at which ceiling, and the ceilings themselves.

Rules (AEP-0001 section 8.2, AEP-0003 section 9):
- A field rides when its level is at or below the ceiling. A field that the standard wants
  synthesised at `metadata` brings its stand-in along (`Field.below`).
- What rides as `redacted` has passed the pipeline, also under a ceiling of `full`.
- At `none` there is no data at all.
- `cwd` never rides, at any depth, at any level: it names the user's machine.
- A value nested deeper than `MAX_DEPTH` does not ride; its digest, made before, still does.

The pipeline itself is `redaction.py`; what a field's level is, the tables in `hooks.py` say.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.redaction import Redactor

MAX_DEPTH = 64
"""Levels of nesting that a value of a payload may have and still ride."""

NEVER_RIDES = "cwd"


class _TooDeepError(ValueError):
    pass


@frozen
class Ceilings:
    """The highest level of each category: `default`, unless `overrides` names it."""

    default: Capture
    overrides: Mapping[str, Capture]

    def of(self, event_type: str) -> Capture:
        """The ceiling of an event type; its category is its first word."""
        return self.overrides.get(event_type.partition(".")[0], self.default)


def gate(draft: Draft, ceiling: Capture, redactor: Redactor) -> JSONObject | None:
    """The draft's data at a ceiling; None where nothing may ride."""
    if ceiling is Capture.NONE:
        return None
    data: JSONObject = {}
    for field in draft.fields:
        value = _at(field, ceiling, redactor)
        if value is not None:
            _put(data, field.path, value)
    return data


def _at(field: Field, ceiling: Capture, redactor: Redactor) -> JSON:
    if field.level > ceiling:
        return field.below
    try:
        value = _clean(field.value, MAX_DEPTH)
    except _TooDeepError:
        return None
    return redactor.value(value) if field.level is Capture.REDACTED else value


def _clean(value: JSON, depth: int) -> JSON:
    """A copy without any `cwd`; scalars as they are."""
    if isinstance(value, dict):
        _spend(depth)
        return {k: _clean(v, depth - 1) for k, v in value.items() if k != NEVER_RIDES}
    if isinstance(value, list):
        _spend(depth)
        return [_clean(item, depth - 1) for item in value]
    return value


def _spend(depth: int) -> None:
    if not depth:
        raise _TooDeepError


def _put(data: JSONObject, path: tuple[str, ...], value: JSON) -> None:
    *outer, last = path
    for name in outer:
        inner = data.setdefault(name, {})
        if not isinstance(inner, dict):
            raise TypeError(f"{'.'.join(path)} goes through a value that is no object")
        data = inner
    data[last] = value
