"""The registered command, run as kimi runs it: what it does, how long it takes, what gets there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from doctor_room import Room, room
from kimiaepd import probe
from kimiaepd.doctor import command, runs
from kimiaepd.doctor.check import Patient
from kimiaepd.doctor.command import Seen
from kimiaepd.doctor.ours import commands
from kimiaepd.doctor.runs import run
from kimiaepd.hook_socket.wire import encode_reply
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.setup.config_text import read
from live import scratch
from patients import lines, patient

# --- one run -----------------------------------------------------------------------------------


async def test_a_run_gets_the_payload_no_environment_and_a_group_of_its_own() -> None:
    done = await run("/bin/cat; echo; pwd; env | sort; kill -s 0 -- -$$ && echo leads", b"hey")
    told = [line for line in done.stdout.kept.decode().splitlines() if line[:2] != "_="]
    assert (done.status, told) == (0, ["hey", "/", "PWD=/", "leads"])
    assert done.stderr.size == 0


async def test_what_it_did_is_told_apart() -> None:
    assert (await run("exit 7", b"")).status == 7
    assert (await run("kill -9 $$", b"")).status == -9
    done = await run("printf out; printf error >&2", b"")
    assert (done.stdout.kept, done.stderr.kept) == (b"out", b"error")
    assert (done.stdout.size, done.stderr.size) == (3, 5)


async def test_a_command_that_reads_nothing_of_much_is_no_error() -> None:
    assert (await run("exit 0", b"x" * (1 << 20))).status == 0


async def test_of_endless_output_the_beginning_is_kept_and_the_rest_counted() -> None:
    with trio.fail_after(20):
        done = await run("/bin/dd if=/dev/zero bs=65536 count=64 2>/dev/null", b"")
    assert (len(done.stdout.kept), done.stdout.size) == (runs.KEPT_BYTES, 64 << 16)


class Leash:
    """A pipe that a command holds with all that it starts; it ends when the last of them does."""

    def __init__(self, folder: Path) -> None:
        self.fifo = folder / "fifo"
        os.mkfifo(self.fifo)
        self._end = trio.lowlevel.FdStream(os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK))
        # While nobody holds it, it would seem to have ended.
        self._held: int | None = os.open(self.fifo, os.O_WRONLY)

    def on(self, text: str) -> str:
        """The command, so that it says that it is up and holds the pipe."""
        return f"exec 9> {self.fifo}; printf up >&9; {text}"

    async def up(self) -> None:
        """Wait until it runs."""
        assert await self._end.receive_some() == b"up"
        assert self._held is not None
        os.close(self._held)

    async def ended(self) -> None:
        """Wait until nothing of it is left."""
        async with self._end:
            assert await self._end.receive_some() == b""


@pytest.mark.parametrize(
    "text",
    ["trap '' TERM; sleep 60 & wait", "sleep 60 & exit 0"],
    ids=["that hangs", "whose child holds the outputs"],
)
async def test_a_command_is_killed_with_all_that_it_started(tmp_path: Path, text: str) -> None:
    leash = Leash(tmp_path)
    with trio.fail_after(20):
        done = await run(leash.on(text), b"", patience=1.0)
        await leash.up()
        await leash.ended()
    assert done.status is None


async def test_what_is_cancelled_is_killed(tmp_path: Path) -> None:
    leash = Leash(tmp_path)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, leash.on("sleep 60"), b"")
            await leash.up()
            nursery.cancel_scope.cancel()
        await leash.ended()


# --- what it comes to --------------------------------------------------------------------------


@pytest.fixture
def here() -> Iterator[Room]:
    """A set-up without a daemon."""
    with scratch() as live, room(live) as here:
        here.where.state_dir.mkdir(mode=0o700, parents=True)
        yield here


def whom(here: Room) -> Patient:
    return patient(here.environ)


async def see(here: Room, status: dict[str, int | str | None] | None = None) -> Seen:
    found = commands(read(here.config.read_bytes()))
    return await command.examine(whom(here), found, {**status} if status is not None else None)


@asynccontextmanager
async def daemon(path: Path, *answers: bytes) -> AsyncIterator[None]:
    """Something that takes every hook in and says nothing, and gives these answers to a status."""
    left = list(answers)

    async def talk(stream: trio.SocketStream) -> None:
        asked = bytes(await stream.receive_some())
        await stream.send_all(b"0\n" if asked.startswith(b"AEPD1 hook") else left.pop(0))

    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(str(path))
    listening.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, talk, [trio.SocketListener(listening)])
        yield
        nursery.cancel_scope.cancel()


async def test_without_a_daemon_it_must_be_silent_and_no_more(here: Room) -> None:
    seen = await see(here)
    assert [line.split(":")[0] for line in lines(seen.checks)] == [
        "ok hook program", "ok hook command", "ok without daemon",
    ]  # fmt: skip
    assert not seen.probed


async def test_a_probe_that_another_daemon_got_did_not_arrive(here: Room) -> None:
    last = encode_reply(b'{"last_probe":"another","probes":1}')
    async with daemon(here.where.socket, *[last] * command.TRIES):
        seen = await see(here, {"last_probe": None})
    (line,) = lines(seen.checks)
    assert line.startswith("finding hook command: it exits 0, but its probe did not arrive")
    assert line.endswith("start the daemon again, and look again")
    assert not seen.probed


async def test_the_probe_of_another_doctor_that_comes_after_ours_is_no_fault(
    here: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    payload = probe.payload

    def keep(nonce: str) -> bytes:
        sent.append(nonce)
        return payload(nonce)

    async def overtaken_once(*_: object, **__: object) -> JSONObject:
        return {"last_probe": "another" if len(sent) == 1 else sent[-1]}

    monkeypatch.setattr(probe, "payload", keep)
    monkeypatch.setattr(command, "request", overtaken_once)
    seen = await see(here, {"last_probe": None})
    assert not any(line.startswith("finding") for line in lines(seen.checks))
    assert seen.probed


@pytest.mark.parametrize("answer", [encode_reply(b'{"pid":1}'), b""])
async def test_where_the_daemon_cannot_say_whether_it_came_nothing_is_claimed(
    here: Room, answer: bytes
) -> None:
    async with daemon(here.where.socket, answer):
        seen = await see(here, {"pid": 1})
    assert not any(line.startswith("finding") for line in lines(seen.checks))
    assert not seen.probed


async def test_a_slow_command_is_a_warning(here: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SLOW_SECONDS", 0.0)
    found = lines((await see(here)).checks)
    assert found[1].startswith("warning hook command: exits 0")
    assert "keeps the machine busy" in found[1]


async def test_a_command_that_hangs_is_said_to(here: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: str, body: bytes) -> runs.Run:
        return await run("sleep 60", body, patience=0.2)

    monkeypatch.setattr(command, "run", hang)
    (line,) = lines((await see(here)).checks)
    assert "it does not end within 10 s, and kimi waits for it" in line


async def test_a_held_call_may_wait_for_a_daemon_that_hangs(
    here: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.environ["AEP_KIMI_CONTROL"] = "1"
    here.install()
    assert len(commands(read(here.config.read_bytes()))) == 2

    async def hang(text: str, body: bytes) -> runs.Run:
        still = "53" in text and str(here.where.socket) in text
        return await run("sleep 60" if still else text, body, patience=0.2 if still else 10)

    monkeypatch.setattr(command, "run", hang)
    found = lines((await see(here)).checks)
    assert not any(line.startswith("finding") for line in found)


async def test_a_command_that_misbehaves_without_a_daemon_alone_is_named(here: Room) -> None:
    here.shim.write_text(
        "import os, sys\n"
        "if 'kimiaepd-' in sys.argv[1] and os.path.exists(sys.argv[1]): sys.exit(2)\n"
    )
    found = lines((await see(here)).checks)
    assert found[-1].startswith(
        "finding without daemon: with a dead daemon's socket at its path it exits 2, and kimi"
    )
    assert "run: kimiaepd setup install" in found[-1]


async def test_what_it_says_in_its_last_line_is_fit_for_a_terminal(here: Room) -> None:
    here.where.socket.touch()
    here.shim.write_text("import sys\nsys.exit('first\\nthen \\033[31mred')\n")
    async with daemon(here.where.socket.with_name("s")):
        here.swap(str(here.where.socket), str(here.where.socket.with_name("s")))
        here.environ["KIMIAEPD_SOCKET"] = str(here.where.socket.with_name("s"))
        (line,) = lines((await see(here)).checks)
    assert "it exits 1: then \ufffd[31mred (" in line
    assert "is not this version's" in line


async def test_commands_that_can_do_nothing_are_not_run(here: Room) -> None:
    here.shim.unlink()
    assert await see(here) == Seen((), probed=False)


async def test_where_no_scratch_directory_can_be_made_the_command_is_tried_all_the_same(
    here: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", "/tmp/kimiaepd-x")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    program, tried, alone = lines((await see(here)).checks)
    assert program.startswith("ok hook program")
    assert tried.startswith("ok hook command: exits 0")
    assert alone.startswith("warning without daemon: cannot be tried: Read-only file system: /tmp")


async def test_no_scratch_directory_is_left(here: Room) -> None:
    before = set(Path("/tmp").glob("kimiaepd-*"))
    await see(here)
    assert not {path for path in Path("/tmp").glob("kimiaepd-*") if path not in before}
