"""What a script answers and cancels at `kimi web`: a real daemon, a scripted server of Kimi's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
from attrs import frozen

import kap_turns
from kap_journal import KapHome
from kap_server import KapServer, serving
from kimiaepd.mapping.json_value import JSONObject
from live import Live, scratch

Ran = subprocess.CompletedProcess[str]


@frozen
class Place:
    """A daemon in primary mode with control, and a server with one session that it is told of."""

    live: Live
    server: KapServer

    async def run(self, *arguments: str) -> Ran:
        with trio.fail_after(30):
            return await trio.to_thread.run_sync(partial(self.live.run, *arguments))

    async def asks(self, count: int = 1) -> list[JSONObject]:
        """What waits, once so many asks do."""
        found: list[JSONObject] = []
        with trio.fail_after(20):
            while len(found) != count:
                found = [
                    json.loads(one)
                    for one in (await self.run("inbox", "--json")).stdout.splitlines()
                ]
        return found


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    with scratch(
        AEP_KIMI_WEB_MODE="primary", AEP_KIMI_WEB_CONTROL="1", KIMIAEPD_COLLECTOR_PORT="0"
    ) as live:
        async with serving(KapHome(live.home / ".kimi-code")) as server:
            server.session("s1")
            await trio.to_thread.run_sync(live.start)
            await server.subscribed("s1", 20)
            kap_turns.begin(server, "s1")
            yield Place(live, server)
            assert await trio.to_thread.run_sync(live.stop) == 0


async def test_an_approval_is_answered_and_the_effect_is_the_server_s_own_word(
    place: Place,
) -> None:
    kap_turns.ask(place.server, "s1", command="make deploy")
    (ask,) = await place.asks()
    assert "make deploy" in str(ask["prompt"])
    said = await place.run("answer", str(ask["ask"]), "Reject", "--reason", "not now", "--json")
    facts = json.loads(said.stdout)
    assert (said.returncode, facts["result"]) == (0, "accepted"), facts
    (write,) = place.server.writes
    assert json.loads(write.body) == {"decision": "rejected", "feedback": "not now"}
    late = await place.run("answer", str(ask["ask"]), "approved")
    assert late.returncode == 4
    assert "somebody answered first: rejected" in late.stderr


async def test_a_server_that_does_not_take_an_answer_is_no_success(place: Place) -> None:
    name = kap_turns.ask(place.server, "s1")
    (ask,) = await place.asks()
    place.server.switches.instead[f"POST /api/v1/sessions/s1/approvals/{name}"] = (
        b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"
    )
    said = await place.run("answer", str(ask["ask"]), "approved")
    assert (said.returncode, said.stdout) == (4, "")
    assert "it was taken, but kimi web did not: web-" in said.stderr


async def test_what_was_answered_at_kimi_s_own_screen_says_so(place: Place) -> None:
    name = kap_turns.ask(place.server, "s1")
    (ask,) = await place.asks()
    kap_turns.resolve(place.server, "s1", name, {"decision": "approved"})
    await place.asks(0)
    said = await place.run("answer", str(ask["ask"]), "rejected")
    assert said.returncode == 4
    assert "too late: it was answered at the agent's own screen: approved" in said.stderr


async def test_a_run_is_cancelled_and_no_other_one(place: Place) -> None:
    other = None
    while other is None or other.returncode == 66:  # until the relay is told of the session
        other = await place.run("cancel", "s1", "--run", "another")
    assert other.returncode == 4
    assert "no run of kimi web is open there, or not this one" in other.stderr
    assert not place.server.writes
    done = await place.run("cancel", "s1")
    assert (done.returncode, done.stdout) == (0, "accepted\n")
    await place.server.until(lambda: bool(place.server.writes))
    assert place.server.writes[0].path.endswith("s1:abort")
