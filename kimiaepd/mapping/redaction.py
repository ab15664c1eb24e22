"""The redaction pipeline of AEP-0003 section 9.4: what `redacted` text has been through.

In this order, on every string of a value at any depth:
    (a) secrets, by their shape or by the name before them      -> `[REDACTED:secret]`
    (b) the values of the variables that the operator listed    -> `[REDACTED:secret]`
    (c) home directories                                        -> `~`
    (d) e-mail addresses and phone numbers, unless switched off -> `[REDACTED:pii]`

Rules:
- (a) and (b) look at the same text, and finds that touch become one: neither can spoil a find of
  the other by taking a piece out of its middle.
- The pipeline runs until it changes nothing more, so that redacting twice is redacting once.
- A member whose name announces a secret keeps its value to itself: see `secret_shapes.hides`.
- It never raises, for any JSON value at any depth, and takes time in proportion to its input.
- In doubt it takes more than the standard asks; versions, counts, and prose are left alone.

What a secret looks like is in `secret_shapes.py`. Object keys are structure and stay as they are.
Which fields pass through here is for `capture.py` to say.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from attrs import field, frozen

from kimiaepd.mapping import secret_shapes
from kimiaepd.mapping.json_value import JSON
from kimiaepd.mapping.secret_shapes import Span

SECRET = "[REDACTED:secret]"  # noqa: S105 - what stands in a secret's place
PII = "[REDACTED:pii]"
HOME = "~"

_Container: TypeAlias = "list[JSON] | dict[str, JSON]"

_MOST_PASSES = 8
"""A find may bare another one. More than two passes is something only an adversary needs."""

_SHORT = 4
"""A listed value of fewer characters counts as a whole word only, or it would be everywhere."""

_USER = r"[\w+@-]++(?:\.[\w+@-]++)*+"
_ANY_HOME = re.compile(
    r"/(?:(?<![\w.~)\]}$-]/)|(?<=\s-[A-Za-z]/)|(?<=/[a-z]/))"  # a path begins: ` /`, `-I/`, `/c/`
    rf"(?:(?:home|Users)\\?/(?!Shared\b){_USER}|root(?![\w.-]))"
)
_WINDOWS_HOME = re.compile(rf"\\(?<=[A-Za-z]:\\)\\{{0,3}}Users\\{{1,4}}{_USER}")
_AT_A_DOMAIN = re.compile(r"@[\w-]++\.")
_EMAIL = re.compile(
    r"(?<![\w.+%-])(?!git@)[\w.+%-]++"
    r"@(?!\d+\.\d)(?:[\w-]{1,63}+\.){1,8}[^\W\d_]{2,63}"
)
_INTERNATIONAL = re.compile(
    r"\+(?<![\w.+/-]\+)(?=(?:[ .()-]{0,2}\d){8})[1-9]"
    r"(?:\d{7,14}"
    r"|\d{0,2}(?:[ .-]?\(\d{1,5}\))?(?:(?:[ -]\d{1,8}){2,6}|(?:\.\d{2,8}){2,5}))(?![\w-])"
)
_LIKE_NATIONAL = re.compile(r"\d{3}(?:[ ).-]{1,2}\d{3,4}[ .-]\d{4}|\d{8})")
_NATIONAL = re.compile(
    r"(?<![\w.+/-])(?:"
    r"(?:1[ .-])?(?:\(\d{3}\)[ .-]?\d{3}[ .-]|\d{3}-\d{3}-|\d{3}\.\d{3}\.)\d{4}"
    r"|1[3-9]\d(?:\d{8}|[ -]\d{4}[ -]\d{4})"  # a Chinese mobile number
    r")(?![\w-])"
)


@frozen
class Redactor:
    """The pipeline, set up for one operator.

    Attributes:
        home: the operator's home directory; None where there is none.
        secret_names: names of environment variables that hold secrets (`AEP_REDACT_NAMES`); a
            member or an assignment of such a name is treated as that of a password.
        secret_values: what these variables hold.
        pii: whether e-mail addresses and phone numbers go, too.
    """

    home: str | None = None
    secret_names: frozenset[str] = frozenset()
    secret_values: tuple[str, ...] = field(default=(), repr=False)
    pii: bool = True

    _members: frozenset[str] = field(init=False, repr=False, eq=False)
    _assigned: tuple[secret_shapes.Pattern, ...] = field(init=False, repr=False, eq=False)
    _written: tuple[str, ...] = field(init=False, repr=False, eq=False)
    _own_home: re.Pattern[str] | None = field(init=False, repr=False, eq=False)

    @_members.default
    def _name_members(self) -> frozenset[str]:
        return frozenset(secret_shapes.lower(name) for name in self.secret_names)

    @_assigned.default
    def _find_assignments(self) -> tuple[secret_shapes.Pattern, ...]:
        return secret_shapes.named_like(self.secret_names)

    @_written.default
    def _write_values(self) -> tuple[str, ...]:
        """Each value as it is, and as JSON and URLs write it."""
        ways: set[str] = set()
        for value in map(str.strip, self.secret_values):
            ways |= {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
            ways.add(urllib.parse.quote(value, safe="", errors="replace"))
        return tuple(sorted(filter(None, ways)))

    @_own_home.default
    def _find_home(self) -> re.Pattern[str] | None:
        home = (self.home or "").rstrip("/\\")
        return re.compile(re.escape(home) + r"(?![\w-]|\.\w)") if home else None

    def text(self, text: str) -> str:
        """The text, redacted."""
        for _ in range(_MOST_PASSES):
            before, text = text, self._once(text)
            if text == before:
                break
        return text

    def value(self, value: JSON) -> JSON:
        """A copy of the value with every string redacted, however deep it is."""
        root: list[JSON] = [value]
        to_do: list[_Container] = [root]
        while to_do:
            container = to_do.pop()
            if isinstance(container, dict):
                for key, child in container.items():
                    hidden = self._hides(container, key, child)
                    container[key] = SECRET if hidden else self._copy(child, to_do)
                continue
            flagged = False  # by `--token`, in a list of arguments
            for index, child in enumerate(container):
                is_text = isinstance(child, str)
                container[index] = SECRET if flagged and is_text else self._copy(child, to_do)
                flagged = isinstance(child, str) and secret_shapes.is_flag(child)
        return root[0]

    def _copy(self, child: JSON, to_do: list[_Container]) -> JSON:
        if isinstance(child, str):
            return self.text(child)
        if not isinstance(child, list | dict):
            return child
        copy = child.copy()
        to_do.append(copy)
        return copy

    def _hides(self, members: dict[str, JSON], key: str, child: JSON) -> bool:
        name: JSON = key
        if key == "value":  # {"name": "API_KEY", "value": "x"}
            name = members.get("name", members.get("key", key))
        if not isinstance(name, str):
            return False
        return secret_shapes.hides(name, child) or secret_shapes.lower(name) in self._members

    def _once(self, text: str) -> str:
        secrets = secret_shapes.spans(text, self._assigned)
        secrets += self._listed(text)
        text = _replaced(text, secrets, SECRET)
        if self._own_home:
            text = self._own_home.sub(HOME, text)
        text = _WINDOWS_HOME.sub(HOME, _ANY_HOME.sub(HOME, text))
        return _without_pii(text) if self.pii else text

    def _listed(self, text: str) -> Iterator[Span]:
        for value in self._written:
            start = text.find(value)
            while start >= 0:
                end = start + len(value)
                if len(value) >= _SHORT or _is_word(text, start, end):
                    yield start, end
                start = text.find(value, end)


def _is_word(text: str, start: int, end: int) -> bool:
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    return not any(character.isalnum() or character == "_" for character in around)


def _replaced(text: str, spans: Iterable[Span], marker: str) -> str:
    """The text with one marker for each stretch that the spans cover."""
    kept: list[str] = []
    start = end = -1
    for span in sorted(spans):
        if span[0] > end:
            if end >= 0:
                kept.append(marker)
            kept.append(text[max(0, end) : span[0]])
            start, end = span
        end = max(end, span[1])
    if start < 0:
        return text
    return "".join((*kept, marker, text[end:]))


def _without_pii(text: str) -> str:
    if _AT_A_DOMAIN.search(text):
        text = _EMAIL.sub(PII, text)
    text = _INTERNATIONAL.sub(PII, text)
    if _LIKE_NATIONAL.search(text):
        text = _NATIONAL.sub(PII, text)
    return text
