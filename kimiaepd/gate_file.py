"""Edits of the gate's part of our own config.toml: bytes in, bytes out, or a refusal.

Rules:
- A rule is appended at the end of the file, and its own lines alone are taken out again. A value is
  replaced where it stands. Every other byte stays, comments and line ends with them: tomlkit writes
  the values, but a whole file that it reads and writes again can lose order and comments.
- Every result is read back before it is handed out: it is TOML, and means what it meant but for the
  one thing. What cannot be edited so (rules in an inline array, the gate as an inline table) is
  refused, with what to do.
- The file is TOML already: whoever edits has loaded the settings.

It touches no file: `setup/config_file.py` writes. What a rule may say is `policy.py`'s business.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import tomlkit
from attrs import frozen

from kimiaepd import gate_rules
from kimiaepd.policy import Rule
from kimiaepd.setup.splice import Splice, apply
from kimiaepd.setup.toml_statements import Kind, Statement, header, line_after, statements

_Tree: TypeAlias = "dict[str, object]"

_BARE = re.compile("[A-Za-z0-9_-]+")


class GateFileError(ValueError):
    """The edit cannot be made without loss; the words say why and what to do."""


def with_rule(raw: bytes, rule: Rule, session: str | None = None) -> bytes:
    """The file with one more rule, for everything or for one session.

    Raises:
        GateFileError: the rules do not stand in tables of their own.
    """
    path = (*_place(session), "rules")
    said = gate_rules.table(rule)
    wanted = _tree(raw)
    rules = _within(wanted, path[:-1]).setdefault("rules", [])
    if isinstance(rules, list):
        rules.append(copy.deepcopy(said))
    lines = f"[[{_dotted(path)}]]\n{_pairs(said)}"
    remedy = f"write the rules that are there as tables, each under [[{_dotted(path)}]]"
    return _checked(_appended(raw, lines), wanted, remedy)


def without_rule(raw: bytes, rule_id: str) -> bytes:
    """The file without the rule of this id; the very file where it has none.

    Raises:
        GateFileError: the rule does not stand in a table of its own.
    """
    wanted = _tree(raw)
    if not _take_out(wanted, rule_id):
        return raw
    cuts = [
        Splice(block.start, block.end)
        for block in _blocks(raw)
        if any(rule.get("id") == rule_id for rule in block.rules)
    ]
    return _checked(apply(raw, cuts), wanted, f"take the rule {rule_id} out of it by hand")


def with_value(
    raw: bytes, key: str, value: str | Sequence[str], session: str | None = None
) -> bytes:
    """The file with one key of the gate, or of one session of it, set.

    Raises:
        GateFileError: the gate is no table of its own.
    """
    path = _place(session)
    said = value if isinstance(value, str) else list(value)
    wanted = _tree(raw)
    _within(wanted, path)[key] = said
    place = _replaced(raw, (*path, key), said) or _inserted(raw, path, {key: said})
    new = (
        place if place is not None else _appended(raw, f"[{_dotted(path)}]\n{_pairs({key: said})}")
    )
    return _checked(new, wanted, f"set {_dotted((*path, key))} by hand")


# --- meaning ---


def _place(session: str | None) -> tuple[str, ...]:
    return ("gate",) if session is None else ("gate", "sessions", session)


def _tree(raw: bytes) -> _Tree:
    return tomllib.loads(raw.decode("utf-8"))


def _within(tree: _Tree, path: Sequence[str]) -> _Tree:
    for name in path:
        inner = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            raise GateFileError(f"{_dotted(path)} is no table; write it as one")
        tree = inner
    return tree


def _take_out(wanted: _Tree, rule_id: str) -> bool:
    """Take a rule out of what the file means; whether there was one."""
    gate = _within(wanted, ("gate",))
    sessions = gate.get("sessions")
    owners = [gate, *(sessions.values() if isinstance(sessions, dict) else ())]
    for owner in owners:
        rules = owner.get("rules", []) if isinstance(owner, dict) else []
        kept = [rule for rule in rules if rule.get("id") != rule_id]
        if len(kept) < len(rules):
            owner["rules"] = kept
            return True
    return False


def _checked(new: bytes, wanted: _Tree, remedy: str) -> bytes:
    """The result, once it is seen to mean what it shall."""
    try:
        found = _tree(new)
    except tomllib.TOMLDecodeError:
        found = None
    if found is None or _without_nothing(found) != _without_nothing(wanted):
        raise GateFileError(f"the gate is written in a way that cannot be edited here; {remedy}")
    return new


def _without_nothing(tree: _Tree) -> _Tree:
    """What a file means, without tables and rules that are empty: they say nothing."""
    gate = tree.get("gate")
    return {**tree, "gate": _full(gate)} if isinstance(gate, dict) else {**tree, "gate": {}}


def _full(table: _Tree) -> _Tree:
    inner = {key: _full(one) if isinstance(one, dict) else one for key, one in table.items()}
    return {
        key: one for key, one in inner.items() if one != {} and not (key == "rules" and one == [])
    }


# --- text ---


def _dotted(path: Sequence[str]) -> str:
    return ".".join(
        name if _BARE.fullmatch(name) else tomlkit.item(name).as_string() for name in path
    )


def _pairs(said: _Tree) -> str:
    """Keys and values, a line each; a table in one line."""
    document = tomlkit.document()
    for key, value in said.items():
        if isinstance(value, dict):
            table = tomlkit.inline_table()
            table.update(value)
            document.add(key, table)
        else:
            document.add(key, tomlkit.item(value))
    return tomlkit.dumps(document)


def _line_ends(raw: bytes, lines: str) -> bytes:
    """Lines with the line ends that the file has."""
    return lines.encode().replace(b"\n", b"\r\n" if b"\r\n" in raw else b"\n")


def _appended(raw: bytes, lines: str) -> bytes:
    ended = not raw or raw.endswith(b"\n")
    before = "" if not raw else "\n" if ended else "\n\n"
    return raw + _line_ends(raw, before + lines)


def _replaced(raw: bytes, path: tuple[str, ...], value: str | list[str]) -> bytes | None:
    """The file with another value for a key that it has; None where it has none."""
    at: tuple[str, ...] = ()
    for statement in statements(raw):
        text = raw[statement.start : statement.end]
        if statement.kind is Kind.HEADER:
            at = header(text).path
            continue
        is_near = statement.kind is Kind.PAIR and path[: len(at)] == at
        new = _other_value(text, path[len(at) :], value) if is_near else None
        if new is not None:
            return apply(raw, [Splice(statement.start, statement.end, new)])
    return None


def _other_value(text: bytes, path: tuple[str, ...], value: str | list[str]) -> bytes | None:
    document = tomlkit.parse(text)
    inner: object = document
    for name in path[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    if not path or not isinstance(inner, dict) or path[-1] not in inner:
        return None
    inner[path[-1]] = value
    return tomlkit.dumps(document).encode()


def _inserted(raw: bytes, path: tuple[str, ...], said: _Tree) -> bytes | None:
    """The file with a key below the header of its table; None where there is no header."""
    for statement in statements(raw):
        if statement.kind is Kind.HEADER:
            found = header(raw[statement.start : statement.end])
            if found.path == path and not found.is_array:
                line = _line_ends(raw, _pairs(said))
                after = line_after(raw, statement)
                if after == statement.end:  # the header is the last line, and has no end
                    line = _line_ends(raw, "\n") + line
                return apply(raw, [Splice(after, after, line)])
    return None


@frozen
class _Block:
    """One `[[gate.rules]]` or `[[gate.sessions.ID.rules]]`, with the blank line before it.

    Comments behind its last key are not of it: they may be about what follows.
    """

    start: int
    end: int
    rules: tuple[_Tree, ...]


def _blocks(raw: bytes) -> Iterator[_Block]:
    found = list(statements(raw))
    for place, statement in enumerate(found):
        if statement.kind is not Kind.HEADER:
            continue
        head = header(raw[statement.start : statement.end])
        if not head.is_array or head.path[:1] != ("gate",) or head.path[-1] != "rules":
            continue
        last = _last_of(raw, found[place:], head.path)
        rule: object = _tree(raw[statement.start : last.end])
        for name in head.path:
            rule = rule[name] if isinstance(rule, dict) else rule
        before = found[place - 1] if place else statement
        start = before.start if before.kind is Kind.BLANK else statement.start
        rules = tuple(rule) if isinstance(rule, list) else ()
        yield _Block(start, line_after(raw, last), rules)


def _last_of(raw: bytes, block: Sequence[Statement], path: tuple[str, ...]) -> Statement:
    """The last statement of a table, those below it included, that is no comment."""
    last = block[0]
    for statement in block[1:]:
        if statement.kind is Kind.HEADER:
            below = header(raw[statement.start : statement.end]).path
            if below[: len(path)] != path or len(below) == len(path):
                break
        if statement.kind in (Kind.HEADER, Kind.PAIR):
            last = statement
    return last
