"""Kimi's config.toml as it stands: what it says, where its hooks are, and which of them are ours.

Rules:
- Everything is checked twice: what `tomllib` says of the whole file, and what it says of each
  `[[hooks]]` table cut out by itself, must agree. A file where they differ is refused, not guessed.
- Ours is an entry whose command has our shape (`command.Command.recognise`), wherever it stands.

It changes nothing (`config_edit.py`) and opens no file (`config_file.py`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping

from attrs import frozen

from kimiaepd.setup.command import Command, Entry
from kimiaepd.setup.toml_statements import Header, Kind, Statement, header, statements

BOM = b"\xef\xbb\xbf"

_HOOKS = Header(("hooks",), is_array=True)
# Spares a file of ten thousand tables as many parses; a quoted key can spell anything.
_MAY_BE_HOOKS = re.compile(rb"[ \t]*\[\[?[ \t]*(?:hooks|[\"'])")
_MEANWHILE = "the daemon itself can run meanwhile: kimiaepd run"
_AT_THE_END = "(at end of document)"
_SAID_LINE = re.compile(r" \(at line (\d+), column \d+\)")


class EditRefusedError(Exception):
    """The file cannot be edited safely; nothing was changed.

    Attributes:
        line: where, from 1; None where it is the whole file.
        reason: what stands there.
        remedy: what the person can do.
    """

    def __init__(self, line: int | None, reason: str, remedy: str) -> None:
        super().__init__(f"{f'line {line}: ' if line else ''}{reason}; {remedy}")
        self.line = line
        self.reason = reason
        self.remedy = remedy


@frozen
class Hook:
    """One hook of the file.

    Attributes:
        values: the table as it parsed.
        line: where it begins; for a hook in an inline array, where the array begins.
        statements: its header and everything that belongs to it; empty in an inline array.
        ours: what it runs, if its command has our shape.
    """

    values: Mapping[str, object]
    line: int
    statements: tuple[Statement, ...] = ()
    ours: Command | None = None

    def entry(self) -> Entry | None:
        """The hook as an entry that we could have written, else None."""
        event, command, timeout = (self.values.get(key) for key in ("event", "command", "timeout"))
        if isinstance(event, str) and isinstance(command, str) and type(timeout) is int:
            return Entry(event, command, timeout) if len(self.values) == 3 else None  # noqa: PLR2004
        return None


@frozen
class ConfigText:
    """One state of the file.

    Attributes:
        raw: its bytes.
        data: what they mean.
        statements: every line of it.
        hooks: the hooks in their order.
        placeholder: a line `hooks = []`, which no `[[hooks]]` table can follow.
        bad_hooks: why no such table can follow, where the line is not all there is to it.
    """

    raw: bytes
    data: Mapping[str, object]
    statements: tuple[Statement, ...]
    hooks: tuple[Hook, ...]
    placeholder: Statement | None = None
    bad_hooks: EditRefusedError | None = None

    def foreign(self) -> str:
        """Everything that is not ours, spelt so that equal means equal: NaN, -0.0, and order."""
        rest = dict(self.data)
        if isinstance(rest.get("hooks"), list):
            del rest["hooks"]
        return repr((rest, [hook.values for hook in self.hooks if not hook.ours]))

    def first_line_with(self, is_wrong: Callable[[object], bool]) -> int | None:
        """The line of the first key whose value is wrong; None where no value is."""
        if is_wrong(self.data):
            for line in self.statements:
                text = self.raw[line.start : line.end].decode("utf-8")
                if line.kind is Kind.PAIR and is_wrong(tomllib.loads(text)):
                    return line.line
        return None

    def stranger(self, hook: Hook, keys: tuple[str, ...]) -> tuple[int, str] | None:
        """The line and name of the first key of a hook that is none of `keys`."""
        for statement in hook.statements:
            path = _path(self.raw, statement)
            if statement.kind is Kind.HEADER:
                path = path[1:]
            if path and path[0] not in keys:
                return statement.line, path[0]
        return None


def read(raw: bytes) -> ConfigText:
    """Read a file.

    Raises:
        EditRefusedError: it is not TOML.
    """
    data = _parse(raw)
    lines = tuple(statements(raw, len(BOM) if raw.startswith(BOM) else 0))
    found = data.get("hooks", [])
    tables = _hook_tables(raw, lines)
    line = _hooks_line(raw, lines) if "hooks" in data and not tables else None
    if not isinstance(found, list) or not all(isinstance(hook, dict) for hook in found):
        refused = _not_tables(raw, line, "no array of tables")
        return ConfigText(raw, data, lines, (), bad_hooks=refused)
    if line:
        if not found and b"\n" not in raw[line.start : line.end]:
            return ConfigText(raw, data, lines, (), placeholder=line)
        what = "an inline array" if found else "an empty array over several lines"
        refused = _not_tables(raw, line, what, is_empty=not found)
        inline = tuple(Hook(hook, line.line, (), _ours(hook)) for hook in found)
        return ConfigText(raw, data, lines, inline, bad_hooks=refused)
    _agree(raw, tables, found)
    hooks = tuple(
        Hook(values, table[0].line, tuple(table), _ours(values))
        for values, table in zip(found, tables, strict=True)
    )
    return ConfigText(raw, data, lines, hooks)


def _parse(raw: bytes) -> dict[str, object]:
    text = raw.removeprefix(BOM)
    # The CLI also reads TOML 1.1 (0.28.0 and 2.1.0 do), which tomllib learns with Python 3.15.
    remedy = (
        "mend that line, or write it as TOML 1.0 if kimi itself reads it (`kimi doctor` says), then"
        " run this again"
    )
    try:
        return tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise EditRefusedError(line, "not UTF-8", "save the file as UTF-8") from None
    except RecursionError:
        raise EditRefusedError(None, "nested too deep to read", "simplify it") from None
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        said = str(error)
        at = _SAID_LINE.search(said)
        last = text.count(b"\n") + 1 if _AT_THE_END in said else None
        reason = f"not TOML: {_SAID_LINE.sub('', said)}"
        raise EditRefusedError(int(at[1]) if at else last, reason, remedy) from None


def _hook_tables(raw: bytes, lines: tuple[Statement, ...]) -> list[list[Statement]]:
    """The statements of each `[[hooks]]` table; sub-tables belong to the last one before them."""
    tables: list[list[Statement]] = []
    inside = False
    for statement in lines:
        if statement.kind is Kind.HEADER:
            inside = False
            if _MAY_BE_HOOKS.match(raw, statement.start):
                named = header(raw[statement.start : statement.end])
                if named == _HOOKS:
                    tables.append([])
                inside = bool(tables) and named.path[0] == "hooks"
        if inside and statement.kind in (Kind.HEADER, Kind.PAIR):
            tables[-1].append(statement)
    return tables


def _agree(raw: bytes, tables: list[list[Statement]], found: list[dict[str, object]]) -> None:
    cut_out = [
        tomllib.loads(b"\n".join(raw[line.start : line.end] for line in table).decode("utf-8"))[
            "hooks"
        ][0]
        for table in tables
    ]
    if repr(cut_out) != repr(found):
        line = tables[0][0].line if tables else None
        raise EditRefusedError(
            line, "its hooks cannot be told apart with certainty", "write them as plain [[hooks]]"
        )


def _not_tables(
    raw: bytes, line: Statement | None, what: str, *, is_empty: bool = False
) -> EditRefusedError:
    """The refusal, with the line where `hooks` begins."""
    if line is None:
        place = "it"
    elif line.kind is Kind.HEADER:
        place = f"the table at line {line.line}"
    else:
        place = _these_lines(raw, line)
    written = "" if is_empty else ", write each of its hooks as a [[hooks]] table at the file's end"
    return EditRefusedError(
        line.line if line else None,
        f"`hooks` is {what}, and no [[hooks]] table can follow it",
        f"delete {place}{written}, then run this again; {_MEANWHILE}",
    )


def _hooks_line(raw: bytes, lines: tuple[Statement, ...]) -> Statement | None:
    """Where `hooks` begins: a key before any header, or a header."""
    at_top = True
    for statement in lines:
        if statement.kind is Kind.HEADER:
            at_top = False
        elif statement.kind is not Kind.PAIR or not at_top:
            continue
        if _path(raw, statement)[0] == "hooks":
            return statement
    return None


def _these_lines(raw: bytes, statement: Statement) -> str:
    last = statement.line + raw.count(b"\n", statement.start, statement.end)
    return f"lines {statement.line} to {last}" if last > statement.line else f"line {last}"


def _path(raw: bytes, statement: Statement) -> tuple[str, ...]:
    """What a header names, or the first part of a pair's key."""
    part = raw[statement.start : statement.end]
    if statement.kind is Kind.HEADER:
        return header(part).path
    return (next(iter(tomllib.loads(part.decode("utf-8")))),)


def _ours(values: Mapping[str, object]) -> Command | None:
    command = values.get("command")
    return Command.recognise(command) if isinstance(command, str) else None
