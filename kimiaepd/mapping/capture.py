"""Capture: which field of a draft rides at which ceiling, and the ceilings themselves.

Rules (AEP-0001 section 8.2, AEP-0003 section 9):
- A field rides when its level is at or below the ceiling. A field that the standard wants
  synthesised at `metadata` brings its stand-in along (`Field.below`).
- What rides as `redacted` has passed the pipeline, also under a ceiling of `full`.
- At `none` there is no data at all.
- `cwd` never rides, at any depth, at any level: it names the user's machine.
- A value nested deeper than `MAX_DEPTH`, or of more than `MAX_NODES` parts, does not ride; its
  digest, made before, still does.
- Of what passes the pipeline at most `MAX_TEXT` characters a field ride, cut between words and
  marked: the pipeline must not hold up the hooks that come after.

The pipeline itself is `redaction.py`; what a field's level is, the tables in `hooks.py` say.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, frozen

from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.redaction import Redactor

MAX_DEPTH = 64
"""Levels of nesting that a value of a payload may have and still ride."""

MAX_NODES = 50_000
"""Parts (values at any depth) that a value of a payload may have and still ride."""

MAX_TEXT = 65_536
"""Characters that one redacted field may have in all its strings."""

NEVER_RIDES = "cwd"


class _TooMuchError(ValueError):
    pass


@define
class _Allowance:
    """What is left to one field, while it is copied."""

    nodes: int
    text: int | None


@frozen
class Ceilings:
    """The highest level of each category: `default`, unless `overrides` names it."""

    default: Capture
    overrides: Mapping[str, Capture]

    def of(self, event_type: str) -> Capture:
        """The ceiling of an event type; its category is its first word."""
        return self.overrides.get(event_type.partition(".")[0], self.default)

    @property
    def highest(self) -> Capture:
        """The highest ceiling of all."""
        return max(self.default, *self.overrides.values(), Capture.NONE)


def gate(draft: Draft, ceiling: Capture, redactor: Redactor) -> JSONObject | None:
    """The draft's data at a ceiling; None where nothing may ride."""
    if ceiling is Capture.NONE:
        return None
    data: JSONObject = {}
    for field in draft.fields:
        value = _at(field, ceiling, redactor)
        if value is not None:
            put(data, field.path, value)
    return data


def _at(field: Field, ceiling: Capture, redactor: Redactor) -> JSON:
    if field.level > ceiling:
        return field.below
    is_redacted = field.level is Capture.REDACTED
    try:
        allowance = _Allowance(MAX_NODES, MAX_TEXT if is_redacted else None)
        value = _copy(field.value, MAX_DEPTH, allowance)
    except _TooMuchError:
        return None
    return redactor.value(value) if is_redacted else value


def riding(value: JSON) -> JSON:
    """The value as a redacted field may hold it, before the pipeline; None where it is too much."""
    try:
        return _copy(value, MAX_DEPTH, _Allowance(MAX_NODES, MAX_TEXT))
    except _TooMuchError:
        return None


def _copy(value: JSON, depth: int, allowance: _Allowance) -> JSON:
    """The value without any `cwd`, as far as the allowance goes."""
    allowance.nodes -= 1
    if depth < 0 or allowance.nodes < 0:
        raise _TooMuchError
    if isinstance(value, dict):
        return {
            key: _copy(inner, depth - 1, allowance)
            for key, inner in value.items()
            if key != NEVER_RIDES
        }
    if isinstance(value, list):
        return [_copy(inner, depth - 1, allowance) for inner in value]
    if isinstance(value, str) and allowance.text is not None:
        return _cut(value, allowance)
    return value


def _cut(text: str, allowance: _Allowance) -> str:
    """The text, or its beginning up to a word's end: half a secret would look like none."""
    left = allowance.text or 0
    allowance.text = max(0, left - len(text))
    if len(text) <= left:
        return text
    kept = "".join(text[:left].rpartition(" ")[:2])
    return f"{kept}[{len(text) - len(kept)} characters more]"


def put(data: JSONObject, path: tuple[str, ...], value: JSON) -> None:
    """Set the member at a path, outermost key first; what is missing on the way is made."""
    *outer, last = path
    for name in outer:
        inner = data.setdefault(name, {})
        if not isinstance(inner, dict):
            raise TypeError(f"{'.'.join(path)} goes through a value that is no object")
        data = inner
    data[last] = value
