"""Our block in config.toml: how it is spelt, where it stands, and how it is cut in and out.

Rules:
- A new block stands at the end of the file, after a blank line (in a file that has any line), in
  the file's own newline. The end of the file stays as it was, with a final newline or without:
  so `take_out` can give back the very bytes.
- Ours is line by line: the lines of our entries and our two marker lines. A comment that somebody
  put among them stays; one at the end of a line of ours stays too, on a line of its own.
- The markers are for people; nothing depends on them.

It reads nothing back and refuses nothing: `config_edit.py` holds every result against what it must
be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import tomlkit
from attrs import frozen

from kimiaepd.setup.command import Entry
from kimiaepd.setup.config_text import BOM, ConfigText
from kimiaepd.setup.splice import Splice, apply
from kimiaepd.setup.toml_statements import Kind, Statement, comments

OPEN = b"# >>> kimiaepd >>>"
CLOSE = b"# <<< kimiaepd <<<"

_OPEN_LINE = OPEN + b" kept by `kimiaepd setup`, which also removes it"
_CLOSE_LINE = CLOSE + b" new keys go above this block, or kimi takes them for its last hook's"

_NEWLINE = re.compile(rb"\r?\n")


@frozen
class Run:
    """A stretch of the file that is ours, from the start of a line to before a newline.

    Attributes:
        has_entry: whether there is more to it than markers.
        remarks: what others wrote at the ends of its lines.
    """

    start: int
    end: int
    has_entry: bool = False
    remarks: tuple[bytes, ...] = ()


def find(config: ConfigText) -> list[Run]:
    """Our lines, joined where only blank lines are between them."""
    entries = _entry_lines(config)
    runs: list[Run] = []
    joined = False
    for line in config.statements:
        is_entry = line.start in entries
        if is_entry or _is_marker(config.raw, line):
            run = runs.pop() if joined else Run(line.start, line.end)
            remarks = run.remarks
            if is_entry:
                found = comments(config.raw, line)
                remarks += tuple(config.raw[remark.start : remark.end] for remark in found)
            runs.append(Run(run.start, line.end, run.has_entry or is_entry, remarks))
            joined = True
        elif line.kind is not Kind.BLANK:
            joined = False
    return runs


def others(config: ConfigText) -> Iterator[Statement]:
    """Every line that is not ours and not blank, and every comment on one of ours."""
    entries = _entry_lines(config)
    for line in config.statements:
        if line.start in entries:
            yield from comments(config.raw, line)
        elif line.kind is not Kind.BLANK and not _is_marker(config.raw, line):
            yield line


def put(raw: bytes, runs: list[Run], wanted: tuple[Entry, ...]) -> bytes:
    """The file with one block: where the first entry of ours stands, else at the end."""
    newline = _newline(raw)
    block = _render(wanted, newline)
    # A marker that stands alone may have lost its place, so nothing is put there.
    place = next((run for run in runs if run.has_entry), None)
    if place is None:
        return _append(apply(raw, take_out(raw, runs)), block, newline)
    here = Splice(place.start, place.end, newline.join((block, *place.remarks)))
    return apply(raw, [here, *take_out(raw, [run for run in runs if run is not place])])


def take_out(raw: bytes, runs: list[Run]) -> list[Splice]:
    """The cuts that leave the file without our lines."""
    newline = _newline(raw)
    return [
        Splice(run.start, run.end, newline.join(run.remarks)) if run.remarks else _cut(raw, run)
        for run in runs
    ]


def _entry_lines(config: ConfigText) -> set[int]:
    return {line.start for hook in config.hooks if hook.ours for line in hook.statements}


def _is_marker(raw: bytes, line: Statement) -> bool:
    text = raw[line.start : line.end].strip()
    return line.kind is Kind.COMMENT and text.startswith((OPEN, CLOSE))


def _newline(raw: bytes) -> bytes:
    """The newline of the file's last line; LF for a file without any."""
    last = raw.rfind(b"\n")
    return b"\r\n" if last > 0 and raw[last - 1 : last] == b"\r" else b"\n"


def _render(wanted: tuple[Entry, ...], newline: bytes) -> bytes:
    """Our lines with their markers, without a newline at the end."""
    lines = [_OPEN_LINE]
    for entry in wanted:
        lines += [
            b"[[hooks]]",
            b"event = " + _toml(entry.event),
            b"command = " + _toml(entry.command),
            b"timeout = %d" % entry.timeout,
            b"",
        ]
    return newline.join([*lines[:-1], _CLOSE_LINE])


def _toml(text: str) -> bytes:
    return tomlkit.string(text).as_string().encode("utf-8")


def _append(old: bytes, block: bytes, newline: bytes) -> bytes:
    if old in (b"", BOM):
        return old + block + newline
    if old.endswith(b"\n"):
        return old + newline + block + newline
    return old + newline + newline + block


def _cut(raw: bytes, run: Run) -> Splice:
    """Cut a run, its newline, and the blank line that we put before it."""
    start = run.start - _newline_before(raw, run.start)
    if not _newline_before(raw, start):  # what stands before is no blank line
        start = run.start
    if newline := _NEWLINE.match(raw, run.end):
        return Splice(start, newline.end())
    # The file ends here as it did before us: without a newline.
    return Splice(start - _newline_before(raw, start), run.end)


def _newline_before(raw: bytes, position: int) -> int:
    """How long the newline is that ends there; 0 where none does."""
    if raw[max(position - 2, 0) : position] == b"\r\n":
        return 2
    return 1 if raw[max(position - 1, 0) : position] == b"\n" else 0
