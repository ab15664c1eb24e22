"""The console in a real Chromium, at a real daemon: what a person sees there, as it happens."""

from __future__ import annotations

import json

from browser.console_room import PASSED, Console, consoling
from browser.driver import Browser
from kimiaepd.mapping.json_value import JSONObject
from live import Live


def test_a_run_appears_live_with_what_caused_what(console: Console) -> None:
    console.say("SessionStart", source="startup", model="kimi-k2")
    console.prompt("Why does the test fail?")
    console.browser.sees("running", ".session .state")
    console.browser.sees("Why does the test fail?", ".session .what")
    console.say("Stop")
    console.browser.sees("idle", ".session .state")
    assert console.kinds() == ["session.started", "run.started", "run.finished"]
    console.browser.sees("kimi-code \u00b7 kimi-k2 \u00b7 capture redacted", "#about")
    console.browser.sees("takes answers, instructions", "#about")
    console.browser.find(".event .cause:not([hidden])").click()
    console.browser.sees("run.started", ".event.flash[aria-selected=true] .kind")
    console.browser.sees("led to run.finished", "#detail")
    console.browser.key("e")
    console.browser.sees("run.finished", ".event[aria-selected=true] .kind")
    console.browser.key("x")
    console.browser.sees("run.started", ".event[aria-selected=true] .kind")
    console.say("SessionEnd", reason="exit")
    console.browser.sees("ended", ".session .state")


def test_a_reload_with_a_new_code_catches_up(console: Console) -> None:
    console.prompt("before")
    console.browser.sees("run.started", ".kind")
    console.browser.ask("POST", "refresh", {})
    console.browser.sees("needs a one-time code", "#door")
    console.say("Stop")
    console.browser.find("#code").type(f"{console.url}/#code={console.code()}")
    console.browser.find("#door button").click()
    console.browser.sees("run.finished", ".kind")
    assert console.kinds() == ["run.started", "run.finished"]


def test_a_lost_connection_is_said_and_followed_by_another_from_where_it_was(
    browser: Browser, live: Live
) -> None:
    live.start()
    keep = (
        "window.sockets = []; window.said = []; window.WebSocket = class extends WebSocket {"
        " constructor(...all) { super(...all); sockets.push(this); if (window.shut) this.close(); }"
        " send(text) { said.push(text); super.send(text); } }"
    )
    script = browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=keep)
    with consoling(browser, live) as console:
        console.open()
        console.prompt("before", "old")
        browser.sees("before", ".session .what")
        browser.run("window.shut = true; sockets.at(-1).close()")
        browser.sees("Disconnected from the daemon", "#notice")
        browser.sees("disconnected", "#link")
        console.say("Stop", "old")
        console.prompt("meanwhile", "new")
        browser.run("window.shut = false")
        browser.sees("meanwhile", ".session .what")
        browser.sees("run.finished", ".kind")
        assert console.kinds() == ["run.started", "run.finished"]
        assert browser.texts("#notice") == []
        asked = [json.loads(text) for text in browser.run("return said")]
        wishes = [frame["from"] for frame in asked if frame["type"] == "subscribe"]
        assert wishes[0] == "all"
        assert {one["session"]: one["seq"] for one in wishes[-1]} == {"new": -1, "old": 0}
    browser.devtools("Page.removeScriptToEvaluateOnNewDocument", **script)


def test_a_daemon_that_was_started_anew_asks_for_a_new_code_and_nothing_comes_twice(
    browser: Browser, live: Live
) -> None:
    live.start()
    with consoling(browser, live) as console:
        console.open()
        console.prompt("before")
        browser.sees("before", ".session .what")
        live.kill()
        browser.sees("Disconnected from the daemon", "#notice")
        live.configure(f"[collector]\nport = {console.url.rpartition(':')[2]}\n")
        live.start()
        browser.sees("started anew", "#door-why")
        console.say("Stop")
        browser.find("#code").type(console.code())
        browser.key("Enter")
        browser.sees("run.finished", ".kind")
        assert console.kinds().count("run.started") == 1


def test_a_token_that_was_taken_back_opens_the_page_no_more(console: Console) -> None:
    console.prompt("before")
    console.browser.sees("before", ".session .what")
    assert console.live.run("token", "rotate").returncode == 0
    console.browser.sees("does not know this page any more", "#door-why")
    assert all("socket" in one for one in console.browser.complaints())
    console.browser.find("#code").type(console.code())
    console.browser.key("Enter")
    console.browser.sees("live", "#link")
    assert console.kinds() == ["run.started"]


def test_a_search_finds_events_and_sessions(console: Console) -> None:
    console.prompt("Plant the apple tree", "orchard")
    console.prompt("Count the sheep", "meadow")
    console.browser.until(lambda: len(console.browser.texts(".session")) == 2, "two sessions")
    console.choose("meadow")
    console.browser.key("/")
    console.browser.find("#search").type("sheep")
    console.browser.until(
        lambda: console.browser.texts(".session b") == ["meadow"], "the one session"
    )
    assert console.kinds() == ["run.started"]
    console.browser.key("Escape")
    console.browser.until(lambda: len(console.browser.texts(".session")) == 2, "both sessions")


def test_the_story_leaves_out_what_every_event_shows(console: Console) -> None:
    console.prompt("go")
    console.say("TurnStarted", turn_id=0, origin_kind="user")
    console.browser.sees("2 events", "#about")
    assert console.kinds() == ["run.started"]
    console.browser.key("v")
    console.browser.sees("session.turn_started", ".kind")


def test_keys_walk_through_events_and_sessions(console: Console) -> None:
    for name in ("one", "two"):
        console.prompt(name, name)
        console.say("Stop", name)
    console.browser.until(lambda: len(console.browser.texts(".session")) == 2, "two sessions")
    console.browser.key("s", "j", "j", "k", "k")
    chosen = ".session[aria-selected=true] b"
    console.browser.until(
        lambda: console.browser.texts(chosen) == console.browser.texts(".session b")[:1],
        "the first session chosen",
    )
    console.browser.key("Enter", "j")
    console.browser.sees("run.finished", ".event[aria-selected=true] .kind")
    console.browser.key("k")
    console.browser.sees("run.started", ".event[aria-selected=true] .kind")
    console.browser.key("?")
    console.browser.sees("Keyboard", "#help[open]")


def test_an_instruction_goes_where_it_is_taken(console: Console) -> None:
    console.prompt("go")
    console.browser.sees("Send", "#instruct")
    console.browser.find("#instruction").type("Then say what is left.")
    console.browser.key("Enter")
    console.browser.sees("Instruction: accepted", "#instructed")
    hook: JSONObject = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": []}
    reply = console.live.ask(hook)
    assert reply != PASSED
    assert b"Then say what is left." in reply
