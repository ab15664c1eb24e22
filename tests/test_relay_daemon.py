"""A real daemon and a relay, good or bad: no hook notices, `status` says it, nothing is lost."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from aep_sdk.control import ControlClient, NackError
from aep_sdk.projection import project_state
from attrs import define, frozen

from fake_relay import TOKEN, FakeRelay, Switches
from judge import judge
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSON, JSONObject
from live import Live, scratch
from relay_program import first_arrivals, logged_lines

HOOKS = 50


@define(eq=False)
class Room:
    """A daemon that does not run yet, and its relay, which does."""

    live: Live
    relay: FakeRelay

    async def start(self) -> None:
        await trio.to_thread.run_sync(self.live.start)

    async def hooks(self, count: int = HOOKS, *, session: str = "s", size: int = 0) -> None:
        """Send so many hooks; each must be taken in."""
        for number in range(count):
            call: JSONObject = {
                "hook_event_name": "PreToolUse", "session_id": session, "tool_name": "Bash",
                "tool_call_id": f"{session}-{number}", "tool_input": {"filler": "x" * size},
            }  # fmt: skip
            answer = await trio.to_thread.run_sync(partial(self.live.ask, call, timeout=2.0))
            assert answer == b"0\n"

    async def shim(self) -> None:
        """One hook as the vendor runs it: it must say nothing, and succeed."""
        hook = b'{"hook_event_name":"SessionStart","session_id":"shim","source":"startup"}'
        done = await trio.to_thread.run_sync(self.live.shim, hook)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    async def status(self) -> JSONObject:
        answer = await request(self.live.where.socket, "status", timeout=2.0)
        relay = answer["relay"]
        assert isinstance(relay, dict)
        return relay

    async def until(self, condition: Callable[[JSONObject], bool], seconds: float = 15.0) -> None:
        """Wait until the status of delivery is so."""
        status = await self.status()
        with trio.move_on_after(seconds):
            while not condition(status):
                await trio.sleep(0.02)
                status = await self.status()
        assert condition(status), status

    async def until_delivered(self) -> None:
        """Wait until the relay has everything; each line is the log's, byte for byte."""
        self.hurry()
        await self.until(lambda status: status["link"] == "up" and status["lag_events"] == 0)
        arrived = [line.encode() for line in self.relay.lines if '"session":' in line]
        assert set(first_arrivals(arrived).values()) == set(logged_lines(self.live))

    def hurry(self) -> None:
        """Have the daemon try its relay now."""
        assert self.live.process is not None
        self.live.process.send_signal(signal.SIGUSR1)

    async def stop(self) -> None:
        """SIGTERM: it ends in time, with nothing to explain."""
        assert await trio.to_thread.run_sync(self.live.stop) == 0
        assert "Traceback" not in (self.live.home / "stderr").read_text()


@asynccontextmanager
async def room(**environ: str) -> AsyncIterator[Room]:
    relay = FakeRelay()
    with scratch(**environ) as live:
        async with trio.open_nursery() as nursery:
            await nursery.start(relay.run)
            live.environ["AEP_RELAY_URL"] = relay.url
            yield Room(live, relay)
            nursery.cancel_scope.cancel()


def states(relay: FakeRelay) -> list[JSON]:
    """What presence says, in order."""
    data = [event["data"] for event in relay.events if event["type"] == "agent.presence"]
    return [one["state"] for one in data if isinstance(one, dict)]


# --- a good relay ---------------------------------------------------------------------------------


async def test_what_is_logged_arrives_as_it_is_between_online_and_offline() -> None:
    async with room(AEP_TOKEN=TOKEN) as r:
        await r.start()
        await r.hooks(5, session="a")
        await r.hooks(5, session="b")
        await r.until_delivered()
        await r.stop()
        assert states(r.relay) == ["online", "offline"]
        assert json.loads(r.relay.lines[0])["type"] == "agent.presence"
        assert r.relay.frames[0]["type"] == "hello"
        assert r.relay.frames[-1]["type"] == "closing"
        assert project_state(r.relay.events)["violations"] == []


# --- bad ones -------------------------------------------------------------------------------------


@frozen
class Trouble:
    """What a relay does, and what `status` says of it.

    Attributes:
        switches: what it does.
        link: the link's states that are right meanwhile.
        said: what the last error has in it; None: what is not proven says enough.
        size: of the hooks' input.
    """

    switches: Switches
    link: tuple[str, ...]
    said: str | None
    size: int = 0


