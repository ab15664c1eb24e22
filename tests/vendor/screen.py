"""The CLI's terminal UI in a tmux of its own: keys go in, the screen is read back.

The tmux server listens on a socket in the scratch place, reads no configuration, and is killed at
the end, with whatever still runs in it. Nothing waits for a number of seconds: every step looks
at the screen until it shows what the step needs.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from vendor.kimi import Kimi
from vendor.place import Place
from vendor.waiting import until

# Tall enough that nothing a test waits for scrolls away.
SIZE = ("-x", "100", "-y", "150")
TMUX_DEADLINE_S = 10
START_DEADLINE_S = 40

_NUMBERS = itertools.count()


@frozen
class Screen:
    """One terminal, found by its server's socket."""

    socket: Path
    environ: dict[str, str]

    def tmux(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=TMUX_DEADLINE_S,
            check=False,
        )

    def text(self) -> str:
        """What the screen shows, without its empty lines."""
        shown = self.tmux("capture-pane", "-p").stdout
        return "\n".join(line for line in shown.splitlines() if line.strip())

    def shows(self, *texts: str) -> str:
        """Wait until the screen shows one of these texts; that one.

        Raises:
            AssertionError: it did not in time; the message has the screen.
        """
        try:
            return until(
                lambda: next((text for text in texts if text in self.text()), ""),
                f"{' or '.join(texts)!r} on the screen",
                seconds=START_DEADLINE_S,
            )
        except AssertionError as missing:
            raise AssertionError(f"{missing}:\n{self.text()}") from None

    def press(self, key: str) -> None:
        """Send one key by its tmux name: `Enter`, `Escape`, `C-c`, `1`."""
        self.tmux("send-keys", key)

    def enter(self, text: str) -> None:
        """Put a line into the input box, see it there, press Enter.

        It is pasted in brackets: keys that come as fast as ours are taken for a paste without
        them, and then Enter is one more line.
        """
        self.tmux("set-buffer", text)
        self.tmux("paste-buffer", "-p", "-d")
        self.shows(text)
        self.press("Enter")

    def leave(self) -> None:
        """End the CLI as a user does, and wait until it is gone."""
        self.enter("/exit")
        until(lambda: self.tmux("has-session").returncode, "the CLI's end")


@contextmanager
def terminal(kimi: Kimi, place: Place) -> Iterator[Screen]:
    """The terminal UI, ready for a prompt."""
    # A socket of its own: the server before it may still be ending.
    screen = Screen(
        place.root / f"tmux{next(_NUMBERS)}",
        {**place.environ(kimi.programs), "TERM": "xterm-256color"},
    )
    try:
        # exec: the CLI is the pane's own process, so its end is the session's end.
        started = screen.tmux("new-session", "-d", *SIZE, "-c", str(place.work), "exec kimi")
        assert started.returncode == 0, started.stderr
        if screen.shows("Trust this folder?", "context:") == "Trust this folder?":
            screen.press("Enter")
            screen.shows("context:")
        yield screen
    finally:
        screen.tmux("kill-server")
