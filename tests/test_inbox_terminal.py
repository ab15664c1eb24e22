"""The inbox in a real terminal of 80 columns, at a real daemon, driven by keys alone."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from live import Live, scratch
from test_answer_cli import Hook, held
from vendor.screen import Screen
from vendor.waiting import until

SEEN = re.compile(r"> +1?[0-8] s ")
"""The row of a hold of twenty seconds that has less than nineteen left."""

_NUMBERS = itertools.count()

CRASHING = """
from kimiaepd import cli
from kimiaepd.views import inbox_run

def page(*_):
    raise RuntimeError("a defect")

inbox_run.page = page
cli.main()
"""


@pytest.fixture(scope="module", autouse=True)
def has_tmux() -> None:
    if not shutil.which("tmux"):
        pytest.skip("no tmux here: a terminal is needed")


@pytest.fixture(scope="module")
def live(has_tmux: None) -> Iterator[Live]:
    with scratch(
        AEP_KIMI_CONTROL="1", AEP_ATTENTION_TIMEOUT_MS="20000", KIMIAEPD_COLLECTOR_PORT="0"
    ) as made:
        made.start()
        yield made


@contextmanager
def shell(live: Live) -> Iterator[Screen]:
    """A shell with job control, whose prompt says the last command's exit status."""
    # A server of its own: the one before may still be going.
    socket = live.home / f"tmux-{next(_NUMBERS)}"
    environ = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PY": sys.executable}
    screen = Screen(socket, {**live.environ, **environ})
    size = ("-x", "80", "-y", "24")
    started = screen.tmux("-u", "new-session", "-d", *size, "bash --norc --noprofile")
    try:
        assert started.returncode == 0, started.stderr
        screen.shows("#", "$")
        screen.enter("PS1='[$?]> '")
        screen.shows("[0]>")
        screen.enter('cd; alias kimiaepd="$PY -m kimiaepd"; clear')
        yield screen
    finally:
        screen.tmux("kill-server")


@contextmanager
def inbox(live: Live, *options: str) -> Iterator[Screen]:
    """An inbox that is open, and where nothing waits yet."""
    with shell(live) as screen:
        screen.enter(" ".join(["kimiaepd inbox", *options]))
        screen.shows("nothing waits")
        yield screen


def row(screen: Screen) -> str:
    """The row of the selected ask, once a person has had a second to see it."""
    found: list[str] = until(
        lambda: [line for line in screen.text().splitlines() if SEEN.match(line)],
        "a row that is seen",
    )
    return found[0]


def pid_of(screen: Screen) -> int:
    """The process of the inbox, as the shell's only child."""
    shell_pid = screen.tmux("list-panes", "-F", "#{pane_pid}").stdout.strip()
    return int(Path(f"/proc/{shell_pid}/task/{shell_pid}/children").read_text())


def is_restored(screen: Screen, status: int) -> None:
    """Hold the terminal to be as it was, with the shell in the foreground again."""
    screen.shows(f"[{status}]>")
    screen.enter("clear; stty -a; tput cols")
    said = screen.shows("icanon")
    text = until(lambda: screen.text() if " ixon" in screen.text() else "", said)
    assert not re.search(r"-(icanon|echo|isig|ixon)\b", text)
    assert (
        screen.tmux("display", "-p", "#{cursor_flag}#{alternate_on}#{wrap_flag}").stdout == "101\n"
    )


# --- answers -------------------------------------------------------------------------------------


def rings(screen: Screen) -> bool:
    return screen.tmux("display", "-p", "#{window_bell_flag}").stdout == "1\n"


def test_one_key_frees_a_held_hook_and_the_bell_rings_where_it_is_to(live: Live) -> None:
    with inbox(live, "--bell") as screen:
        assert not rings(screen)
        with held(live, 1, "make deploy") as hook:
            until(lambda: rings(screen), "the bell")
            _answered_by_a_key(screen, hook)
        screen.press("q")
        is_restored(screen, 0)


def _answered_by_a_key(screen: Screen, hook: Hook) -> None:
    assert "31aa9970  Bash: make deploy" in row(screen)
    assert "a No objection   d Deny" in screen.text()
    screen.press("a")
    assert hook.freed() == b""
    screen.shows("31aa9970 Bash: accepted: allow")
    screen.shows("nothing waits")


def test_a_deny_with_a_reason_arrives_in_the_hook_s_reply(live: Live) -> None:
    with inbox(live) as screen, held(live, 2) as hook:
        row(screen)
        screen.press("r")
        screen.shows("Enter denies")
        screen.tmux("send-keys", "-l", "quit? no: ask Ada")
        screen.shows("quit? no: ask Ada_")
        screen.press("Enter")
        assert b'"permissionDecisionReason":"quit? no: ask Ada"' in hook.freed()
        screen.shows("accepted: deny")


