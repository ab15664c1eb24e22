"""The console in a real Chromium: content stays text, secrets stay here, strangers stay out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from browser.console_room import PASSED, Console

MARKUP = "<img src=x onerror=alert(1)><script>document.title='taken'</script><b>bold</b>"


def test_the_code_leaves_the_address_and_the_token_is_in_memory_alone(console: Console) -> None:
    run = console.browser.run
    assert run("return location.href") == f"{console.url}/"
    assert run("return [localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    assert run("return history.state") is None


def test_a_code_that_was_used_opens_nothing(console: Console) -> None:
    code = console.code()
    console.browser.go(f"{console.url}/#code={code}")
    console.browser.sees("live", "#link")
    console.browser.go(f"{console.url}/#code={code}")
    console.browser.sees("This code is not good", "#door-said")
    assert all("401" in one for one in console.browser.complaints())


def test_content_full_of_markup_stays_text(console: Console) -> None:
    console.say("SessionStart", MARKUP[:60], source=MARKUP, model=MARKUP)
    console.prompt(MARKUP, MARKUP[:60])
    hook = console.held(MARKUP, MARKUP[:60])
    console.browser.sees(MARKUP, ".session .what")
    console.browser.sees(MARKUP, ".event .what")
    console.browser.key("t", "k")
    console.browser.sees("onerror=alert(1)", "#detail pre")
    made = "return document.querySelectorAll('main :is(img, script, b b, pre b, .what *)').length"
    assert console.browser.run(made) == 0
    assert console.browser.run("return document.title") == "(1) kimiaepd"
    console.browser.find(".ask button[data-option=allow]").click()
    assert hook.reply() == PASSED


def test_what_would_turn_text_around_is_made_visible(console: Console) -> None:
    hook = console.call("rm -rf \u202eecafrus\u202c")
    console.browser.sees("rm -rf \ufffdecafrus\ufffd", ".ask pre")
    console.press(hook, "d")
    hook.denial()


@pytest.mark.parametrize(
    "script",
    [
        "document.body.innerHTML = '<p>x</p>'",
        "document.createElement('script').text = 'window.ran = 1'",
        "eval('1')",
    ],
)
def test_the_browser_itself_lets_nothing_become_markup_or_program(
    console: Console, script: str
) -> None:
    said = console.browser.run(
        # Not at once: what a driver runs is let do what a page may not.
        "return new Promise(done => setTimeout(() => {"
        f" try {{ {script}; done('it was let') }} catch (error) {{ done(error.name) }} }}))"
    )
    assert said != "it was let"
    console.browser.complaints()  # of what we tried


STRANGER = Path(__file__).with_name("stranger.html").read_bytes()
"""Another site's page, which knows a good token and a good code, and tries all it can."""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(STRANGER)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name for it
        """Say nothing."""


@contextmanager
def stranger() -> Iterator[int]:
    """Another site on this machine; its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_page_of_another_place_can_neither_read_nor_command(console: Console, host: str) -> None:
    """It even knows a good token and a good code, and the browser is its user's own."""
    token = (console.live.where.state_dir / "collector-token").read_text().strip()
    code = console.code()
    with stranger() as port:
        known = json.dumps([console.url, token, code])
        console.browser.go(f"http://{host}:{port}/#{quote(known)}")
        came = console.browser.until(
            lambda: console.browser.run("return window.came"), "all outcomes"
        )
    # The blind one is sent, and nobody there sees that it is refused.
    assert came == {
        "socket": "refused", "events": "refused", "stream": "refused", "session": "refused",
        "blind": "opaque", "frame": "out of reach", "program": "refused",
    }  # fmt: skip
    console.browser.complaints()  # of what the stranger tried
    console.browser.go(f"{console.url}/#code={code}")
    console.browser.sees("live", "#link")  # nobody used up the code
