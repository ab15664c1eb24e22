"""An inbox as lines on a screen of any size: what waits, the whole of one, what was said, the keys.

Rules:
- The selected ask is always in sight, whatever the size; what does not fit is said, and can be
  scrolled to.
- What came from outside is harmless before it gets here (`ask_lines.py`, `words.py`).

It neither knows a terminal nor writes to one, and changes nothing but how far one can scroll.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import datetime

from rich.console import Console
from rich.text import Text

from kimiaepd.views import ask_lines, words
from kimiaepd.views.asks import Ask
from kimiaepd.views.inbox import LETTERS, Entry, Inbox, refusing

NARROW = 50
"""Columns below which rows have no session."""

_LEFT_WIDTH = 7
_RULER = Console(file=io.StringIO(), width=80)
_HELP = "Tool calls wait here while the gate is on. How it stands says: kimiaepd status"
_GAP = "   "


def page(inbox: Inbox, now: datetime, width: int, height: int) -> list[Text]:
    """The lines, from the top; at most `height`.

    Args:
        inbox: looked at before (`Inbox.look`).
        now: by the clock that deadlines are told by.
        width: columns.
        height: lines.
    """
    top = [_head(inbox)]
    bottom = _cut(_bottom(inbox, width), height - 2)
    room = height - len(top) - len(bottom)
    ask = inbox.ask
    if ask is None:
        body = _wrapped(_HELP, width, "dim") if inbox.is_ready else []
    else:
        rows = _rows(inbox, now, width, max(1, min(len(inbox.rows), (room - 1) // 3)))
        body = [*rows, *_whole(inbox, ask, width, room - len(rows))]
    body = body[: max(0, room)]
    blank = [Text() for _ in range(room - len(body))]
    lines = [*top, *body, *blank, *bottom][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _head(inbox: Inbox) -> Text:
    if inbox.lost is not None:
        return Text(f"connection lost, trying again: {words.harmless(inbox.lost)}", "bold red")
    if not inbox.is_ready:
        return Text("looking ...", "dim")
    if not inbox.rows:
        return Text("nothing waits", "bold")
    count = sum(ask.is_answerable for ask in inbox.rows)
    looked_at = len(inbox.rows) - count
    said = f"{count} {'asks wait' if count != 1 else 'ask waits'}"
    return Text(f"{said}, {looked_at} more to look at" if looked_at else said, "bold")


def _rows(inbox: Inbox, now: datetime, width: int, count: int) -> list[Text]:
    """The rows around the selected one."""
    first = max(0, min(inbox.place - count // 2, len(inbox.rows) - count))
    return [_row(inbox, ask, now, width) for ask in inbox.rows[first : first + count]]


def _row(inbox: Inbox, ask: Ask, now: datetime, width: int) -> Text:
    is_selected = ask.key == inbox.selected
    left = "sent" if ask.key in inbox.sending else ask_lines.left(ask, now)
    session = "" if width < NARROW else f"{words.short(ask.session):<{words.SHORT}}  "
    return Text.assemble(
        ("> " if is_selected else "  ", "bold"),
        (f"{left:>{_LEFT_WIDTH}}  ", ask_lines.style(ask, now)),
        (session, "green"),
        (ask_lines.matter(ask), "bold" if is_selected else ""),
    )


def _whole(inbox: Inbox, ask: Ask, width: int, room: int) -> list[Text]:
    """All of the selected ask, as much as there is room for, from where it was scrolled to."""
    if room < 2:  # noqa: PLR2004 - a rule and one line
        return []
    lines = [line for one in ask_lines.prompt_lines(ask) for line in _wrapped(one, width)]
    lines += _wrapped(_about(ask), width, "dim")
    room -= 1
    inbox.scroll = max(0, min(inbox.scroll, len(lines) - room))
    shown = lines[inbox.scroll : inbox.scroll + room]
    hidden = len(lines) - inbox.scroll - len(shown)
    if hidden:
        shown[-1] = Text(f"... {hidden + 1} more lines: space", "bold yellow")
    return [Text("-" * width, "dim"), *shown]


def _about(ask: Ask) -> str:
    parts = [f"session {words.harmless(ask.session)}"]
    parts += [f"run {words.harmless(ask.run)}"] if ask.run else []
    parts += [f"until {words.local(ask.expires_at):%H:%M:%S}"] if ask.expires_at else []
    return ", ".join(parts)


def _bottom(inbox: Inbox, width: int) -> list[Text]:
    notices = [
        line
        for notice in inbox.notices
        for line in _wrapped(notice.text, width, "red" if notice.is_bad else "cyan")
    ]
    if inbox.entry:
        return [*notices, *_entry(inbox, inbox.entry, width)]
    return [*notices, *_side_by_side(_keys(inbox.ask), width)]


def _keys(ask: Ask | None) -> Iterable[tuple[str, str]]:
    """The keys that do something now, and what."""
    if ask and ask.is_answerable:
        for number, option in enumerate(ask.options, 1):
            label = option.id if option.label.isdigit() else option.label
            yield LETTERS.get(option.id, str(number)), words.harmless(label)
        if refusing(ask):
            yield "r", "deny with a reason"
        yield "t", "answer in words"
    yield "j k", "move"
    yield "space", "more"
    yield "q", "quit"


def _side_by_side(pairs: Iterable[tuple[str, str]], width: int) -> list[Text]:
    """Keys and what they do, as many in a line as there is room for."""
    lines: list[Text] = []
    for key, does in pairs:
        one = Text.assemble((key, "reverse"), f" {does}")
        if lines and lines[-1].cell_len + len(_GAP) + one.cell_len <= width:
            lines[-1].append(_GAP).append_text(one)
        else:
            lines.append(one)
    return lines


def _entry(inbox: Inbox, entry: Entry, width: int) -> list[Text]:
    is_over = entry.ask.key in inbox.asks.ended
    asked = {
        "reason": "Why? Enter denies, Escape goes back.",
        "text": "Words that are no option deny. Enter sends, Escape goes back.",
    }[entry.kind]
    typed = _wrapped(f"{ask_lines.whole(entry.typed)}_", width, "bold")
    said = "It is over: nothing will be sent. Escape goes back." if is_over else asked
    return [*_wrapped(said, width, "red" if is_over else "reverse"), *typed]


def _wrapped(text: str, width: int, style: str = "") -> list[Text]:
    return list(Text(text, style).wrap(_RULER, max(1, width), overflow="fold")) or [Text()]


def _cut(lines: list[Text], most: int) -> list[Text]:
    """The last lines, where there is no room for all."""
    return lines[max(0, len(lines) - most) :] if most > 0 else []
