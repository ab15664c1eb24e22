"""Commands of the console to an emitter that is not ours: it is offered what the roster says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from browser.console_room import Console
from kimiaepd.mapping.json_value import JSON, JSONObject
from ws_client import Client, connected

SESSION = "elsewhere"


def said(seq: int, kind: str, **more: JSON) -> JSONObject:
    return {
        "aep": "0.1", "id": f"e-{seq}", "type": kind, "time": "2026-12-01T00:00:00.000Z",
        "source": f"aep://far/agent/other/session/{SESSION}", "agent": "other",
        "session": SESSION, "seq": seq, "epoch": 1, "capture": "metadata", **more,
    }  # fmt: skip


@asynccontextmanager
async def emitter(console: Console, *accepts: str) -> AsyncIterator[Client]:
    """An emitter of another kind, that accepts these commands for a session with an open run."""
    token = (console.live.where.state_dir / "collector-token").read_text().strip()
    bearer = (b"authorization", f"Bearer {token}".encode())
    kinds: list[JSON] = list(accepts)
    async with connected(int(console.url.rpartition(":")[2]), bearer) as client:
        control: JSON = {"accepts": kinds, "ack_window_ms": 5_000}
        await client.say(
            {
                "type": "hello", "versions": ["0.1"], "role": "emitter",
                "identity": {"agent": "other", "instance": "far"},
                "capabilities": {"control": control},
            },
            said(0, "run.started", run="r-1", data={"trigger": "user"}),
        )  # fmt: skip
        await client.until("hello")
        yield client


async def hands(work: Callable[[], object]) -> None:
    """What a person does meanwhile."""
    with trio.fail_after(30):
        await trio.to_thread.run_sync(work)


async def test_a_run_is_cancelled_where_its_emitter_takes_that_and_only_when_sure(
    console: Console,
) -> None:
    browser = console.browser

    def cancel() -> None:
        browser.sees("takes cancel", "#about")
        assert browser.texts("#instruct") == []
        browser.key("c")
        browser.sees("Cancel the run?", "#sure")
        browser.find("#sure [data-close]").click()
        browser.find("#cancel").click()
        browser.find("#sure-yes").click()

    async with emitter(console, "control.cancel") as client:
        await hands(cancel)
        command = await client.until("control.cancel")
        assert (command["session"], command["run"]) == (SESSION, "r-1")
        assert command["data"] == {"scope": "run"}
        await client.say(
            said(1, "control.accepted", cause=command["id"]),
            said(2, "run.cancelled", run="r-1", cause=command["id"], data={"by": "control"}),
        )
        await hands(partial(browser.sees, "idle", ".session .state"))
        await hands(partial(browser.sees, "Cancel: accepted", "#instructed"))
        assert browser.texts("#cancel") == []


async def test_a_refused_command_says_why(console: Console) -> None:
    browser = console.browser

    def cancel() -> None:
        browser.sees("takes cancel", "#about")
        browser.key("c")
        browser.find("#sure-yes").click()

    async with emitter(console, "control.cancel") as client:
        await hands(cancel)
        command = await client.until("control.cancel")
        data: JSON = {"reason": "refused", "detail": "not now"}
        await client.say(said(1, "control.rejected", cause=command["id"], data=data))
        await hands(partial(browser.sees, "Cancel: refused, refused (not now)", "#instructed"))


async def test_an_accepted_answer_that_could_not_be_carried_out_may_be_given_again(
    console: Console,
) -> None:
    browser = console.browser
    respond = "control.attention.respond"
    options: JSON = [{"id": "approved", "label": "1"}, {"id": "rejected", "label": "2"}]
    data: JSONObject = {"kind": "permission", "options": options, "respond_via": ["control"]}
    async with emitter(console, respond) as client:
        await client.say(said(1, "attention.requested", subject="Bash", data=data))
        await hands(partial(browser.sees, "approved", ".ask button.main"))
        await hands(lambda: browser.find(".ask button.main").click())
        first = await client.until(respond)
        assert (first["subject"], first["data"]) == ("e-1", {"answer": {"option": "approved"}})
        await client.say(said(2, "control.accepted", cause=first["id"]))
        await hands(partial(browser.sees, "Accepted.", ".ask .said"))
        failure: JSON = {"code": "web-write-failed"}
        await client.say(said(3, "error.raised", cause=first["id"], data=failure))
        await hands(partial(browser.sees, "web-write-failed", ".ask .said"))
        await hands(lambda: browser.find(".ask button[data-option=rejected]").click())
        second = await client.until(respond)
        assert second["data"] == {"answer": {"option": "rejected"}}
        assert second["id"] != first["id"]


async def test_nothing_is_offered_where_nothing_is_accepted(console: Console) -> None:
    async with emitter(console):
        await hands(partial(console.browser.sees, "takes no commands", "#about"))
        assert console.browser.texts("#cancel, #instruct") == []


async def test_a_session_that_nobody_claims_any_more_says_so(console: Console) -> None:
    async with emitter(console, "control.cancel"):
        await hands(partial(console.browser.sees, "takes cancel", "#about"))
    await hands(partial(console.browser.sees, "nobody there to take commands", "#about", 25))
