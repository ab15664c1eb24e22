"""Waiting for the daemon, in virtual time; and the whole way once, with a daemon that is real."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
from attrs import define
from trio.testing import MockClock

from kimiaepd import paths
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.service import steps
from kimiaepd.service.manager import Manager, State
from kimiaepd.service.steps import UP_SECONDS, NotStartedError
from kimiaepd.service.systemd import Systemd
from live import Live, scratch

WHERE = paths.resolve({"HOME": "/h"})


@define
class Slow:
    """A manager whose service runs from the start, or ends after a while."""

    lives_seconds: float = 1e9
    pid: int = 7
    diary: str = "the diary"
    began: float = 0

    async def state(self) -> State:
        await trio.lowlevel.checkpoint()
        if trio.current_time() - self.began > self.lives_seconds:
            return State("failed (failed)")
        return State("activating (start)", active=True, ended=False, pid=self.pid)


def answers_after(seconds: float, pid: int) -> Callable[[Path], Awaitable[JSONObject | None]]:
    began = trio.current_time()

    async def answer(_: Path) -> JSONObject | None:
        await trio.lowlevel.checkpoint()
        return {"pid": pid} if trio.current_time() - began >= seconds else None

    return answer


async def up(manager: Slow) -> State:
    manager.began = trio.current_time()
    as_manager: Manager = manager  # type: ignore[assignment]  # only what is asked here
    return await steps._until_up(as_manager, WHERE)


async def test_a_daemon_that_takes_its_time_is_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "answer", answers_after(UP_SECONDS - 1, pid=7))
    assert (await up(Slow())).pid == 7


async def test_the_answer_of_another_daemon_is_none(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "answer", answers_after(0, pid=8))
    began = trio.current_time()
    with pytest.raises(NotStartedError, match=r"activating \(start\); what it said: the diary"):
        await up(Slow())
    assert trio.current_time() - began == pytest.approx(UP_SECONDS)


async def test_a_daemon_that_ended_is_not_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "answer", answers_after(1e9, pid=7))
    began = trio.current_time()
    with pytest.raises(NotStartedError, match=r"failed \(failed\)"):
        await up(Slow(lives_seconds=2))
    assert trio.current_time() - began < 3


# --- a real daemon -----------------------------------------------------------------------------

_SYSTEMCTL = """\
#!/bin/sh
# Starts what the unit says, as far as this shell understands it, and knows its pid.
unit="$HOME/.config/systemd/user/kimiaepd.service"
pid=$(cat "$HOME/pid" 2>/dev/null)
case "$2 $3" in
    "show --property=Version") echo Version=1 ;;
    show*)
        echo LoadState=loaded; echo UnitFileState=enabled; echo NeedDaemonReload=no
        [ ! -e "$unit" ] || echo "FragmentPath=$unit"
        if kill -0 "${pid:-none}" 2>/dev/null; then echo "MainPID=$pid"; echo ActiveState=active
        else echo MainPID=0; echo ActiveState=inactive; fi ;;
    start*)
        program=$(sed -n s/^ExecStart=//p "$unit")
        sh -c "exec env -i $(sed -n s/^Environment=//p "$unit" | tr '\\n' ' ') $program" \\
            >"$HOME/out" 2>&1 & echo $! > "$HOME/pid" ;;
    stop*)
        kill "$pid"; rm "$HOME/pid"
        while [ -e "$HOME/.local/state/kimiaepd/hook.sock" ]; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as one:
        folder = one.home / "bin"
        folder.mkdir()
        (folder / "systemctl").write_text(_SYSTEMCTL)
        (folder / "systemctl").chmod(0o755)
        one.environ["PATH"] = f"{folder}:{one.environ['PATH']}"
        yield one
        pid = one.home / "pid"
        if pid.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "darwin", reason="there the manager is launchd")
def test_a_service_is_installed_runs_takes_hooks_and_is_gone_again(live: Live) -> None:
    done = live.run("service", "install")
    assert done.returncode == 0, done.stderr
    assert "running: pid" in done.stdout
    assert live.ask({"hook_event_name": "Stop", "session_id": "s"}) == b"0\n"
    assert live.run("service", "status").returncode == 0
    assert "nothing changed there" in live.run("service", "install").stdout
    # A daemon in a terminal finds the service there, and says so.
    assert live.run("run").returncode == 75
    pid = int((live.home / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        assert live.run("service", "status").returncode == 3
    finally:
        os.kill(pid, signal.SIGCONT)
    done = live.run("service", "uninstall")
    assert f"stopped: pid {pid}" in done.stdout
    assert live.run("service", "status").returncode == 1
    assert not live.where.socket.exists()
    assert not list((live.home / ".config").rglob("*.service"))


@pytest.mark.skipif(sys.platform == "darwin", reason="there the manager is launchd")
def test_a_daemon_in_a_terminal_is_left_alone_and_said(live: Live) -> None:
    live.start()
    assert live.process
    began = time.monotonic()
    done = live.run("service", "install")
    assert done.returncode == 75
    assert f"pid {live.process.pid}" in done.stderr
    assert time.monotonic() - began < 10
    assert live.stop() == 0


def test_the_units_place_is_below_the_configuration_directory() -> None:
    file = Systemd.below(Path("/c")).file
    assert str(file.path) == "/c/systemd/user/kimiaepd.service"
