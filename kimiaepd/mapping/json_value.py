"""JSON as the vendor's JavaScript reads it: the one place where bytes become typed values.

Rules:
- `parse` accepts what `JSON.parse` accepts (no NaN, no Infinity) and yields what it would yield:
  a number too large for a double is null, as `JSON.stringify` would write it; integers beyond
  2**53 are the double they become there.
- Lone surrogates stay in the strings: a digest needs the original. `dump` writes U+FFFD for them.
- Nothing here raises anything but `MalformedJSONError`, whatever the bytes are.

It does not canonicalise (`digest.py`) and does not look at what the values mean (`payloads.py`).
"""

from __future__ import annotations

import json
import math
import re
from typing import NoReturn, TypeAlias, Union

# A Union object and not a string, so that `JSON | Absent` is a type at run time too.
JSON: TypeAlias = Union[dict[str, "JSON"], list["JSON"], str, int, float, bool, None]  # noqa: UP007
JSONObject: TypeAlias = dict[str, JSON]

_SAFE_DIGITS = 15
"""An integer of this many characters is exact as a double, sign included."""

MOST_PARTS = 3_000_000
"""Commas that a text may have: a few hundred bytes of memory for each would be too much."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class MalformedJSONError(ValueError):
    """The bytes are not one JSON value; `code` says how, in a word fit for an event."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def _number(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _integer(text: str) -> int | float | None:
    if len(text) <= _SAFE_DIGITS:
        return int(text)
    value = _number(text)
    if value is not None and abs(value) < 2**63 and value == int(value):
        return int(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedJSONError("malformed", f"{name} is not JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_number, parse_constant=_refuse_constant
)


def parse(raw: bytes) -> JSON:
    """Read one JSON value.

    Raises:
        MalformedJSONError: `code` is "empty", "encoding", "too-deep", "too-many-parts" or
            "malformed".
    """
    if raw.count(b",") > MOST_PARTS:
        raise MalformedJSONError("too-many-parts", f"more than {MOST_PARTS} commas")
    try:
        text = raw.decode("utf-8").strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise MalformedJSONError("encoding", f"not UTF-8 at byte {error.start}") from None
    if not text:
        raise MalformedJSONError("empty", "nothing was sent")
    try:
        value: JSON = _DECODER.decode(text)
    except RecursionError:
        raise MalformedJSONError("too-deep", "nested too deep to read") from None
    except json.JSONDecodeError as error:
        raise MalformedJSONError("malformed", f"{error.msg} at character {error.pos}") from None
    return value


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for every lone surrogate: what can be written as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def dump(value: JSON) -> bytes:
    """One compact line of UTF-8 without a newline; lone surrogates become U+FFFD."""
    text = _ENCODER.encode(value)
    return without_surrogates(text).encode("utf-8")
