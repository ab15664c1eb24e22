"""Where the statements of a TOML file begin and end, in bytes: what no TOML library tells.

Rules:
- The file has already been parsed: this reads TOML that is known to be right, and nothing else.
- Every byte belongs to one statement or to the newline after one, so a file is the sum of these.
- A `[[hooks]]` or a `#` inside a string is text, however many lines the string has.

It knows no key and no value: a caller gives a statement's bytes to `tomllib` where it must.
"""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache

from attrs import frozen


class Kind(enum.Enum):
    """What a statement is."""

    BLANK = enum.auto()
    COMMENT = enum.auto()
    HEADER = enum.auto()
    PAIR = enum.auto()


@frozen
class Statement:
    """One blank line, comment, table header or key with its value.

    Attributes:
        start: the offset of the first byte of its line, indentation included.
        end: the offset after its last byte; the newline is not in it.
        line: the number of its first line, from 1.
    """

    kind: Kind
    start: int
    end: int
    line: int


@frozen
class Header:
    """A table header: `[a.b]` or, as an array, `[[a.b]]`."""

    path: tuple[str, ...]
    is_array: bool


def statements(text: bytes, start: int = 0) -> Iterator[Statement]:
    """Cut a file into its statements.

    Args:
        text: the file, which must be TOML from `start` on.
        start: where to begin: after a byte-order mark.
    """
    line = 1
    while start < len(text):
        first = _NOT_SPACE.search(text, start)
        lead = first[0] if first else b"\n"
        if lead == b"\n":
            kind, end = Kind.BLANK, _line_end(text, start)
        elif lead == b"#":
            kind, end = Kind.COMMENT, _line_end(text, start)
        elif lead == b"[":
            kind, end = Kind.HEADER, _line_end(text, start)
        else:
            kind, end = Kind.PAIR, _pair_end(text, start)
        after = end + 1
        if text[start:end].endswith(b"\r"):
            end -= 1
        yield Statement(kind, start, end, line)
        line += text.count(b"\n", start, after)
        start = after


@lru_cache
def header(raw: bytes) -> Header:
    """What a header's bytes name."""
    value: object = tomllib.loads(raw.decode("utf-8"))
    path: list[str] = []
    is_array = False
    while isinstance(value, dict) and value:
        ((key, value),) = value.items()
        path.append(key)
        is_array = isinstance(value, list)
        if isinstance(value, list):
            value = value[0]
    return Header(tuple(path), is_array)


def comments(text: bytes, statement: Statement) -> Iterator[Statement]:
    """The comments within a statement: at its end, or at those of the lines of its array."""
    position = statement.start
    while token := _TOKEN.search(text, position, statement.end):
        position = _skip(text, token)
        if token[0] == b"#":
            end = position - text[token.start() : position].endswith(b"\r")
            line = statement.line + text.count(b"\n", statement.start, end)
            yield Statement(Kind.COMMENT, token.start(), end, line)


def line_after(text: bytes, statement: Statement) -> int:
    """Where the line after a statement begins."""
    newline = _NEWLINE.match(text, statement.end)
    return newline.end() if newline else statement.end


_NEWLINE = re.compile(rb"\r?\n")
_NOT_SPACE = re.compile(rb"[^ \t\r]")
_TOKEN = re.compile(rb"\"\"\"|'''|[\"'#\[\]{}\n]")
_STRING_REST = {
    b'"': re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL),
    b"'": re.compile(rb"[^']*+'"),
    # Up to two quotes may stand before the three that close, and belong to the text.
    b'"""': re.compile(rb'(?:[^"\\]++|\\.|"{1,2}+(?!"))*+"{3,5}+', re.DOTALL),
    b"'''": re.compile(rb"(?:[^']++|'{1,2}+(?!'))*+'{3,5}+"),
}


def _line_end(text: bytes, start: int) -> int:
    newline = text.find(b"\n", start)
    return len(text) if newline < 0 else newline


def _pair_end(text: bytes, position: int) -> int:
    """The newline that ends a key and its value, which may hold newlines of their own."""
    depth = 0
    while token := _TOKEN.search(text, position):
        position = _skip(text, token)
        if token[0] in _STRING_REST or token[0] == b"#":
            continue
        if token[0] == b"\n":
            if depth == 0:
                return token.start()
        else:
            depth += 1 if token[0] in b"[{" else -1
    return len(text)


def _skip(text: bytes, token: re.Match[bytes]) -> int:
    """Where what a token begins has its end: a string, a comment, or the token itself."""
    if token[0] == b"#":
        return _line_end(text, token.end())
    if token[0] in _STRING_REST:
        rest = _STRING_REST[token[0]].match(text, token.end())
        return rest.end() if rest else len(text)
    return token.end()
