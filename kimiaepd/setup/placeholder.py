"""An empty `hooks = []`: set aside while our tables stand in the file, and put back after them.

No `[[hooks]]` table can follow that line, and a file that somebody seeded may have it. So an
install turns it, where it stands, into a comment that says what it was:

    # kimiaepd set aside until its hooks are removed: hooks = []  # whatever stood behind it

Rules:
- Everything after the colon is the line itself, its indentation too, so an uninstall can give the
  very bytes back.
- It comes back only where it means again what it meant: no hook of anybody's is left, and no table
  begins above it. Else it stays out, and of the line only the person's own comment stays.
- A comment that begins as ours does but holds anything else is the person's.

An array that is not empty, or that stands on several lines, is refused (`config_text.py`).
"""

from __future__ import annotations

import tomllib

from kimiaepd.setup.config_text import ConfigText
from kimiaepd.setup.splice import Splice
from kimiaepd.setup.toml_statements import Kind, Statement, line_after

PREFIX = b"# kimiaepd set aside until its hooks are removed: "


def set_aside(raw: bytes, line: Statement) -> bytes:
    """The file with its placeholder as a comment of ours."""
    return raw[: line.start] + PREFIX + raw[line.start :]


def put_back(config: ConfigText) -> list[Splice]:
    """Make every line that was set aside what it was, or what may be left of it.

    Args:
        config: the file from which all hooks of ours are about to go.
    """
    fits = not config.placeholder and all(hook.ours for hook in config.hooks)
    fits = fits and not config.bad_hooks
    ours = {line.start for hook in config.hooks for line in hook.statements if hook.ours}
    made = []
    for line in config.statements:
        if line.kind is Kind.HEADER and line.start not in ours:
            fits = False
        kept = _kept(config.raw, line)
        if kept is None:
            continue
        if fits:
            made.append(Splice(line.start, line.end, kept))
            fits = False
        elif comment := _remark(kept):
            made.append(Splice(line.start, line.end, comment))
        else:
            made.append(Splice(line.start, line_after(config.raw, line)))
    return made


def remark(config: ConfigText, line: Statement) -> bytes:
    """What of a line must stand in the file whatever is set aside or put back.

    That is the line itself, for all but a placeholder: of this, the comment behind it.
    """
    text = config.raw[line.start : line.end]
    if line == config.placeholder:
        return _remark(text)
    kept = _kept(config.raw, line)
    return text if kept is None else _remark(kept)


def _kept(raw: bytes, line: Statement) -> bytes | None:
    """The line that a comment of ours holds; None for any other line."""
    text = raw[line.start : line.end].lstrip()
    if line.kind is not Kind.COMMENT or not text.startswith(PREFIX):
        return None
    kept = text.removeprefix(PREFIX)
    try:
        return kept if tomllib.loads(kept.decode("utf-8")) == {"hooks": []} else None
    except ValueError:
        return None


def _remark(kept: bytes) -> bytes:
    _, sign, comment = kept.partition(b"#")
    return sign + comment
