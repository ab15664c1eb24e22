"""The standard's JSON Schemas as verdicts: what of a value they refuse, if anything.

A valid value costs a predicate (`predicate.py`). `jsonschema` is imported when the first value is
refused, to say where and why; so a clean log, and a daemon that never checks one, do without it.

What a refusal means in words, and which section it breaks, is `shape.py`'s business.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from attrs import frozen

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.standard import envelope_schema, payload_schema
from kimiaepd.validate.formats import FORMATS
from kimiaepd.validate.predicate import Predicate, UnknownKeywordError, compile_schema

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError


@frozen
class Refusal:
    """That a schema refuses something in a value.

    Attributes:
        keyword: the keyword of JSON Schema that refuses, "required".
        wanted: what the schema gives for the keyword.
        value: what was refused.
        path: where it stands, from the outermost name; array positions are numbers.
        branch: how the schema came to it, keyword by keyword.
    """

    keyword: str
    wanted: JSON
    value: JSON
    path: tuple[str | int, ...]
    branch: tuple[str | int, ...]


def refusals(event_type: str | None, value: JSON) -> Iterator[Refusal]:
    """What the payload schema of a registered type, or for None the envelope's, refuses.

    Each is looked for when it is asked for: a value can hold faults by the hundred thousand.

    Raises:
        RecursionError: the value is refused, and nested too deep for the library.
    """
    if not _predicate(event_type)(value):
        yield from map(_refusal, _library(event_type).iter_errors(value))


def _refusal(error: ValidationError) -> Refusal:
    return Refusal(
        keyword=str(error.validator),
        wanted=cast("JSON", error.validator_value),
        value=cast("JSON", error.instance),
        path=tuple(error.absolute_path),
        branch=tuple(error.absolute_schema_path),
    )


@functools.cache
def _predicate(event_type: str | None) -> Predicate:
    try:
        return compile_schema(_schema(event_type))
    except UnknownKeywordError:  # a later version of the standard: slower, and still right
        return lambda _value: False


@functools.cache
def _library(event_type: str | None) -> Draft202012Validator:
    from jsonschema import Draft202012Validator, FormatChecker  # noqa: PLC0415 - costs 100 ms

    formats = FormatChecker(formats=())
    for name, check in FORMATS.items():
        formats.checks(name)(_of_any_value(check))
    return Draft202012Validator(_schema(event_type), format_checker=formats)


def _of_any_value(check: Callable[[str], bool]) -> Callable[[object], bool]:
    """A format as the library asks for it; it says nothing about what is no string."""
    return lambda value: not isinstance(value, str) or check(value)


@functools.cache
def _schema(event_type: str | None) -> JSONObject:
    schema = envelope_schema() if event_type is None else payload_schema(event_type)
    return cast("JSONObject", _for_python(schema))


def _for_python(schema: JSON) -> JSON:
    """The schema with two changes, so that Python's tools say what the standard's file says.

    - `$` at the end of a pattern also matches before a newline in `re`; in JSON Schema it does not.
    - `false` as a member's schema gives an error that does not name the member; an enum of nothing
      refuses as much, and does.
    """
    if schema is False:
        return {"enum": []}
    if isinstance(schema, list):
        return [_for_python(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value[:-1] + r"\Z"
        if key == "pattern" and isinstance(value, str) and value.endswith("$")
        else _for_python(value)
        for key, value in schema.items()
    }
