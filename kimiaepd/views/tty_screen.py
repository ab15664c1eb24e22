"""A terminal as a full screen: keys come one by one, lines stand where they are put.

Rules:
- However the block ends, the terminal is as it was. Only SIGKILL can leave it otherwise.
- The terminal is opened anew: our own descriptor may be made non-blocking, the shell's may not, and
  a terminal that takes nothing must not keep a signal waiting.
- Ctrl-C and Ctrl-Z stay signals, for whoever else is in the foreground; see `inbox_run.py`.
- Only lines that changed are written, and none while the terminal is somebody else's. In the
  background its modes are the shell's, and are left alone.

It knows nothing of what stands on it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterator, Sequence

import trio
from attrs import define, field

from kimiaepd.errors import UserError

_READ = 4_096
_BEGIN = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[2J"
"""The other screen, no cursor, no wrapping, pastes marked as such."""

_END = b"\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"

_IFLAG, _LFLAG, _CC = 0, 3, 6
"""Places in what `tcgetattr` gives."""


@define(eq=False)
class Screen:
    """One terminal.

    Attributes:
        fd: our own descriptor of it, which does not block.
    """

    fd: int
    _was: list[int | list[bytes | int]] | None = field(default=None, init=False)
    _shown: list[str] = field(factory=list, init=False)
    _size: tuple[int, int] = field(default=(0, 0), init=False)

    def enter(self) -> None:
        """Take the terminal over; also again, after it was somebody else's.

        Raises:
            UserError: it is gone.
        """
        try:
            self._set_modes()
        except termios.error as error:
            raise UserError(f"cannot use this terminal: {error.args[-1]}; try --once") from None
        self._write_now(_BEGIN)
        self.forget()

    def _set_modes(self) -> None:
        ours = termios.tcgetattr(self.fd)
        if self._was is None:
            self._was = termios.tcgetattr(self.fd)
        ours[_IFLAG] &= ~termios.IXON  # or Ctrl-S would keep us from saying anything
        ours[_LFLAG] &= ~(termios.ICANON | termios.ECHO)
        ours[_CC] = [*ours[_CC]]
        ours[_CC][termios.VMIN], ours[_CC][termios.VTIME] = 1, 0
        termios.tcsetattr(self.fd, termios.TCSANOW, ours)
        # What was typed before anything could be seen is no answer to it.
        termios.tcflush(self.fd, termios.TCIFLUSH)

    def leave(self) -> None:
        """Give it back as it was."""
        was, self._was = self._was, None
        if was is None:
            return
        before = signal.signal(
            signal.SIGTTOU, signal.SIG_IGN
        )  # which would stop us, and not end us
        try:
            self._write_now(_END)
            with contextlib.suppress(termios.error, OSError):  # it has hung up
                if self.is_ours:
                    termios.tcflush(self.fd, termios.TCIFLUSH)
                    termios.tcsetattr(self.fd, termios.TCSANOW, was)
        finally:
            signal.signal(signal.SIGTTOU, before)

    @property
    def is_ours(self) -> bool:
        """Whether we are in its foreground."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:
            return True  # it has hung up: whoever reads from it is told

    def forget(self) -> None:
        """Somebody may have written on it: the next lines are all written."""
        self._shown = []

    @property
    def size(self) -> tuple[int, int]:
        """Its columns and lines now."""
        try:
            columns, lines = os.get_terminal_size(self.fd)
        except OSError:
            return 80, 24
        return columns or 80, lines or 24

    async def read(self) -> bytes:
        """What was typed; nothing where the terminal is gone."""
        while True:
            await trio.lowlevel.wait_readable(self.fd)
            try:
                return os.read(self.fd, _READ)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    async def show(self, lines: Sequence[str], *, bell: bool = False) -> None:
        """Put lines on it, from the top.

        Args:
            lines: with their colours, none wider than it.
            bell: whether to ring, too.
        """
        if self._was is None:
            return
        if self.size != self._size:
            self._size = self.size
            self.forget()
        said = "" if self._shown else "\x1b[2J"
        for number, line in enumerate(lines):
            if number >= len(self._shown) or self._shown[number] != line:
                said += f"\x1b[{number + 1};1H\x1b[2K{line}\x1b[0m"
        if len(lines) < len(self._shown):
            said += f"\x1b[{len(lines) + 1};1H\x1b[J"
        self._shown = list(lines)
        said += "\a" if bell else ""
        await self._write(said.encode(sys.stdout.encoding or "utf-8", "replace"))

    async def _write(self, data: bytes) -> None:
        while data:
            await trio.lowlevel.wait_writable(self.fd)
            try:
                data = data[os.write(self.fd, data) :]
            except BlockingIOError:
                continue
            except OSError:
                return  # it is gone, and reading from it says so

    def _write_now(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self.fd, data)


@contextlib.contextmanager
def screen() -> Iterator[Screen]:
    """The terminal of standard input, until the end of the block.

    Raises:
        UserError: it cannot be opened.
    """
    fd = _opened()
    try:
        found = Screen(fd)
        try:
            found.enter()
            yield found
        finally:
            found.leave()
    finally:
        os.close(fd)


def _opened() -> int:
    flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        try:
            return os.open(os.ttyname(sys.stdin.fileno()), flags)
        except OSError:
            return os.open("/dev/tty", flags)  # another user's, after su
    except OSError as error:
        raise UserError(f"cannot open this terminal: {error.strerror}; use --once") from None