async def _late() -> None:
    await trio.sleep(0.1)


GARBAGE = ("garbage", "[1]", '{"type":7}', '{"type":"pong"}', '{"type":"x","t":1}', "{" * 5000, "")

TROUBLES = {
    "hangs-up": Trouble(Switches(hang_up=True), ("down",), "hung up"),
    "is-no-http": Trouble(Switches(answer=b"\0\xff garbage\r\n\r\n"), ("down",), "speaks no HTTP"),
    "redirects": Trouble(Switches(refuse=302), ("down",), "HTTP 302"),
    "refuses-the-token": Trouble(Switches(refuse=401), ("refused",), "refuses the token"),
    "accepts-then-closes": Trouble(Switches(close_after_accept=True), ("down",), "closed"),
    "says-no-hello": Trouble(Switches(no_hello=True), ("starting",), None),
    "says-too-much": Trouble(Switches(say=("x" * (2 << 20),)), ("down",), "1009"),
    "hangs-up-now-and-then": Trouble(Switches(drop_after=7), ("up", "down"), None),
    "answers-late": Trouble(Switches(before_pong=_late), ("up",), None),
    "never-answers": Trouble(Switches(no_pong=True), ("up",), None),
    "stops-reading": Trouble(Switches(stop_reading=True), ("up",), None, size=200_000),
    "reads-a-byte-a-second": Trouble(Switches(one_byte_a_second=True), ("up",), None),
    "refuses-events": Trouble(
        Switches(refuse_events=lambda _: True), ("up",), "invalid-event"
    ),
    "talks-garbage": Trouble(Switches(say=GARBAGE), ("up",), None),
    "complains": Trouble(
        Switches(say=('{"type":"error","code":"busy","detail":"later"}',)), ("up",), "busy later"
    ),
    "never-closes": Trouble(Switches(never_close=True), ("up",), None),
    "pings-at-goodbye": Trouble(Switches(ping_at_goodbye=True), ("up",), None),
}  # fmt: skip


@pytest.mark.parametrize("name", TROUBLES)
async def test_a_bad_relay_costs_no_hook_anything_and_is_named(name: str) -> None:
    trouble = TROUBLES[name]
    async with room(AEP_TOKEN=TOKEN, AEP_CAPTURE="full") as r:
        r.relay.switches = trouble.switches
        await r.start()
        await r.hooks(size=trouble.size)
        await r.shim()
        await r.until(lambda status: is_named(status, trouble))
        said = await trio.to_thread.run_sync(r.live.run, "status")
        assert (said.returncode, said.stderr) == (0, "")
        assert (trouble.said or "delivered") in said.stdout

        r.relay.switches = Switches()
        await r.relay.drop_all()
        await r.until_delivered()

        r.relay.switches = trouble.switches
        await r.relay.drop_all()
        await r.hooks(5, session="later", size=trouble.size)
        await r.stop()


def is_named(status: JSONObject, trouble: Trouble) -> bool:
    """Whether the status of delivery says what is wrong."""
    if status["link"] not in trouble.link:
        return False
    return trouble.said is None or trouble.said in str(status["last_error"])


async def test_where_nobody_listens_events_wait_on_disk_for_the_relay_that_comes() -> None:
    async with room(AEP_TOKEN=TOKEN) as r:
        port = r.relay.port
        r.relay = FakeRelay(port=port + 1 if port < 65_535 else port - 1)
        r.live.environ["AEP_RELAY_URL"] = r.relay.url
        await r.start()
        await r.hooks()
        await r.until(lambda status: status["link"] == "down")
        assert (await r.status())["last_error"] == "cannot connect: Connection refused"
        async with trio.open_nursery() as nursery:
            await nursery.start(r.relay.run)
            await r.until_delivered()
            await r.stop()
            nursery.cancel_scope.cancel()


# --- commands -------------------------------------------------------------------------------------


def command(session: str = "s", **more: JSON) -> JSONObject:
    return {
        "aep": "0.1", "id": "01KAEPC0MMAND0000000000000", "type": "control.cancel",
        "time": "2026-11-30T12:00:00.000Z", "source": "aep://desk/agent/console",
        "agent": "console", "session": session, "capture": "metadata", **more,
    }  # fmt: skip


def control(relay: FakeRelay) -> JSON:
    """What the daemon's first hello says of commands."""
    capabilities = relay.frames[0]["capabilities"]
    assert isinstance(capabilities, dict)
    return capabilities["control"]


