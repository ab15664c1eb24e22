"""An inbox that runs: a relay on one side, a terminal on the other, and signals.

Rules:
- However it ends, the terminal is as it was: a key, a signal, a refused token, a defect.
- Ctrl-Z gives the terminal back before it stops, and takes it again when it goes on in the
  foreground. In the background it does nothing but stop, or end.
- Whatever happens leads to a look; what is drawn is at most `FRAME_SECONDS` old, and a countdown
  `TICK_SECONDS`.

What keys do is `inbox.py`'s business, what is seen `inbox_page.py`'s.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from math import inf

import trio
from attrs import define, field
from rich.console import Console

from kimiaepd.views.asks import Asked, Ended
from kimiaepd.views.desk import Came, Desk, wish
from kimiaepd.views.inbox import Inbox, Quit, Send
from kimiaepd.views.inbox_page import page
from kimiaepd.views.keys import Key, Keys, Pressed
from kimiaepd.views.paper import paper
from kimiaepd.views.relay import Relay
from kimiaepd.views.relay_consumer import Change, Consumer, consuming
from kimiaepd.views.tty_screen import Screen, screen

FRAME_SECONDS = 0.03
TICK_SECONDS = 0.25
ESCAPE_SECONDS = 0.05
"""How long the rest of an escape sequence may take."""

SETTLE_SECONDS = 0.1
"""How long after SIGCONT another signal may come, before we stop again."""

_SIGNALED = 128
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HEARD = (*_ENDS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


async def run(relay: Relay, bell: bool) -> int:
    """Show an inbox until the person has done; the exit status.

    Args:
        relay: may be sent answers.
        bell: whether to ring as an ask comes.

    Raises:
        UserError: there is no relay, or it does not take our token.
    """
    async with consuming(relay, wish(), "kimiaepd-inbox") as consumer:
        with trio.open_signal_receiver(*_HEARD) as signals, screen() as shown:
            return await _Running(consumer, shown, bell).run(signals)


@define(eq=False)
class _Running:
    """An inbox that runs."""

    consumer: Consumer
    screen: Screen
    bell: bool
    desk: Desk = field(init=False)
    inbox: Inbox = field(init=False)
    console: Console = field(factory=paper)
    status: int = 0
    _is_ringing: bool = False
    _turn: trio.Event = field(factory=trio.Event)
    _nursery: trio.Nursery = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.desk = Desk(self.consumer, came=self._on_came)
        self.inbox = Inbox(self.desk.asks)

    async def run(self, signals: AsyncIterator[int]) -> int:
        async with trio.open_nursery() as inbox_nursery:
            self._nursery = inbox_nursery
            inbox_nursery.start_soon(self.desk.run)
            inbox_nursery.start_soon(self._catch_up)
            inbox_nursery.start_soon(self._obey, signals)
            inbox_nursery.start_soon(self._read)
            inbox_nursery.start_soon(self._draw)
        return self.status

    def _end(self, status: int) -> None:
        self.status = status
        self._nursery.cancel_scope.cancel()

    async def _catch_up(self) -> None:
        await self.desk.catch_up()
        self.inbox.is_ready = True
        self._turn.set()

    # --- the relay -------------------------------------------------------------------------------

    def _on_came(self, came: Came) -> None:
        match came:
            case Asked(ask) if ask.is_answerable and self.inbox.is_ready:
                self._is_ringing = self.bell
            case Ended():
                self.inbox.ended(came)
            case Change(kind="missing", why=session):
                self.inbox.say(f"some events of session {session[:64]!r} are not held any more")
        self.inbox.lost = self.desk.lost
        self._turn.set()

    async def _answer(self, send: Send) -> None:
        verdict = await self.desk.answer(send.ask, send.answer)
        self.inbox.told(send.ask, verdict)
        self._turn.set()

    # --- the terminal ----------------------------------------------------------------------------

    async def _read(self) -> None:
        keys = Keys()
        while True:
            data = None
            with trio.move_on_after(ESCAPE_SECONDS if keys.is_waiting else inf):
                data = await self.screen.read()
            if data == b"":
                self._end(_SIGNALED + signal.SIGHUP)
            for pressed in keys.settle() if data is None else keys.feed(data):
                self._press(pressed)
            self._turn.set()

    def _press(self, pressed: Pressed) -> None:
        if pressed == Key.REDRAW:
            self.screen.forget()
            return
        self._look()
        match self.inbox.press(pressed, trio.current_time()):
            case Quit():
                self._end(0)
            case Send() as send:
                self._nursery.start_soon(self._answer, send)

    def _look(self) -> datetime:
        now = datetime.now(UTC)
        self.inbox.look(now, trio.current_time())
        return now

    async def _draw(self) -> None:
        while True:
            self._turn = trio.Event()
            now = self._look()
            width, height = self.screen.size
            lines = page(self.inbox, now, width, height)
            with self.console.capture() as captured:
                for line in lines:
                    self.console.print(
                        line, width=width, no_wrap=True, overflow="ellipsis", crop=True
                    )
            ringing, self._is_ringing = self._is_ringing, False
            await self.screen.show(captured.get().splitlines(), bell=ringing)
            await trio.sleep(FRAME_SECONDS)
            with trio.move_on_after(TICK_SECONDS):
                await self._turn.wait()

    # --- signals ---------------------------------------------------------------------------------

    async def _obey(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            if number in _ENDS:
                self._end(_SIGNALED + number)
            elif number == signal.SIGTSTP:
                self._stop()
            elif number == signal.SIGCONT:
                self._nursery.start_soon(self._go_on)
            self._turn.set()

    def _stop(self) -> None:
        self.screen.leave()
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGSTOP)  # until SIGCONT, which is heard here, too

    async def _go_on(self) -> None:
        """Take the terminal again where it is ours; in the background, stop again."""
        if not self.screen.is_ours:
            await trio.sleep(SETTLE_SECONDS)  # a shell continues what it wants to end
        if self.screen.is_ours:
            self.screen.enter()
        else:
            self._stop()
