"""The inbox as a person works with it: which ask is selected, what a key does, what was said.

Rules:
- A key answers the ask that is selected. Where that moved by itself, keys that answer are not taken
  for `SETTLE_SECONDS`: one that was meant for an ask that has just gone must not allow the next.
- Only what was typed by itself answers. What was pasted, or typed ahead in a heap, does not.
- An ask that ends while its reason is being typed does not end the typing: the letters that follow
  would be keys.
- An answer is sent once. What comes of it, and of asks that end by themselves, is said.

Pure: moments are arguments. Where it stands on a screen is `inbox_page.py`'s business.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Literal, TypeAlias

from attrs import define, field, frozen

from kimiaepd.gate.answers import Option
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.views import reasons, words
from kimiaepd.views.asks import Ask, Asks, Ended
from kimiaepd.views.asks import Key as AskKey
from kimiaepd.views.desk import Verdict
from kimiaepd.views.keys import Key, Pressed, Text
from kimiaepd.views.orders import ONLY_LOOKED_AT

SETTLE_SECONDS = 0.5
"""How long a person takes to see that something else is selected."""

LONGEST_TYPED = 4_000
"""Characters of a reason, as the model is given at most."""

NOTICES = 3
"""Of what was said last, so many are shown."""

LETTERS = {
    "allow": "a", "approved": "a", "allow_session": "s", "approved_session": "s",
    "deny": "d", "rejected": "d", "cancel": "c",
}  # fmt: skip
"""The letter of each option that we know; every option has its number besides."""

REFUSING = ("deny", "rejected", "cancel")
"""The options that a reason goes with: the first of these that is offered."""


@frozen
class Notice:
    """Something that was said."""

    text: str
    is_bad: bool = False


@define
class Entry:
    """Words that are being typed.

    Attributes:
        kind: why a call is refused, or an answer of its own.
        ask: what they are about.
        typed: so far.
    """

    kind: Literal["reason", "text"]
    ask: Ask
    typed: str = field(default="", repr=False)


@frozen
class Send:
    """An answer is to be sent."""

    ask: Ask
    answer: JSONObject


@frozen
class Quit:
    """The person has done."""


Action: TypeAlias = Send | Quit | None


@define(eq=False)
class Inbox:
    """One inbox.

    Attributes:
        asks: what waits.
        rows: what is listed, as of the last look.
        selected: the ask that keys are about.
        entry: the words that are being typed; None: keys are keys.
        scroll: how many lines of the selected ask are above what is shown.
        notices: what was said last.
        sending: the asks whose answer is on its way.
        is_ready: whether what the relay holds has come.
        lost: why there is no connection now.
        moved_at: when the selection moved by itself.
    """

    asks: Asks
    rows: list[Ask] = field(factory=list)
    selected: AskKey | None = None
    entry: Entry | None = None
    scroll: int = 0
    notices: deque[Notice] = field(factory=lambda: deque(maxlen=NOTICES))
    sending: set[AskKey] = field(factory=set)
    is_ready: bool = False
    lost: str | None = None
    moved_at: float = float("-inf")

    # --- looking ---------------------------------------------------------------------------------

    def look(self, now: datetime, at: float) -> None:
        """List what waits.

        Args:
            now: by the clock that deadlines are told by.
            at: the same moment in seconds of a clock that only goes forward.
        """
        place = self.place
        self.rows = self.asks.listed(now) if self.is_ready else []
        if any(ask.key == self.selected for ask in self.rows):
            return
        self.scroll = 0
        self.moved_at = at
        self.selected = self.rows[min(place, len(self.rows) - 1)].key if self.rows else None

    @property
    def place(self) -> int:
        """Where in the list the selected ask stands."""
        return next((n for n, ask in enumerate(self.rows) if ask.key == self.selected), 0)

    @property
    def ask(self) -> Ask | None:
        """The selected ask."""
        return next((ask for ask in self.rows if ask.key == self.selected), None)

    # --- keys ------------------------------------------------------------------------------------

    def press(self, pressed: Pressed, at: float) -> Action:
        """Take a key; what is to be done by it.

        Args:
            pressed: the key.
            at: when, as `look` was told.
        """
        if self.entry:
            return self._type(self.entry, pressed)
        if isinstance(pressed, Key):
            self._move(pressed)
            return None
        if not pressed.is_key:
            self.say("that was pasted, or typed ahead, and not taken for keys", is_bad=True)
            return None
        return self._letter(pressed.text, at)

    def _move(self, key: Key) -> None:
        moves = {Key.UP: -1, Key.DOWN: 1, Key.HOME: -len(self.rows), Key.END: len(self.rows)}
        if key in moves and self.rows:
            place = max(0, min(self.place + moves[key], len(self.rows) - 1))
            self.selected, self.scroll = self.rows[place].key, 0
            self.moved_at = float("-inf")
        elif key in (Key.PAGE_DOWN, Key.PAGE_UP):
            self.scroll = max(0, self.scroll + (5 if key == Key.PAGE_DOWN else -5))

    def _letter(self, letter: str, at: float) -> Action:
        moves = {"j": Key.DOWN, "k": Key.UP, "g": Key.HOME, "G": Key.END,
                 " ": Key.PAGE_DOWN, "b": Key.PAGE_UP}  # fmt: skip
        if letter == "q":
            return Quit()
        if letter in moves:
            self._move(moves[letter])
        elif self.ask and (letter in "rt" or option_of(self.ask, letter)):
            return self._about(self.ask, letter, at)
        return None

    def _about(self, ask: Ask, letter: str, at: float) -> Action:
        if at - self.moved_at < SETTLE_SECONDS:
            self.say("something else is selected now: look, and press again", is_bad=True)
        elif not ask.is_answerable:
            self.say(ONLY_LOOKED_AT, is_bad=True)
        elif ask.key in self.sending:
            self.say("your answer is on its way", is_bad=True)
        elif letter == "t":
            self.entry = Entry("text", ask)
        elif letter == "r":
            if refusing(ask):
                self.entry = Entry("reason", ask)
        elif option := option_of(ask, letter):
            return self._send(ask, {"option": option.id})
        return None

    def _type(self, entry: Entry, pressed: Pressed) -> Action:
        match pressed:
            case Text(text):
                entry.typed = (entry.typed + text)[:LONGEST_TYPED]
            case Key.BACKSPACE:
                entry.typed = entry.typed[:-1]
            case Key.WORD:
                entry.typed = "".join(entry.typed.rstrip().rpartition(" ")[:2])
            case Key.CLEAR:
                entry.typed = ""
            case Key.ESCAPE:
                self.entry = None
            case Key.ENTER:
                return self._entered(entry)
        return None

    def _entered(self, entry: Entry) -> Action:
        ask, typed = entry.ask, entry.typed.strip()
        if ending := self.asks.ended.get(ask.key):
            self.entry = None
            self._tell(ask, reasons.late(ending), is_bad=True)
            return None
        if entry.kind == "text":
            if not typed:
                return None
            self.entry = None
            return self._send(ask, {"text": typed})
        self.entry = None
        option = refusing(ask)
        said: JSONObject = {"text": typed} if typed else {}
        return self._send(ask, {"option": option.id, **said}) if option else None

    def _send(self, ask: Ask, answer: JSONObject) -> Send:
        self.sending.add(ask.key)
        return Send(ask, answer)

    # --- what is said ----------------------------------------------------------------------------

    def say(self, text: str, *, is_bad: bool = False) -> None:
        """Say something; the same again only once."""
        notice = Notice(text, is_bad)
        if not self.notices or self.notices[-1] != notice:
            self.notices.append(notice)

    def told(self, ask: Ask, verdict: Verdict) -> None:
        """Say what came of an answer."""
        self.sending.discard(ask.key)
        self._tell(ask, verdict.why, is_bad=verdict.result != "accepted")

    def ended(self, ended: Ended) -> None:
        """Say how an ask ended that nobody answered here."""
        ask = ended.ask
        if self.is_ready and ask.is_answerable and ask.key not in self.sending:
            self._tell(ask, reasons.ended(ended.ending))

    def _tell(self, ask: Ask, text: str, *, is_bad: bool = False) -> None:
        tool = f" {words.harmless(ask.tool)}" if ask.tool else ""
        self.say(f"{words.short(ask.session)}{tool}: {text}", is_bad=is_bad)


def option_of(ask: Ask, letter: str) -> Option | None:
    """The option that a letter or a number stands for."""
    if letter.isascii() and letter.isdigit():
        place = int(letter) - 1
        return ask.options[place] if 0 <= place < len(ask.options) else None
    found = [option for option in ask.options if LETTERS.get(option.id) == letter]
    return found[0] if len(found) == 1 else None


def refusing(ask: Ask) -> Option | None:
    """The option that a reason goes with."""
    offered = {option.id: option for option in ask.options}
    return next((offered[one] for one in REFUSING if one in offered), None)