def answers(relay: FakeRelay) -> list[str]:
    """The lines in which commands were answered."""
    return [line for line in relay.lines if '"type":"control.' in line]


async def test_a_command_gets_one_answer_in_its_sessions_order_and_the_same_again() -> None:
    async with room(AEP_TOKEN=TOKEN) as r:
        await r.start()
        await r.hooks(3)
        await r.until_delivered()
        assert control(r.relay) == {"accepts": [], "ack_window_ms": 10_000}
        await r.relay.send(command())
        await r.relay.until(lambda: len(answers(r.relay)) == 1)
        await r.relay.send(command())
        await r.relay.send(command())
        await r.relay.until(lambda: len(answers(r.relay)) == 3)
        await r.hooks(1, session="s2")
        await r.until_delivered()
        assert len(set(answers(r.relay))) == 1
        answer = json.loads(answers(r.relay)[0])
        assert (answer["type"], answer["data"]) == ("control.rejected", {"reason": "unsupported"})
        assert answer["cause"] == command()["id"]
        assert r.live.events("s")[-1] == answer
        judge(r.live.events("s"))
        status = await r.status()
        assert status["commands"] == {"unsupported": 1, "repeated": 2}
        await r.stop()


async def test_an_answer_outlives_the_connection_that_its_command_came_over() -> None:
    async with room(AEP_TOKEN=TOKEN) as r:
        await r.start()
        await r.hooks(1)
        await r.until_delivered()
        r.relay.switches = Switches(no_pong=True)
        await r.relay.send(command())
        await r.relay.until(lambda: len(answers(r.relay)) == 1)
        r.relay.switches = Switches()
        await r.relay.drop_all()
        await r.until_delivered()
        assert len(answers(r.relay)) == 2
        await r.relay.send(command())
        await r.relay.until(lambda: len(answers(r.relay)) == 3)
        assert len(set(answers(r.relay))) == 1
        await r.stop()


async def test_a_command_for_a_session_that_nobody_knows_is_answered_and_not_logged() -> None:
    async with room(AEP_TOKEN=TOKEN) as r:
        await r.start()
        await r.hooks(1)
        await r.until_delivered()
        await r.relay.send(command("nobody"))
        await r.relay.until(lambda: len(answers(r.relay)) == 1)
        await r.relay.send(command("nobody"))
        await r.relay.until(lambda: len(answers(r.relay)) == 2)
        assert len(set(answers(r.relay))) == 1
        answer = json.loads(answers(r.relay)[0])
        assert (answer["cause"], answer["session"]) == (command()["id"], "nobody")
        assert (answer["epoch"], answer["seq"]) == (1, 0)
        assert [file.name for file in r.live.log_files()] == ["s.jsonl"]
        await r.stop()


async def test_without_a_token_events_go_out_and_no_command_is_obeyed() -> None:
    async with room() as r:
        r.relay.switches = Switches(needs_token=False)
        await r.start()
        await r.hooks(3)
        await r.until_delivered()
        assert control(r.relay) == {"accepts": [], "ack_window_ms": 10_000}
        await r.relay.send(command())
        await r.relay.until(lambda: len(answers(r.relay)) == 1)
        assert json.loads(answers(r.relay)[0])["data"]["reason"] == "unauthorized"
        await r.stop()


async def test_the_standards_own_client_gets_its_answer_and_finds_no_violation() -> None:
    async with room(AEP_TOKEN=TOKEN) as r:
        await r.start()
        await r.hooks()
        await r.until_delivered()
        said = await trio.to_thread.run_sync(ask_as_the_sdk_does, r.relay.url, "s")
        assert said == ("unsupported", False)
        await r.until_delivered()
        await r.stop()
        state = project_state(r.relay.events)
        assert state["violations"] == []
        assert [(one["session"], one["position"]["seq"]) for one in state["sessions"]] == [
            ("s", len(r.live.events("s")) - 1)
        ]


def ask_as_the_sdk_does(url: str, session: str) -> tuple[str, bool]:
    """Why a cancel was refused, and whether the client made that up because nobody answered."""
    client = ControlClient(url, agent="console", host="desk", token=TOKEN)
    client.connect()
    try:
        with pytest.raises(NackError) as nack:
            client.send("control.cancel", session, retries=0)
        return nack.value.reason, nack.value.synthesized
    finally:
        client.close()
