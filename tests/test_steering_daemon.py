"""Steering and the notifier in a real daemon, with its own relay and the installed shim."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
from aep_sdk.control import NackError

from kimiaepd.hook_socket.client import request
from kimiaepd.hook_socket.wire import encode_request
from kimiaepd.instruct import INSTRUCT
from kimiaepd.mapping.json_value import JSON, JSONObject, dump
from kimiaepd.nursery import UPLINK_SECONDS
from kimiaepd.setup.command import OBSERVED
from kimiaepd.setup.events import SINCE
from live import Live, scratch
from test_gate_daemon import Shim, call, held, human, is_settled, pre_tool_use, respond
from test_own_relay import consumer

AT_ONCE = 200
"""Calls held at once; fewer than the hooks that are served at once."""


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setenv("no_proxy", "*")
    with scratch(AEP_INSTRUCT="1") as made:
        yield made


async def prompt(live: Live, text: str) -> bytes:
    """What the shim of a prompt writes out."""
    body: JSONObject = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": text}
    return (await call(live.shim, dump(body))).stdout


async def test_an_instruction_goes_through_relay_daemon_and_shim_once(live: Live) -> None:
    await call(live.start)
    assert await prompt(live, "one") == b""
    async with human(live) as client:
        await call(client.send, INSTRUCT, "s", data={"text": "mind the gap"})
        with pytest.raises(NackError) as nack:
            await call(client.send, INSTRUCT, "s", data={"text": ""})
        assert nack.value.reason == "invalid"
    text = (await call(live.run, "status")).stdout
    assert "steering 1 waiting, 1 queued, 0 delivered\n" in text
    assert await prompt(live, "two") == b'{"message":"mind the gap"}'
    assert await prompt(live, "three") == b""
    assert live.stop() == 0
    types = [str(event["type"]) for event in is_settled(live)]
    assert [one.rpartition(".")[2] for one in types if "instruction" in one] == [
        "queued",
        "delivered",
    ]


async def test_only_a_prompt_is_told_anything(live: Live) -> None:
    await call(live.start)
    await prompt(live, "one")
    async with human(live) as client:
        await call(client.send, INSTRUCT, "s", data={"text": "mind the gap"})
    said = {}
    for event in (*SINCE, "SomethingNew"):
        if event not in ("UserPromptSubmit", "SessionEnd"):
            body: JSONObject = {"hook_event_name": event, "session_id": "s", "tool_name": "Bash"}
            said[event] = await call(live.ask_raw, dump(body))
    assert set(said.values()) == {b"0\n"}
    assert len(said) == 19
    assert await prompt(live, "two") == b'{"message":"mind the gap"}'


async def test_a_stop_says_what_was_not_delivered(live: Live) -> None:
    await call(live.start)
    await prompt(live, "one")
    async with human(live) as client:
        await call(client.send, INSTRUCT, "s", data={"text": "mind the gap"})
    assert live.stop() == 0
    (dropped,) = [one for one in live.events("s") if str(one["type"]).endswith(".dropped")]
    assert dropped["data"] == {"reason": "daemon-restarted"}


def notify_by(live: Live, folder: Path, text: str | None) -> None:
    """Hold calls, and have a shell script run for each; without a text there is no such file."""
    program = folder / "notify"
    if text is not None:
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    live.configure(f'[gate]\nenabled = true\nnotify_command = ["{program}"]\n')


async def notifier(live: Live) -> JSONObject:
    said = (await request(live.where.socket, "status", timeout=5))["notifier"]
    assert isinstance(said, dict)
    return said


async def test_a_call_is_held_for_who_is_told_of_it_and_he_hears_how_it_ended(
    live: Live, tmp_path: Path
) -> None:
    notify_by(live, tmp_path, f"exec cat >>{tmp_path}/told")
    await call(live.start)
    async with trio.open_nursery() as nursery:
        shim = Shim()
        nursery.start_soon(shim.run, live, pre_tool_use())
        (ask,) = await held(live)
        with trio.fail_after(10):
            while "notifier 1 told\n" not in (await call(live.run, "status")).stdout:
                pass
        assert await call(live.stop) == 0
        assert await shim.said() == b""
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [(one["event"], one["ask"], one["tool"]) for one in told] == [
        ("held", ask, "Bash"),
        ("over", ask, "Bash"),
    ]
    assert told[1]["outcome"] == "dismissed"


async def test_a_stop_waits_for_no_notifier_that_has_nothing_to_tell(
    live: Live, tmp_path: Path
) -> None:
    notify_by(live, tmp_path, ":")
    took = []
    for _ in range(3):  # the machine may be busy, and not each time
        await call(live.start)
        began = time.perf_counter()
        assert await call(live.stop) == 0
        took.append(time.perf_counter() - began)
        if took[-1] < UPLINK_SECONDS * 0.75:
            break
    assert took[-1] < UPLINK_SECONDS * 0.75, took


async def test_a_reload_takes_another_program_and_no_hold_that_no_hook_waits_for(
    live: Live, tmp_path: Path
) -> None:
    """Hooks are registered for the hold that there was, and for a gate that is there."""
    live.configure("[gate]\nenabled = true\nhold_ms = 20000\n")
    await call(live.start)
    notify_by(live, tmp_path, f"exec cat >>{tmp_path}/told")
    file = live.where.config_file
    file.write_text(file.read_text().replace("enabled = true", "enabled = false\nhold_ms = 50000"))
    answer = await request(live.where.socket, "reload", timeout=5)
    assert answer == {"ok": True, "notes": ["what else changed takes effect at the next start"]}
    async with trio.open_nursery() as nursery:
        shim = Shim()
        nursery.start_soon(shim.run, live, pre_tool_use())
        (ask,) = await held(live)
        with trio.fail_after(10):
            while (await notifier(live))["told"] != 1:
                pass
        told = json.loads((tmp_path / "told").read_text())
        assert told["ask"] == ask
        left = datetime.fromisoformat(told["expires_at"]) - datetime.now(UTC)
        assert left < timedelta(seconds=20)
        assert await call(live.stop) == 0
        assert await shim.said() == b""


async def test_who_is_told_comes_sees_what_waits_and_answers(live: Live, tmp_path: Path) -> None:
    notify_by(live, tmp_path, f"exec cat >>{tmp_path}/told")
    await call(live.start)
    async with trio.open_nursery() as nursery:
        shim = Shim()
        nursery.start_soon(shim.run, live, pre_tool_use())
        (ask,) = await held(live)
        with trio.fail_after(10):
            while (await notifier(live))["told"] != 1:
                pass
        assert json.loads((tmp_path / "told").read_text())["ask"] == ask
        async with consumer(live) as screen, human(live) as client:
            await screen.say({"type": "subscribe", "id": "all", "filter": {}, "from": "all"})
            with trio.fail_after(10):
                asked = await screen.until("attention.requested")
            assert asked["id"] == ask
            await respond(client, ask, {"option": "deny", "text": "came late"})
        assert b'"came late"' in await shim.said()
    is_settled(live)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("trap '' TERM; sleep 1000; exit 0", None),
        ("head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2; exit 1", "failed"),
        (None, "cannot be run"),
    ],
    ids=["hangs", "floods and fails", "is not there"],
)
async def test_two_hundred_holds_and_other_hooks_wait_for_no_notifier(
    live: Live, tmp_path: Path, text: str | None, failure: str | None
) -> None:
    notify_by(live, tmp_path, text)
    await call(live.start)
    replies: list[bytes] = []

    async def hold(number: int) -> None:
        async with await trio.open_unix_socket(live.where.socket) as client:
            await client.send_all(encode_request("hook", time.time_ns(), pre_tool_use(number)))
            replies.append(b"".join([bytes(piece) async for piece in client]))

    async with trio.open_nursery() as nursery:
        for number in range(AT_ONCE):
            nursery.start_soon(hold, number)
        asks = await held(live, AT_ONCE)
        assert len(set(asks)) == AT_ONCE
        took = []
        for number in range(20):
            body: JSON = {"hook_event_name": "Stop", "session_id": "t", "number": number}
            began = time.perf_counter()
            assert await call(live.ask_raw, dump(body)) == b"0\n"
            took.append(time.perf_counter() - began)
        assert sorted(took)[10] < OBSERVED.seconds, "the machine may be busy, and not each time"
        if failure:
            with trio.fail_after(20):
                while failure not in str((await notifier(live))["failed"]):
                    pass
        assert replies == []
        began = time.perf_counter()
        assert await call(live.stop) == 0
        assert time.perf_counter() - began < 2 * UPLINK_SECONDS, "so long it may go on telling"
    assert replies == [b"0\n"] * AT_ONCE
    assert "attention.timeout" not in [event["type"] for event in is_settled(live)]
