"""The console in a browser beside a real daemon, and hooks that wait for what is answered there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trio
from attrs import define, field

from browser.driver import Browser
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSON, JSONObject
from live import Live

WIDE = (1440, 900)
PASSED = b"0\n"
HELD_SECONDS = 60.0


@define(eq=False)
class Hook:
    """A hook on a bare socket, while it waits for its reply."""

    thread: threading.Thread
    replies: list[bytes]

    @property
    def is_held(self) -> bool:
        """Whether it still waits."""
        return self.thread.is_alive()

    def reply(self, seconds: float = 10.0) -> bytes:
        """What it was told, once it is free."""
        self.thread.join(seconds)
        assert not self.is_held, "the hook is not freed"
        return self.replies[0]

    def denial(self) -> str:
        """The reason that it was told with a deny."""
        _, _, body = self.reply().partition(b"\n")
        output = json.loads(body)["hookSpecificOutput"]
        assert output["permissionDecision"] == "deny"
        return str(output["permissionDecisionReason"])


@define(eq=False)
class Console:
    """The page, and the daemon that it shows."""

    browser: Browser
    live: Live
    url: str = ""
    _hooks: list[Hook] = field(factory=list)

    def code(self, words: bytes = b"") -> str:
        """A new one-time code."""
        said = trio.run(partial(request, self.live.where.socket, "console", words, timeout=5))
        self.url = str(said["url"]).rstrip("/")
        return str(said["code"])

    def open(self, words: bytes = b"") -> None:
        """Open the page by a new code, as the address on the terminal does it."""
        self.browser.resize(*WIDE)
        self.browser.prefer("light")
        code = self.code(words)
        self.browser.go(f"{self.url}/#code={code}")
        self.browser.sees("live", "#link")

    def say(self, hook: str, session: str = "s", **fields: JSON) -> None:
        """Send a hook that nobody answers."""
        body: JSONObject = {"hook_event_name": hook, "session_id": session, "cwd": "/w", **fields}
        assert self.live.ask(body) == PASSED

    def prompt(self, text: str, session: str = "s") -> None:
        """Begin a run."""
        self.say("UserPromptSubmit", session, prompt=[{"type": "text", "text": text}])

    def call(self, command: str, session: str = "s", number: int = 1) -> Hook:
        """Be about to run a command, and wait."""
        body: JSONObject = {
            "hook_event_name": "PreToolUse", "session_id": session, "cwd": "/w",
            "tool_name": "Bash", "tool_call_id": f"c{number}", "tool_input": {"command": command},
        }  # fmt: skip
        replies: list[bytes] = []
        thread = threading.Thread(
            target=lambda: replies.append(self.live.ask(body, timeout=HELD_SECONDS))
        )
        thread.start()
        hook = Hook(thread, replies)
        self._hooks.append(hook)
        return hook

    def held(self, command: str = "ls", session: str = "s", number: int = 1) -> Hook:
        """The same, and it is asked about on the page."""
        hook = self.call(command, session, number)
        self.browser.sees(command, "#asks .ask pre")
        assert hook.is_held
        return hook

    def choose(self, session: str) -> None:
        """Click a session in the list."""
        self.browser.find(f".session[title='{session}']").click()

    def kinds(self) -> list[str]:
        """The types of the events that the timeline shows, as it shows them."""
        return self.browser.texts("#event-list .kind")

    def press(self, hook: Hook, *keys: str) -> None:
        """Press keys until they have freed a hook: what comes right after a change counts not."""

        def pressed() -> bool:
            self.browser.key(*keys)
            return not hook.is_held

        self.browser.until(pressed, f"answer by {keys}")

    def app(self, expression: str) -> JSON:
        """What an expression about the running page says, by its name `app`."""
        script = (
            "const done = arguments[arguments.length - 1];"
            f"import('/console/console.js').then(({{app}}) => done({expression}))"
        )
        found: JSON = self.browser.ask("POST", "execute/async", {"script": script, "args": []})
        return found


@contextmanager
def consoling(browser: Browser, live: Live) -> Iterator[Console]:
    """A console until the end of the block; hooks that still wait then are freed by a stop."""
    console = Console(browser, live)
    try:
        yield console
    finally:
        if live.process:
            assert live.stop() == 0
        for hook in console._hooks:
            hook.thread.join(10)
        browser.ask("POST", "url", {"url": "about:blank"})
        browser.complaints()  # of the daemon that has gone