def test_what_is_pasted_answers_nothing(live: Live) -> None:
    with inbox(live) as screen, held(live, 3) as hook:
        row(screen)
        screen.tmux("set-buffer", "a")
        screen.tmux("paste-buffer", "-p", "-d")
        screen.shows("pasted, or typed ahead")
        assert hook.thread.is_alive()
        screen.press("t")
        screen.shows("Words that are no option deny")
        screen.tmux("set-buffer", "not so\nfast")
        screen.tmux("paste-buffer", "-p", "-d")
        screen.shows("not so fast_")
        screen.press("Enter")
        assert b"not so fast" in hook.freed()


def test_of_two_inboxes_one_answers_and_the_other_sees_it(live: Live) -> None:
    with inbox(live) as one, inbox(live) as two, held(live, 4) as hook:
        for screen in (one, two):
            row(screen)
        for screen in (one, two):
            screen.press("r")
            screen.shows("Enter denies")
        one.press("Enter")
        one.shows("accepted: deny")
        assert b'"deny"' in hook.freed()
        two.shows("It is over: nothing will be sent")
        two.press("Enter")
        two.shows("somebody answered first: deny")
        two.shows("nothing waits")


def test_several_are_held_and_each_is_answered_for_itself(live: Live) -> None:
    with inbox(live) as screen, held(live, 5, "echo one") as one, held(live, 6, "echo two") as two:
        screen.shows("2 asks wait")
        screen.press("j")
        until(lambda: "Bash: echo two" in row(screen), "the second is selected")
        screen.press("d")
        assert b'"deny"' in two.freed()
        screen.shows("1 ask waits")
        assert one.thread.is_alive()


def test_an_answer_that_comes_too_late_says_so(has_tmux: None) -> None:
    with scratch(
        AEP_KIMI_CONTROL="1", AEP_ATTENTION_TIMEOUT_MS="2500", KIMIAEPD_COLLECTOR_PORT="0"
    ) as live:
        live.start()
        with inbox(live) as screen, held(live, 1) as hook:
            screen.shows("1 s  31aa9970")
            screen.press("r")
            screen.shows("It is over: nothing will be sent")
            assert hook.freed() == b""
            screen.tmux("send-keys", "-l", "a good reason")
            screen.press("Enter")
            screen.shows("too late: it was let go at its deadline")
            screen.shows("nothing waits")


# --- the terminal --------------------------------------------------------------------------------


def test_it_follows_the_size_of_its_terminal(live: Live) -> None:
    with inbox(live) as screen, held(live, 7, "echo " + "word " * 60):
        row(screen)
        for columns, lines in ((40, 12), (20, 6), (120, 30)):
            screen.tmux("resize-window", "-x", str(columns), "-y", str(lines))
            until(lambda: _is_drawn(screen), f"the selected ask in {columns} x {lines}")
        screen.press("d")
        screen.shows("accepted: deny")


def _is_drawn(screen: Screen) -> bool:
    first, second, *_, last = screen.text().splitlines()
    return first == "1 ask waits" and second.startswith("> ") and last.endswith("q quit")


def test_ctrl_c_ends_it_and_the_terminal_is_as_it_was(live: Live) -> None:
    with inbox(live) as screen:
        screen.press("C-c")
        is_restored(screen, 130)
        assert "interrupted" not in screen.text()


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(live: Live) -> None:
    with inbox(live) as screen:
        screen.press("C-z")
        screen.shows("Stopped")
        is_restored(screen, 128 + signal.SIGSTOP)
        screen.enter("fg")
        screen.shows("nothing waits")
        with held(live, 8) as hook:
            row(screen)
            screen.press("d")
            assert b'"deny"' in hook.freed()
        screen.press("q")
        is_restored(screen, 0)


def test_one_that_is_stopped_can_be_ended_and_touches_nothing(live: Live) -> None:
    with inbox(live) as screen:
        stat = Path(f"/proc/{pid_of(screen)}/stat")
        screen.press("C-z")
        screen.shows("[147]>")
        screen.enter("bg")
        screen.shows("[0]> ")
        until(lambda: " T " in stat.read_text(), "that it stops again")
        screen.enter("kill %1")
        until(lambda: not stat.exists(), "its end")
        screen.enter("true")
        screen.shows("Exit 143")
        is_restored(screen, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(live: Live, number: signal.Signals) -> None:
    with inbox(live) as screen:
        os.kill(pid_of(screen), number)
        is_restored(screen, 128 + number)


def test_a_defect_leaves_the_terminal_as_it_was(live: Live) -> None:
    with shell(live) as screen:
        (live.home / "crashing.py").write_text(CRASHING)
        screen.enter("$PY crashing.py inbox")
        screen.shows("a defect of kimiaepd")
        is_restored(screen, 70)


def test_a_lost_relay_is_said_and_found_again(live: Live) -> None:
    with inbox(live) as screen:
        live.kill()
        screen.shows("connection lost, trying again")
        live.start()
        screen.shows("nothing waits")
        with held(live, 9) as hook:
            row(screen)
            screen.press("d")
            assert b'"deny"' in hook.freed()
