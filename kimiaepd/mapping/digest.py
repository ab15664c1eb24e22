"""Digests of JSON values, equal to those that an emitter written in JavaScript would give.

Rules:
- The digest is the first 16 bytes, in hex, of the SHA-256 of the value's canonical form.
- The canonical form is what JavaScript writes: members by `Object.keys(value).sort()`, so by UTF-16
  code units; keys and scalars as `JSON.stringify` has them; nothing between tokens; UTF-8.
- The value is the original one, before redaction, lone surrogates included: they are escaped.
- Any JSON value has a digest, whatever its depth, and nothing here raises for one. The walk keeps
  its own stack, because a value may be nested deeper than Python lets functions be.

It is not RFC 8785, which refuses lone surrogates. It does not parse (`json_value.py`), and it does
not guard against a value that contains itself: no JSON text yields one.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator

from kimiaepd.mapping.json_value import JSON

_HEX_DIGITS = 32
_EXACT = 2**53
"""Every whole number up to here is itself as a double."""

_FIRST_PLAIN, _LAST_PLAIN = -6, 20
"""The decimal exponents between which JavaScript writes a number without one."""

_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def digest(value: JSON) -> str:
    """The digest of the value: 32 hex digits (AEP-0003, `args_digest` and `result_digest`)."""
    return hashlib.sha256(canonical(value)).hexdigest()[:_HEX_DIGITS]


def canonical(value: JSON) -> bytes:
    """The canonical form of the value, in UTF-8: equal exactly where JavaScript's would be."""
    text = "".join(_tokens(value))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # Two halves that stand side by side are one character to JavaScript, so they join first.
        return _HALVES.sub(_join, text).encode("utf-8", "backslashreplace")


def _join(halves: re.Match[str]) -> str:
    return halves[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _tokens(value: JSON) -> list[str]:
    """The canonical form in pieces: one loop over the members of the innermost open container."""
    tokens: list[str] = []
    write = tokens.append
    around: list[tuple[Iterator[tuple[str, JSON]], str]] = []
    inside: Iterator[tuple[str, JSON]] = iter((("", value),))
    bracket = ""
    while True:
        for lead, child in inside:
            write(lead)
            if isinstance(child, str):
                write(_quoted(child))
            elif isinstance(child, dict):
                around.append((inside, bracket))
                inside, bracket = _members(child), "}"
                write("{")
                break
            elif isinstance(child, list):
                around.append((inside, bracket))
                inside, bracket = _elements(child), "]"
                write("[")
                break
            else:
                write(_scalar(child))
        else:
            write(bracket)
            if not around:
                return tokens
            inside, bracket = around.pop()


def _members(value: dict[str, JSON]) -> Iterator[tuple[str, JSON]]:
    comma = ""
    for key in _sorted_keys(value):
        yield f"{comma}{_quoted(key)}:", value[key]
        comma = ","


def _elements(value: list[JSON]) -> Iterator[tuple[str, JSON]]:
    comma = ""
    for element in value:
        yield comma, element
        comma = ","


def _sorted_keys(value: dict[str, JSON]) -> list[str]:
    # Code points and code units order alike until a character needs two units.
    if "".join(value).isascii():
        return sorted(value)
    return sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


def _scalar(value: float | bool | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -_EXACT <= value <= _EXACT:
        return int.__repr__(value)
    try:
        return _number(float(value))
    except OverflowError:  # an integer beyond every double: Infinity there
        return "null"


def _number(value: float) -> str:
    """A double as ECMA-262 `Number::toString` writes it, and null for what JSON has no text for.

    Both languages choose the same shortest digits; only where the exponent begins differs.
    """
    if not math.isfinite(value):
        return "null"
    text = float.__repr__(value)
    mantissa, _, power = text.partition("e")
    if not power:
        return "0" if value == 0 else text.removesuffix(".0")
    exponent = int(power)
    sign, digits = ("-", mantissa[1:]) if value < 0 else ("", mantissa)
    whole, _, fraction = digits.partition(".")
    if 0 < exponent <= _LAST_PLAIN:
        return f"{sign}{whole}{fraction.ljust(exponent, '0')}"
    if _FIRST_PLAIN <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{whole}{fraction}"
    return f"{mantissa}e{exponent:+d}"
