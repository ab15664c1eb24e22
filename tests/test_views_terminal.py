"""What a person sees of the views in a real terminal, 80 columns wide, and what keys do to it."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kimiaepd.mapping.json_value import JSONObject
from live import Live, scratch
from vendor.screen import Screen

NAME = "session_31aa9970-09a5-4e97-af7f-f423ebe05325"
_NUMBERS = itertools.count()
LONG = "echo " + "a long word " * 30


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    if not shutil.which("tmux"):
        pytest.skip("no tmux here: a terminal is needed")
    with scratch(KIMIAEPD_COLLECTOR_PORT="0", AEP_CAPTURE="redacted") as made:
        made.start()
        yield made


@contextmanager
def terminal(live: Live, **environ: str) -> Iterator[Screen]:
    """A shell in a terminal of 80 columns, whose prompt says the last command's exit status."""
    # A socket of its own: the server before it may still be ending.
    socket = live.home / f"tmux{next(_NUMBERS)}"
    screen = Screen(socket, {**live.environ, "TERM": "xterm-256color", "ENV": "", **environ})
    started = screen.tmux("new-session", "-d", "-x", "80", "-y", "24", "sh")
    try:
        assert started.returncode == 0, started.stderr
        screen.shows("#", "$")
        screen.enter("PS1='[$?]> '")
        screen.shows("[0]>")
        screen.enter(f"alias kimiaepd='{sys.executable} -m kimiaepd'; clear")
        yield screen
    finally:
        screen.tmux("kill-server")


def lines_of(screen: Screen, text: str) -> list[str]:
    """The lines of the screen that have a text in them."""
    return [line for line in screen.text().splitlines() if text in line]


def test_tail_shows_a_line_an_event_and_ctrl_c_ends_it(live: Live) -> None:
    with terminal(live) as screen:
        screen.enter("kimiaepd tail --session 31aa")
        screen.shows("Ctrl-C ends")
        called: JSONObject = {
            "tool_name": "Bash",
            "tool_call_id": "c",
            "tool_input": {"command": LONG},
        }
        for fields in (
            {"hook_event_name": "SessionStart"},
            {**called, "hook_event_name": "PreToolUse"},
        ):
            live.ask({"session_id": NAME, **fields})
        screen.shows("echo a long word")
        (line,) = lines_of(screen, "echo a long word")
        assert "  31aa9970  tool.requested  " in line
        assert len(line) == 80
        assert line.endswith("…")
        coloured = screen.tmux("capture-pane", "-p", "-e").stdout
        assert "\x1b[" in next(row for row in coloured.splitlines() if "echo a long word" in row)
        screen.press("C-c")
        screen.shows("[130]>")
        assert "interrupted" not in screen.text()


def test_sessions_and_a_timeline_fit_80_columns(live: Live) -> None:
    called: JSONObject = {"tool_name": "Bash", "tool_call_id": "d", "tool_input": {"command": LONG}}
    live.ask({**called, "hook_event_name": "PreToolUse", "session_id": NAME})
    with terminal(live) as screen:
        screen.enter("kimiaepd sessions; kimiaepd timeline --last")
        screen.shows("goes on")
        (listed,) = lines_of(screen, " ago  ")[:1]
        assert listed.split()[:2] == ["31aa9970", "idle"]
        cut = lines_of(screen, "echo a long word")
        assert cut
        assert all(len(line) == 80 and line.endswith("…") for line in cut)


def test_tail_obeys_no_color(live: Live) -> None:
    live.ask({"hook_event_name": "SessionStart", "session_id": NAME})
    with terminal(live, NO_COLOR="1") as screen:
        screen.enter("kimiaepd tail --from all")
        screen.shows("session.started")
        coloured = screen.tmux("capture-pane", "-p", "-e").stdout
        assert "\x1b[" not in next(row for row in coloured.splitlines() if "session.started" in row)
        screen.press("C-c")
        screen.shows("[130]>")
