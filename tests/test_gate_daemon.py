"""The held gate in a real daemon, with its own relay and a client of the standard as the human."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

import pytest
import trio
from aep_sdk.control import ControlClient, NackError
from aep_sdk.projection import project_state
from attrs import define, field

from judge import judge
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSON, JSONObject, dump, parse
from live import Live, scratch
from test_own_relay import consumer

Given = ParamSpec("Given")
Back = TypeVar("Back")
RESPOND = "control.attention.respond"


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setenv("no_proxy", "*")
    with scratch(AEP_KIMI_CONTROL="1", AEP_ATTENTION_TIMEOUT_MS="20000") as made:
        yield made


async def call(work: Callable[Given, Back], *args: Given.args, **kwargs: Given.kwargs) -> Back:
    """Do what blocks in a thread."""
    with trio.fail_after(20):
        return await trio.to_thread.run_sync(partial(work, *args, **kwargs))


def pre_tool_use(number: int = 1, session: str = "s") -> bytes:
    return dump(
        {
            "hook_event_name": "PreToolUse", "session_id": session, "cwd": "/w",
            "tool_name": "Bash", "tool_call_id": f"c{number}", "tool_input": {"command": "ls"},
        }
    )  # fmt: skip


@define(eq=False)
class Shim:
    """The registered command, while it waits."""

    done: trio.Event = field(factory=trio.Event)
    ran: list[subprocess.CompletedProcess[bytes]] = field(factory=list)

    async def run(self, live: Live, body: bytes) -> None:
        """Run it to its end."""
        self.ran.append(await call(live.shim, body, seconds=23.0))
        self.done.set()

    async def said(self) -> bytes:
        """What it wrote, once it has ended; nothing else may be wrong with it."""
        with trio.fail_after(10):
            await self.done.wait()
        (ran,) = self.ran
        assert (ran.returncode, ran.stderr) == (0, b"")
        return ran.stdout


@asynccontextmanager
async def human(live: Live) -> AsyncIterator[ControlClient]:
    """A client of the standard's, connected as a person's would be."""
    found = await request(live.where.socket, "console", b"token", timeout=5)
    client = ControlClient(str(found["url"]), agent="phone", host="h", token=str(found["token"]))
    await call(client.connect)
    yield client
    await call(client.close)


async def status(live: Live) -> JSONObject:
    gate = (await request(live.where.socket, "status", timeout=5))["gate"]
    assert isinstance(gate, dict)
    return gate


async def held(live: Live, count: int = 1) -> list[str]:
    """The ids of the asks, once so many calls are held."""
    with trio.fail_after(10):
        while (await status(live))["held"] != count:
            pass
    return [str(event["id"]) for event in live.events("s") if "expires_at" in str(event["data"])]


async def respond(client: ControlClient, ask: str, answer: JSON) -> None:
    """What a person says; a NackError where it is not accepted."""
    await call(client.send, RESPOND, "s", subject=ask, cause=ask, data={"answer": answer})


def is_settled(live: Live) -> list[JSONObject]:
    events = live.events("s")
    judge(events)
    projected = project_state(events)
    assert projected["violations"] == []
    assert [one["pending"] for one in projected["sessions"]] == [[]]
    return events


async def test_a_person_denies_through_the_relay_and_the_vendor_hears_why(live: Live) -> None:
    await call(live.start)
    async with human(live) as client, trio.open_nursery() as nursery:
        shim = Shim()
        nursery.start_soon(shim.run, live, pre_tool_use())
        (ask,) = await held(live)
        with pytest.raises(NackError) as nack:
            await respond(client, ask, {"text": " "})
        assert nack.value.reason == "invalid"
        await respond(client, ask, {"option": "deny", "text": "not now"})
        said = parse(await shim.said())
        assert said == {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "not now",
            }
        }
        with pytest.raises(NackError) as nack:
            await respond(client, ask, {"option": "allow"})
        assert nack.value.reason == "invalid"
    events = is_settled(live)
    assert [event["type"] for event in events] == [
        "tool.requested", "attention.requested", "control.rejected", "control.accepted",
        "attention.answered", "attention.resolved", "tool.denied", "control.rejected",
    ]  # fmt: skip
    requested, accepted, answered, resolved, denied = (events[place] for place in (1, 3, 4, 5, 6))
    assert requested["cause"] == events[0]["id"]
    assert answered["cause"] == accepted["cause"]
    assert resolved["cause"] == denied["cause"] == answered["id"]
    assert answered["subject"] == resolved["subject"] == requested["id"]
    assert live.stop() == 0


async def test_nobody_waits_while_no_person_is_connected(live: Live) -> None:
    await call(live.start)
    async with trio.open_nursery() as nursery:
        shim = Shim()
        nursery.start_soon(shim.run, live, pre_tool_use())
        assert await shim.said() == b""
    assert [event["type"] for event in live.events("s")] == ["tool.requested"]
    gate = await status(live)
    assert (gate["enabled"], gate["answerable"], gate["held"]) == (True, False, 0)
    assert gate["calls"] == {"nobody there": 1}


async def test_whoever_loses_the_relay_may_come_back_and_answer(live: Live) -> None:
    await call(live.start)
    async with trio.open_nursery() as nursery:
        shim = Shim()
        async with human(live):
            nursery.start_soon(shim.run, live, pre_tool_use())
            (ask,) = await held(live)
        with trio.fail_after(5):
            while (await status(live))["answerable"]:
                pass
        assert (await status(live))["held"] == 1, "it is held on"
        async with human(live) as another:
            await respond(another, ask, {"text": "Deny"})
        assert b'"deny"' in await shim.said()
    is_settled(live)


async def test_a_start_says_that_the_registered_hook_does_not_wait_long_enough(live: Live) -> None:
    live.environ["AEP_KIMI_CONTROL"] = "0"
    (live.home / ".kimi-code").mkdir()
    assert (await call(live.run, "setup", "install", "--kimi-version", "2.1.0")).returncode == 0
    live.environ["AEP_KIMI_CONTROL"] = "1"
    await call(live.start)
    assert live.stop() == 0
    said = "waits 0.25 s, and kimi 10 s, for a call that may be held for 20 s"
    assert said in (live.home / "stderr").read_text()
    await call(live.start, "up", "--kimi-version", "2.1.0")
    assert live.stop() == 0
    assert (live.home / "stderr").read_text().count(said) == 1, "up registers what is needed"


async def test_a_stop_frees_every_call_at_once(live: Live) -> None:
    await call(live.start)
    shims = [Shim() for _ in range(3)]
    async with human(live), trio.open_nursery() as nursery:
        for number, shim in enumerate(shims):
            nursery.start_soon(shim.run, live, pre_tool_use(number))
        await held(live, 3)
        assert live.process
        live.process.send_signal(signal.SIGTERM)
        with trio.fail_after(2):
            for shim in shims:
                assert await shim.said() == b""
    assert await call(live.wait) == 0
    events = is_settled(live)
    ends = [event["data"] for event in events if event["type"] == "attention.resolved"]
    assert [data["resolution"] for data in ends if isinstance(data, dict)] == ["dismissed"] * 3


async def test_a_daemon_that_dies_frees_its_calls_and_the_next_one_dismisses_them(
    live: Live,
) -> None:
    await call(live.start)
    async with human(live), trio.open_nursery() as nursery:
        shim = Shim()
        nursery.start_soon(shim.run, live, pre_tool_use())
        (ask,) = await held(live)
        await call(live.kill)
        assert await shim.said() == b""
    await call(live.start)
    *_, resolved = is_settled(live)
    assert (resolved["subject"], resolved["epoch"]) == (ask, 2)
    assert resolved["data"] == {"resolution": "dismissed"}


async def test_a_reload_decides_about_the_next_call_and_lets_a_held_one_be(live: Live) -> None:
    await call(live.start)
    async with human(live) as client, trio.open_nursery() as nursery:
        shim, next_one = Shim(), Shim()
        nursery.start_soon(shim.run, live, pre_tool_use(1))
        (ask,) = await held(live)
        live.configure('[gate]\nmode = "yolo"\noptions = "four"\n')
        assert (await request(live.where.socket, "reload", timeout=5))["ok"] is True
        nursery.start_soon(next_one.run, live, pre_tool_use(2))
        assert await next_one.said() == b""
        with pytest.raises(NackError):
            await respond(client, ask, {"option": "cancel"})
        await respond(client, ask, {"option": "deny"})
        assert b'"deny"' in await shim.said()
    is_settled(live)


async def test_status_says_how_the_gate_stands(live: Live) -> None:
    await call(live.start)
    async with human(live) as client, trio.open_nursery() as nursery:
        shim = Shim()
        nursery.start_soon(shim.run, live, pre_tool_use())
        (ask,) = await held(live)
        text = (await call(live.run, "status")).stdout
        assert "gate     manual, 1 held now, so far: held 1\n" in text
        await respond(client, ask, {"option": "allow"})
        await shim.said()
    with trio.fail_after(5):
        while (await status(live))["answerable"]:
            pass
    text = (await call(live.run, "status")).stdout
    assert (
        "manual, 0 held now, nobody could answer, so no call is held, so far: held 1, answ" in text
    )


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"KIMIAEPD_COLLECTOR": "0"}, "there is no relay"),
        ({"AEP_RELAY_URL": "ws://127.0.0.1:9"}, "no token for the relay is set"),
    ],
)
async def test_without_a_relay_and_a_token_the_gate_is_off_and_says_so(
    live: Live, setting: dict[str, str], why: str
) -> None:
    live.environ |= {**setting, "AEP_INSTRUCT": "1"}
    live.configure('[gate]\nwhen_unreachable = "hold"\n')
    await call(live.start)
    assert await call(live.ask_raw, pre_tool_use()) == b"0\n"
    assert (await status(live))["calls"] == {"no relay with a token": 1}
    text = (await call(live.run, "status")).stdout
    assert "0 held now, there is no relay with a token, so no call is held" in text
    assert live.stop() == 0
    lines = (live.home / "stderr").read_text().splitlines()
    for said in ("gate.enabled is set, but no call is held", "but no instruction is taken"):
        assert any(said in line and why in line for line in lines)
    assert any("no relay with a token" in line for line in lines), "again as the first call comes"


async def test_with_a_token_a_relay_that_is_away_may_be_waited_for(live: Live) -> None:
    live.environ |= {"AEP_RELAY_URL": "ws://127.0.0.1:9", "AEP_TOKEN": "t"}
    live.configure('[gate]\nwhen_unreachable = "hold"\n')
    await call(live.start)
    with trio.fail_after(10):
        while not (await status(live))["controlled"]:
            pass
    async with trio.open_nursery() as nursery:
        shim = Shim()
        nursery.start_soon(shim.run, live, pre_tool_use())
        await held(live)
        assert await call(live.stop) == 0
        assert await shim.said() == b""
    is_settled(live)


async def test_whoever_connects_makes_a_gate_stand_again(live: Live) -> None:
    live.environ["AEP_ATTENTION_TIMEOUT_MS"] = "100"
    await call(live.start)
    async with human(live):
        for number in range(3):
            assert await call(live.ask_raw, pre_tool_use(number)) == b"0\n"
        assert (await status(live))["stood_down"] == 1
        async with human(live):
            assert (await status(live))["stood_down"] == 0
            await call(live.ask_raw, pre_tool_use(4))
    types = [event["type"] for event in is_settled(live)]
    assert types.count("attention.timeout") == 3
    assert types.count("x.kimi-code.gate.stood_down") == 1


async def test_so_does_any_command_also_one_that_comes_again(live: Live) -> None:
    live.environ["AEP_ATTENTION_TIMEOUT_MS"] = "100"
    await call(live.start)
    command: JSONObject = {
        "aep": "0.1", "id": "c-1", "type": RESPOND, "time": "2026-12-01T00:00:00.000Z",
        "source": "aep://test/agent/human", "agent": "human", "session": "s", "subject": "x",
        "capture": "metadata", "data": {"answer": {"option": "allow"}},
    }  # fmt: skip
    async with consumer(live) as client:
        await client.say({"type": "subscribe", "id": "all", "filter": {}, "from": "all"})
        await call(live.ask_raw, pre_tool_use(0))
        await client.say(command)
        await client.until("control.rejected")
        for number in (1, 2):
            await call(live.ask_raw, pre_tool_use(number))
        assert (await status(live))["stood_down"] == 1
        await client.say(command)
        with trio.fail_after(5):
            while (await status(live))["stood_down"]:
                pass
    is_settled(live)
