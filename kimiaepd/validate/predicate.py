"""A JSON Schema as one fast predicate: valid or not, without saying why.

The `jsonschema` library takes 250 microseconds for an event, these closures about ten. So the
predicate says yes to what is valid, and the library is asked only to explain a no.

Rules:
- A predicate agrees with the library on every JSON value (a property test holds it there).
- It knows the keywords that the standard's schemas use, and `compile_schema` refuses any other;
  the caller then has the library alone. Nothing is ever approximated.

References (`$ref`) are not known, because the standard's files have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias, cast

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate.formats import FORMATS

Predicate: TypeAlias = Callable[[JSON], bool]


class UnknownKeywordError(Exception):
    """The schema says something that this module cannot check."""


def compile_schema(schema: JSON) -> Predicate:
    """The predicate of a schema.

    Raises:
        UnknownKeywordError: a keyword, or a use of one, is not among those known here.
    """
    if isinstance(schema, bool):
        return _always if schema else _never
    if not isinstance(schema, dict):
        raise UnknownKeywordError(f"{schema!r} is no schema")
    checks: list[Predicate] = []
    for keyword in schema:
        if keyword in _SILENT:
            continue
        compile_keyword = _KEYWORDS.get(keyword)
        if compile_keyword is None:
            raise UnknownKeywordError(keyword)
        checks.append(compile_keyword(schema))
    return _conjunction(checks)


def _always(_value: JSON) -> bool:
    return True


def _never(_value: JSON) -> bool:
    return False


def _conjunction(checks: list[Predicate]) -> Predicate:
    checks = [check for check in checks if check is not _always]
    if not checks:
        return _always
    if len(checks) == 1:
        return checks[0]

    def every(value: JSON) -> bool:
        for check in checks:  # noqa: SIM110 - all() with a generator costs twice as much
            if not check(value):
                return False
        return True

    return every


def _is_integer(value: JSON) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _is_number(value: JSON) -> bool:
    return type(value) is int or type(value) is float


def _exactly(kind: type) -> Predicate:
    return lambda value: type(value) is kind


_TYPES: dict[JSON, Predicate] = {
    "array": _exactly(list),
    "boolean": _exactly(bool),
    "integer": _is_integer,  # 1.0 is an integer, true is not (JSON Schema 2020-12, 6.1.1)
    "number": _is_number,
    "object": _exactly(dict),
    "string": _exactly(str),
}


def _type(schema: JSONObject) -> Predicate:
    named = schema["type"]
    kinds = [_TYPES[name] for name in (named if isinstance(named, list) else [named])]
    if len(kinds) == 1:
        return kinds[0]
    return lambda value: any(kind(value) for kind in kinds)


def _one_of(words: list[JSON]) -> Predicate:
    if not all(type(word) is str for word in words):
        raise UnknownKeywordError("enum or const of something other than text")
    allowed = frozenset(words)
    return lambda value: type(value) is str and value in allowed


def _pattern(schema: JSONObject) -> Predicate:
    search = re.compile(str(schema["pattern"])).search
    return lambda value: type(value) is not str or search(value) is not None


def _format(schema: JSONObject) -> Predicate:
    check = FORMATS.get(str(schema["format"]))
    if check is None:
        raise UnknownKeywordError(f"format {schema['format']}")
    return lambda value: type(value) is not str or check(value)


def _min_length(schema: JSONObject) -> Predicate:
    least = cast("int", schema["minLength"])
    return lambda value: type(value) is not str or len(value) >= least


def _minimum(schema: JSONObject) -> Predicate:
    least = cast("float", schema["minimum"])
    return lambda value: not _is_number(value) or cast("float", value) >= least


def _maximum(schema: JSONObject) -> Predicate:
    most = cast("float", schema["maximum"])
    return lambda value: not _is_number(value) or cast("float", value) <= most


def _required(schema: JSONObject) -> Predicate:
    names = frozenset(cast("list[str]", schema["required"]))
    return lambda value: type(value) is not dict or names <= value.keys()


def _members(schema: JSONObject) -> Predicate:
    """`properties` and `additionalProperties`, which only make sense together."""
    named = cast("JSONObject", schema.get("properties", {}))
    checks = {name: compile_schema(member) for name, member in named.items()}
    others = compile_schema(schema.get("additionalProperties", True))

    def members(value: JSON) -> bool:
        if type(value) is not dict:
            return True
        for name, member in value.items():  # noqa: SIM110 - as in `every`
            if not checks.get(name, others)(member):
                return False
        return True

    return members


def _property_names(schema: JSONObject) -> Predicate:
    check = compile_schema(schema["propertyNames"])
    return lambda value: type(value) is not dict or all(map(check, value))


def _items(schema: JSONObject) -> Predicate:
    check = compile_schema(schema["items"])
    return lambda value: type(value) is not list or all(map(check, value))


def _all_of(schema: JSONObject) -> Predicate:
    return _conjunction([compile_schema(part) for part in cast("list[JSON]", schema["allOf"])])


def _if(schema: JSONObject) -> Predicate:
    condition = compile_schema(schema["if"])
    then = compile_schema(schema.get("then", True))
    otherwise = compile_schema(schema.get("else", True))
    return lambda value: then(value) if condition(value) else otherwise(value)


def _additional(schema: JSONObject) -> Predicate:
    return _always if "properties" in schema else _members(schema)


_SILENT = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "x-aep-capture"}
    | {"then", "else"}  # read with their `if`, and nothing without one
)

_KEYWORDS: dict[str, Callable[[JSONObject], Predicate]] = {
    "additionalProperties": _additional,
    "allOf": _all_of,
    "const": lambda schema: _one_of([schema["const"]]),
    "enum": lambda schema: _one_of(cast("list[JSON]", schema["enum"])),
    "format": _format,
    "if": _if,
    "items": _items,
    "maximum": _maximum,
    "minimum": _minimum,
    "minLength": _min_length,
    "pattern": _pattern,
    "properties": _members,
    "propertyNames": _property_names,
    "required": _required,
    "type": _type,
}
