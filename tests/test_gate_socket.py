"""The held gate through the real socket and the real shim: what the vendor gets, and when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import define, field

from gate_room import GateRoom, gated, is_settled
from kimiaepd import shim as shim_room
from kimiaepd.hook_socket.conversation import Reply
from kimiaepd.hook_socket.endpoint import bind
from kimiaepd.hook_socket.peer import Peer
from kimiaepd.hook_socket.server import Limits, serve
from kimiaepd.hook_socket.wire import encode_request
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.setup.command import Command
from stub_handler import Stub

ROUNDS = 100
MOST_MS = 20.0


def pre_tool_use(call_id: str = "c1", session: str = "s") -> bytes:
    payload = {
        "hook_event_name": "PreToolUse", "session_id": session, "cwd": "/w",
        "tool_name": "Bash", "tool_call_id": call_id, "tool_input": {"command": "rm -rf build"},
    }  # fmt: skip
    return json.dumps(payload).encode()


@define
class Handler(Stub):
    """The daemon, as far as hooks go."""

    room: GateRoom

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> bytes | Reply:
        return await self.room.room.observer.hook(body, started_ns, peer)

    def oversized(self, head: bytes, size: int, started_ns: int) -> None:
        raise AssertionError


@define
class Served:
    """A gate behind a real socket."""

    path: Path
    room: GateRoom
    stopping: trio.Event
    held: trio.MemoryReceiveChannel[JSONObject]
    over: trio.MemoryReceiveChannel[JSONObject]
    command: list[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        registered = Command(
            socket=str(self.path),
            shim=shim_room.__file__,
            python=os.path.realpath(sys.executable),
            seconds=20.0,
        )
        self.command = ["/bin/sh", "-c", registered.render()]

    async def next_ask(self) -> str:
        """The id of the next call that is held."""
        return str((await self.held.receive())["ask"])

    async def next_over(self) -> JSON:
        """How the next hold ends."""
        return (await self.over.receive())["outcome"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private directory whose name leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:
        yield Path(name)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    """A gate behind a socket, until the block ends; then it stops as at SIGTERM."""
    begun, held = trio.open_memory_channel[JSONObject](1000)
    ended, over = trio.open_memory_channel[JSONObject](1000)
    stopping = trio.Event()
    with trio.fail_after(30):
        async with gated(folder / "data") as room, trio.open_nursery() as nursery:
            room.gate.notify = lambda told: (
                begun.send_nowait(told) if told["event"] == "held" else ended.send_nowait(told)
            )
            endpoint = bind(folder / "s")
            await nursery.start(
                partial(serve, endpoint, Handler(room), Limits(), stopping=stopping)
            )
            yield Served(endpoint.path, room, stopping, held, over)
            room.gate.stop()
            stopping.set()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"option": "deny", "text": "n\u00f6 'way' \"here\""},
            '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny",'
            '"permissionDecisionReason":"n\u00f6 \'way\' \\"here\\""}}'.encode(),
        ),
        ({"option": "allow"}, b""),
    ],
)
async def test_the_registered_command_says_what_was_answered(
    folder: Path, answer: JSON, expected: bytes
) -> None:
    async with serving(folder) as served, trio.open_nursery() as nursery:
        ran: list[subprocess.CompletedProcess[bytes]] = []

        async def run() -> None:
            ran.append(
                await trio.run_process(
                    served.command,
                    stdin=pre_tool_use(),
                    env={},
                    capture_stdout=True,
                    capture_stderr=True,
                )
            )

        nursery.start_soon(run)
        ask = await served.next_ask()
        served.room.command(ask, {"answer": answer})
        assert await served.next_over() == "answered"
    assert (ran[0].stdout, ran[0].stderr, ran[0].returncode) == (expected, b"", 0)


async def test_a_shim_that_is_killed_frees_the_call_and_dismisses_the_ask(folder: Path) -> None:
    async with serving(folder) as served:
        shims = []
        for number in range(2):
            shim = await trio.lowlevel.open_process(
                served.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
            )
            assert shim.stdin
            await shim.stdin.send_all(pre_tool_use(f"c{number}"))
            await shim.stdin.aclose()
            shims.append(shim)
            await served.next_ask()
        shims[0].kill()
        assert await served.next_over() == "dismissed"
        await shims[0].wait()
        assert served.room.gate.status()["held"] == 1
        *_, last = served.room.room.events()
        assert last["type"] == "attention.resolved"
        served.room.gate.stop()
        assert await shims[1].wait() == 0
        assert shims[1].stdout
        assert await shims[1].stdout.receive_some() == b""
        is_settled(served.room)


async def test_fifty_held_calls_are_freed_within_a_second_of_a_stop(folder: Path) -> None:
    async with serving(folder) as served:
        clients = []
        for number in range(50):
            client = await trio.open_unix_socket(served.path)
            await client.send_all(
                encode_request("hook", time.time_ns(), pre_tool_use(f"c{number}"))
            )
            clients.append(client)
        for _ in clients:
            await served.next_ask()
        began = trio.current_time()
        served.room.gate.stop()
        served.stopping.set()
        assert {await _all(client) for client in clients} == {b"0\n"}
        assert trio.current_time() - began < 1
        is_settled(served.room)


async def _all(client: trio.SocketStream) -> bytes:
    async with client:
        return b"".join([bytes(piece) async for piece in client])


async def test_an_answer_frees_its_hook_within_milliseconds(folder: Path) -> None:
    async with serving(folder) as served:
        tries = []
        for tried in range(3):  # the cores are shared with whatever else runs
            rounds = range(tried * ROUNDS, (tried + 1) * ROUNDS)
            took = sorted([await _round(served, number) for number in rounds])
            tries.append(took[ROUNDS * 99 // 100 - 1])
            if tries[-1] < MOST_MS:
                break
        assert tries[-1] < MOST_MS, tries


async def _round(served: Served, number: int) -> float:
    """From the command to the freed hook, in milliseconds."""
    body = pre_tool_use(f"c{number}", session=f"s{number}")
    async with await trio.open_unix_socket(served.path) as client:
        await client.send_all(encode_request("hook", time.time_ns(), body))
        ask = await served.next_ask()
        began = time.perf_counter()
        served.room.command(ask, {"answer": {"option": "deny"}}, session=f"s{number}")
        await client.receive_some()
        return (time.perf_counter() - began) * 1e3
