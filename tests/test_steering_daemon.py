"""Steering and the notifier in a real daemon, with its own relay and the installed shim."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from aep_sdk.control import NackError

from kimiaepd.instruct import INSTRUCT
from kimiaepd.mapping.json_value import JSONObject, dump
from live import Live, scratch
from test_gate_daemon import Shim, call, held, human, is_settled, pre_tool_use


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


async def test_a_stop_says_what_was_not_delivered(live: Live) -> None:
    await call(live.start)
    await prompt(live, "one")
    async with human(live) as client:
        await call(client.send, INSTRUCT, "s", data={"text": "mind the gap"})
    assert live.stop() == 0
    (dropped,) = [one for one in live.events("s") if str(one["type"]).endswith(".dropped")]
    assert dropped["data"] == {"reason": "daemon-restarted"}


async def test_a_call_is_held_for_who_is_told_of_it_and_he_hears_how_it_ended(
    live: Live, tmp_path: Path
) -> None:
    program = tmp_path / "notify"
    program.write_text(f"#!/bin/sh\nexec cat >>{tmp_path}/told\n")
    program.chmod(0o755)
    live.configure(f'[gate]\nenabled = true\nnotify_command = ["{program}"]\n')
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
