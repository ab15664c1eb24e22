"""The notifier, with real programs; time is virtual wherever a deadline is what matters.

A program that a test waits for writes to a FIFO, whose end comes when nobody holds it open any
more: so "everything that it started is dead" needs no process table and no patience.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import define
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from conftest import ROOT
from kimiaepd import notifier as room
from kimiaepd.mapping.json_value import JSONObject, parse
from kimiaepd.notifier import AT_ONCE, LONGEST, SECONDS, WAITING, Notifier

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/home/me"}


def program(folder: Path, text: str) -> str:
    """A shell script that can be run."""
    path = folder / "a program"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def notice(event: str, ask: str = "a1", **more: str) -> JSONObject:
    return {"event": event, "ask": ask, **more}


async def told(notifier: Notifier, *events: JSONObject) -> None:
    """Tell of these, and wait until every program has ended."""
    for event in events:
        notifier.notify(event)
    notifier.stop()
    await notifier.run()


@define
class Said:
    """The reading end of a FIFO."""

    stream: trio.lowlevel.FdStream

    async def line(self) -> bytes:
        """What was written next."""
        return await self.stream.receive_some()

    async def end(self) -> None:
        """Return when nobody is left that could write."""
        while await self.stream.receive_some():
            pass


@asynccontextmanager
async def hearing(path: Path) -> AsyncIterator[Said]:
    """Wait until a program opens the FIFO, and hear what it says."""
    number = await trio.to_thread.run_sync(os.open, path, os.O_RDONLY, abandon_on_cancel=True)
    async with trio.lowlevel.FdStream(number) as stream:
        yield Said(stream)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


async def test_the_program_gets_the_object_on_stdin_and_its_own_arguments(tmp_path: Path) -> None:
    path = program(tmp_path, f'printf "%s|" "$@" "$PWD" >{tmp_path}/argv; cat >{tmp_path}/stdin')
    notifier = Notifier((path, "a b", "$HOME", "*"), ENVIRON)
    event = notice("held", tool="Bash", prompt="Bash: r\u00e9sum\u00e9\x1b[2J")

    await told(notifier, event)

    assert (tmp_path / "argv").read_text() == "a b|$HOME|*|/|"
    said = (tmp_path / "stdin").read_bytes()
    assert parse(said) == event
    assert said.count(b"\n") == 1
    assert b"\x1b" not in said
    assert notifier.status() == {
        "enabled": True, "told": 1, "failed": {}, "dropped": 0, "waiting": 0, "running": 0,
    }  # fmt: skip


async def test_it_gets_what_a_desktop_needs_of_our_environment_and_no_token(tmp_path: Path) -> None:
    environ = {
        **ENVIRON,
        "AEP_TOKEN": "secret",
        "AEP_RELAY_URL": "wss://relay.example",
        "MY_API_KEY": "secret",
        "KIMIAEPD_STATE_DIR": "/s",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
        "LC_ALL": "C.UTF-8",
        "XDG_RUNTIME_DIR": "/run/me",
    }
    notifier = Notifier((program(tmp_path, f"env >{tmp_path}/environ"),), environ)

    await told(notifier, notice("held"))

    lines = (tmp_path / "environ").read_text().splitlines()
    names = {line.partition("=")[0] for line in lines} - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names == {"PATH", "HOME", "DBUS_SESSION_BUS_ADDRESS", "LC_ALL", "XDG_RUNTIME_DIR"}
    assert "secret" not in repr(notifier)


async def test_the_page_s_example_shows_a_notification(tmp_path: Path) -> None:
    page = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    script = page[page.index("    #!/usr/bin/env python3") : page.index("It has ten seconds")]
    example = tmp_path / "example"
    example.write_text(textwrap.dedent(script))
    example.chmod(0o755)
    shown = tmp_path / "shown"
    path = program(tmp_path, f'printf "%s|" "$@" >>{shown}')
    Path(path).rename(tmp_path / "notify-send")
    notifier = Notifier((str(example),), {"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    await told(notifier, notice("held", prompt="Bash: ls"), notice("over", prompt="Bash: ls"))

    assert (notifier.told, notifier.failed) == (2, {})
    assert shown.read_text() == "--|Kimi waits for you|Bash: ls|"


def test_what_a_notice_says_stands_on_the_page() -> None:
    page = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    example = page[page.index('    {"event":"held"') : page.index("| member | what it is |")]
    said = parse(example.encode())
    assert isinstance(said, dict)
    assert list(said) == ["event", "session", "ask", "tool", "prompt", "expires_at"]
    for name in (*said, "outcome", "option"):
        assert f"`{name}`" in page


async def test_a_name_is_found_on_path(tmp_path: Path) -> None:
    program(tmp_path, f"echo x >{tmp_path}/ran")
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    await told(Notifier(("a program",), environ), notice("held"))

    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "mode", "how"),
    [
        (None, 0, "cannot be run"),
        ("#!/nowhere/sh\n", 0o755, "cannot be run"),
        ("no program at all", 0o755, "cannot be run"),
        ("#!/bin/sh\n", 0o600, "cannot be run"),
        ("#!/bin/sh\nexit 3\n", 0o755, "failed"),
        ("#!/bin/sh\nkill -9 $$\n", 0o755, "failed"),
    ],
)
async def test_a_program_that_fails_is_counted_and_said_once(
    tmp_path: Path, text: str | None, mode: int, how: str
) -> None:
    path = tmp_path / "program"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    notifier = Notifier((str(path),), ENVIRON)

    with capture_logs() as logs:
        await told(notifier, *(notice("held", f"a{number}") for number in range(3)))

    assert notifier.failed == {how: 3}
    assert notifier.told == 0
    assert [line["how"] for line in logs] == [how]


async def test_a_program_that_reads_nothing_is_as_good(tmp_path: Path) -> None:
    notifier = Notifier((program(tmp_path, "exec <&-; exit 0"),), ENVIRON)

    await told(notifier, notice("held", prompt="p" * (LONGEST - 100)))

    assert (notifier.told, notifier.failed, notifier.dropped) == (1, {}, 0)


async def test_what_it_prints_goes_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await told(Notifier((program(tmp_path, "echo out; echo err >&2"),), ENVIRON), notice("held"))

    assert capfd.readouterr() == ("", "")


async def test_a_program_that_never_ends_has_ten_seconds_and_so_has_what_it_started(
    tmp_path: Path, fifo: Path, mock_clock: MockClock
) -> None:
    path = program(
        tmp_path,
        # What is on stdin came within its time, so that has begun when "x" is heard.
        f'exec 3>"{fifo}"; read -r x; trap "" TERM HUP; (sleep 1000) & echo x >&3; wait',
    )
    notifier = Notifier((path,), ENVIRON)
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            await nursery.start(notifier.run)
            notifier.notify(notice("held"))
            async with hearing(fifo) as program_said:
                assert await program_said.line() == b"x\n"
                mock_clock.jump(SECONDS - 0.001)
                await wait_all_tasks_blocked()
                assert notifier.status()["running"] == 1
                mock_clock.jump(0.002)
                await program_said.end()
                notifier.stop()
    assert notifier.failed == {"too slow": 1}
    assert [line["how"] for line in logs] == ["too slow"]


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path, fifo: Path) -> None:
    path = program(tmp_path, f'exec 3>"{fifo}"; sleep 1000 & echo x >&3')
    notifier = Notifier((path,), ENVIRON)
    async with trio.open_nursery() as nursery:
        await nursery.start(notifier.run)
        notifier.notify(notice("held"))
        async with hearing(fifo) as program_said:
            await program_said.end()
        notifier.stop()
    assert (notifier.told, notifier.failed) == (1, {})


async def test_a_stop_that_does_not_wait_ends_the_program_and_its_children(
    tmp_path: Path, fifo: Path
) -> None:
    path = program(tmp_path, f'exec 3>"{fifo}"; sleep 1000 & echo $$ >&3; wait')
    notifier = Notifier((path,), ENVIRON)
    async with AsyncExitStack() as held:
        async with trio.open_nursery() as nursery:
            await nursery.start(notifier.run)
            notifier.notify(notice("held"))
            program_said = await held.enter_async_context(hearing(fifo))
            pid = int(await program_said.line())
            nursery.cancel_scope.cancel()
        await program_said.end()
    with pytest.raises(ChildProcessError):  # nor is it a zombie
        os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not block


async def test_a_stop_tells_what_waits_and_takes_nothing_more(tmp_path: Path) -> None:
    notifier = Notifier((program(tmp_path, f"cat >>{tmp_path}/told"),), ENVIRON)
    async with trio.open_nursery() as nursery:
        await nursery.start(notifier.run)
        notifier.notify(notice("held"))
        notifier.notify(notice("over"))
        notifier.stop()
        notifier.notify(notice("held", "a2"))
    lines = (tmp_path / "told").read_bytes().splitlines()
    assert [parse(line) for line in lines] == [notice("held"), notice("over")]


async def test_the_end_of_a_hold_is_told_after_its_beginning_and_holds_nobody_else_up(
    tmp_path: Path, fifo: Path
) -> None:
    path = program(
        tmp_path,
        f'read -r line; echo "$line" >>{tmp_path}/told\n'
        f'case $line in *held*a1*) echo x >"{fifo}"; read -r x <"{fifo}.back";; esac',
    )
    os.mkfifo(f"{fifo}.back")
    notifier = Notifier((path,), ENVIRON)
    async with trio.open_nursery() as nursery:
        await nursery.start(notifier.run)
        for event in (notice("held"), notice("over"), notice("held", "a2"), notice("over", "a2")):
            notifier.notify(event)
        async with hearing(fifo) as program_said:
            await program_said.end()
        while notifier.told < 2:
            await wait_all_tasks_blocked()
        before = (tmp_path / "told").read_bytes().splitlines()
        await trio.to_thread.run_sync(Path(f"{fifo}.back").write_bytes, b"\n")
        notifier.stop()
    after = (tmp_path / "told").read_bytes().splitlines()
    assert notice("over") not in [parse(line) for line in before]
    assert parse(after[-1]) == notice("over")
    assert notifier.told == 4


@define
class Bench:
    """A stand-in for the programs: it says which would run, and ends those that it is told to."""

    started: list[JSONObject]
    ended: trio.Event

    @classmethod
    def at(cls, monkeypatch: pytest.MonkeyPatch) -> Bench:
        bench = cls([], trio.Event())
        monkeypatch.setattr(room, "run_program", bench.run)
        return bench

    @property
    def asks(self) -> set[object]:
        return {event["ask"] for event in self.started}

    async def run(self, _: object, __: Mapping[str, str], given: bytes) -> None:
        event = parse(given)
        assert isinstance(event, dict)
        self.started.append(event)
        await self.ended.wait()


async def test_only_so_many_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench.at(monkeypatch)
    notifier = Notifier(("p",), {})
    events = [notice("held", f"a{number}") for number in range(AT_ONCE + 2)]
    async with trio.open_nursery() as nursery:
        await nursery.start(notifier.run)
        for event in events:
            notifier.notify(event)
        await wait_all_tasks_blocked()
        assert bench.asks == {f"a{number}" for number in range(AT_ONCE)}
        assert notifier.status()["waiting"] == 2
        bench.ended.set()
        notifier.stop()
    assert len(bench.started) == notifier.told == len(events)


async def test_a_full_queue_forgets_first_what_is_over_and_then_the_oldest_with_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench.at(monkeypatch)
    notifier = Notifier(("p",), {})
    bench.ended.set()
    for number in range(WAITING - 1):
        notifier.notify(notice("held", f"a{number}"))
    notifier.notify(notice("over", "a5"))
    with capture_logs() as logs:
        notifier.notify(notice("held", "b1"))  # a5 is over and untold: both go
        assert (notifier.dropped, notifier.status()["waiting"]) == (2, WAITING - 1)
        notifier.notify(notice("held", "b2"))
        notifier.notify(notice("held", "b3"))  # a0 goes
        notifier.notify(notice("over", "a0"))  # and its end with it
    assert (notifier.dropped, notifier.status()["waiting"]) == (4, WAITING)
    assert len(logs) == 1
    notifier.stop()
    await notifier.run()
    kept = [f"a{number}" for number in range(1, WAITING - 1) if number != 5]
    assert bench.asks == {*kept, "b1", "b2", "b3"}
    assert len(bench.started) == WAITING


async def test_the_ends_of_holds_that_were_told_go_last(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench.at(monkeypatch)
    notifier = Notifier(("p",), {})
    bench.ended.set()
    for number in range(WAITING):
        notifier.notify(notice("over", f"a{number}"))
    notifier.notify(notice("held", "b"))
    assert notifier.dropped == 1
    notifier.stop()
    await notifier.run()
    assert notice("held", "b") not in bench.started
    assert len(bench.started) == WAITING


async def test_what_waits_is_bounded_in_notices_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    Bench.at(monkeypatch)
    notifier = Notifier(("p",), {})
    for number in range(3 * WAITING):
        notifier.notify(notice("held", f"a{number}", prompt="p" * LONGEST))
    for number in range(3 * WAITING):
        notifier.notify(notice("over", f"a{number}", prompt="p" * 1_000))
    for number in range(3 * WAITING):
        notifier.notify(notice("over", f"b{number}", prompt="p" * (LONGEST - 1_000)))
    assert notifier.status()["waiting"] == WAITING
    assert notifier.dropped == 8 * WAITING
    assert WAITING * LONGEST < 1.1 * (1 << 20)


async def test_nobody_is_told_where_nothing_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench.at(monkeypatch)
    notifier = Notifier((), {})
    await told(notifier, notice("held"))
    assert (bench.started, notifier.dropped) == ([], 0)


async def test_another_program_from_a_reload_is_the_one_that_runs(tmp_path: Path) -> None:
    notifier = Notifier(("/nowhere",), ENVIRON)
    notifier.notify(notice("held"))
    notifier.command = (program(tmp_path, ":"),)
    await told(notifier)
    assert notifier.told == 1
