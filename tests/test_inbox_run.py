"""An inbox on a terminal in hand: how it ends where the relay or the terminal is gone for good."""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
from attrs import define, frozen

from kimiaepd.errors import UserError
from kimiaepd.relay.connection import LinkError, RefusedError
from kimiaepd.views import tty_screen
from kimiaepd.views.desk import wish
from kimiaepd.views.inbox_run import _Running
from kimiaepd.views.tty_screen import screen
from views_room import Scripted, watching


@frozen
class Terminal:
    """A terminal, from the side of its person."""

    ours: int
    theirs: int

    async def shows(self, text: str) -> None:
        """Wait until this was written on it."""
        written = ""
        with trio.fail_after(10):
            while text not in written:
                await trio.lowlevel.wait_readable(self.ours)
                written += os.read(self.ours, 65_536).decode()

    @property
    def modes(self) -> list[int]:
        return [mode for mode in termios.tcgetattr(self.theirs)[:4] if isinstance(mode, int)]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    # As `screen` opens it: a descriptor of its own, that does not block.
    name = os.ttyname(theirs)
    flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK
    monkeypatch.setattr(tty_screen, "_opened", lambda: os.open(name, flags))
    yield Terminal(ours, theirs)
    os.close(ours)
    os.close(theirs)


@define
class NoSignals:
    """What comes where no signal does."""

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        await trio.sleep_forever()
        raise AssertionError


async def test_a_refused_token_ends_it_with_a_line_and_the_terminal_is_as_it_was(
    terminal: Terminal, tmp_path: Path
) -> None:
    before, scripted = terminal.modes, Scripted()
    async with watching(scripted, wish(), tmp_path, may_control=True) as (consumer, line):
        refused = pytest.RaisesExc(UserError, match="says no; mend AEP_TOKEN")
        with pytest.RaisesGroup(refused, flatten_subgroups=True):
            async with trio.open_nursery() as nursery:
                with screen() as shown:
                    assert terminal.modes != before
                    nursery.start_soon(_Running(consumer, shown, bell=False).run, NoSignals())
                    name = (await line.hears("roster"))["id"]
                    line.say({"type": "roster", "id": name, "entries": []})
                    await terminal.shows("nothing waits")
                    scripted.refusals = [LinkError("busy"), RefusedError("the relay says no")]
                    line.breaks()
                    await terminal.shows("connection lost, trying again")
                    await trio.sleep_forever()
    assert terminal.modes == before


async def test_a_terminal_that_hangs_up_ends_it(terminal: Terminal, tmp_path: Path) -> None:
    async with watching(Scripted(), wish(), tmp_path, may_control=True) as (consumer, _):
        with screen() as shown, trio.fail_after(10):
            running = _Running(consumer, shown, bell=False)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(running.run, NoSignals())
                await terminal.shows("looking")
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, terminal.ours)
                os.close(null)
    assert running.status == 129
