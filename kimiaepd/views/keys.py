"""What a terminal sends, as keys: bytes in, words out.

Rules:
- A heap of letters at once was pasted, or typed ahead of what is shown: that is no key, so that
  nobody answers by it. Terminals say what was pasted where they can (bracketed paste).
- An escape sequence that nobody knows is nothing. An escape alone is the Escape key once nothing
  follows it (`settle`).
- Bytes that are no UTF-8 are U+FFFD. Nothing raises, whatever comes; what is not whole yet is
  `LONGEST` bytes at most.

Pure. Reading them is `tty_screen.py`'s business, and what they do is `inbox.py`'s.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum
from typing import TypeAlias

from attrs import define, field, frozen

LONGEST = 64
"""Characters of an escape sequence; a longer one is none."""

TYPED = 3
"""More letters than these at once were not typed one by one."""


class Key(Enum):
    """A key that is no letter."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"
    CLEAR = "clear"
    """Ctrl-U."""
    WORD = "word"
    """Ctrl-W."""
    REDRAW = "redraw"
    """Ctrl-L."""


@frozen
class Text:
    """Letters.

    Attributes:
        is_key: whether it is one letter that was typed by itself.
    """

    text: str
    is_key: bool = False


Pressed: TypeAlias = Key | Text

_SEQUENCES = {
    "[A": Key.UP, "OA": Key.UP, "[B": Key.DOWN, "OB": Key.DOWN,
    "[5~": Key.PAGE_UP, "[6~": Key.PAGE_DOWN,
    "[H": Key.HOME, "OH": Key.HOME, "[1~": Key.HOME,
    "[F": Key.END, "OF": Key.END, "[4~": Key.END,
}  # fmt: skip

_CONTROLS = {
    "\r": Key.ENTER, "\n": Key.ENTER, "\x7f": Key.BACKSPACE, "\b": Key.BACKSPACE,
    "\x15": Key.CLEAR, "\x17": Key.WORD, "\x0c": Key.REDRAW,
}  # fmt: skip

_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(O[ -~]|\[[0-?]*[ -/]*[@-~]|[^\x1b\[O])")
_BEGUN = re.compile(r"\x1b(O|\[[0-?]*[ -/]*)?")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


@define
class Keys:
    """The keys of one terminal."""

    _decoder: codecs.IncrementalDecoder = field(
        factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _rest: str = ""
    _is_pasting: bool = False

    def feed(self, data: bytes) -> list[Pressed]:
        """What was pressed; a sequence that is not whole waits for its end."""
        self._rest += self._decoder.decode(data)
        pressed: list[Pressed] = []
        while self._rest:
            if self._is_pasting:
                self._read_pasted(pressed)
                if self._is_pasting:
                    break
            elif not self._read(pressed):
                break
        return pressed

    @property
    def is_waiting(self) -> bool:
        """Whether an escape came that may be a key, or the beginning of a sequence."""
        return bool(self._rest) and not self._is_pasting

    def settle(self) -> list[Pressed]:
        """Nothing followed: an escape alone is the key; the beginning of a sequence is nothing."""
        rest, self._rest = self._rest, ""
        return [Key.ESCAPE] if rest == "\x1b" else []

    def _read(self, pressed: list[Pressed]) -> bool:
        """Take what comes next; whether that was possible."""
        first = self._rest[0]
        if first == "\x1b":
            return self._read_sequence(pressed)
        if _CONTROL.match(first):
            self._rest = self._rest[1:]
            pressed += [_CONTROLS[first]] if first in _CONTROLS else []
            return True
        found = _CONTROL.search(self._rest)
        end = found.start() if found else len(self._rest)
        letters, self._rest = self._rest[:end], self._rest[end:]
        is_heap = len(letters) > TYPED
        pressed += [Text(letters)] if is_heap else [Text(one, is_key=True) for one in letters]
        return True

    def _read_sequence(self, pressed: list[Pressed]) -> bool:
        if self._rest.startswith(_PASTE):
            self._rest, self._is_pasting = self._rest[len(_PASTE) :], True
            return True
        found = _SEQUENCE.match(self._rest)
        if found:
            self._rest = self._rest[found.end() :]
            key = _SEQUENCES.get(found[1])
            pressed += [key] if key else []
            return True
        if _BEGUN.fullmatch(self._rest) and len(self._rest) < LONGEST:
            return False
        self._rest = self._rest[1:]  # an escape, and something else after it
        pressed.append(Key.ESCAPE)
        return True

    def _read_pasted(self, pressed: list[Pressed]) -> None:
        """Take what was pasted, as one text; its end may have come in part."""
        text, end, rest = self._rest.partition(_PASTED)
        if not end:
            kept = _begun(text)
            text, rest = text[: len(text) - kept], text[len(text) - kept :]
        self._rest, self._is_pasting = rest, not end
        if letters := _CONTROL.sub(" ", text):
            pressed.append(Text(letters))


def _begun(text: str) -> int:
    """How many characters at the end may be the beginning of the mark that ends a paste."""
    return next(
        (n for n in range(min(len(_PASTED), len(text)), 0, -1) if _PASTED.startswith(text[-n:])), 0
    )
