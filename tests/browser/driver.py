"""A real Chromium, driven over WebDriver (W3C) by plain HTTP: what a person's hands and eyes do.

Debian's `chromium` and `chromium-driver` are one pair. A browser has a scratch profile, no network
but loopback, and ends with the block that opened it.

It knows nothing of the page.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
from attrs import define, frozen

PROGRAMS = ("chromium", "chromedriver")
START_SECONDS = 30
WAIT_SECONDS = 15.0
_STARTED = re.compile(r"started successfully on port (\d+)")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004"}

Scheme = Literal["light", "dark"]


class DriverError(Exception):
    """The browser says no; `str()` is what it says."""


def missing() -> str | None:
    """Why there is no browser here; None where there is one."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    wanted = "apt-get install chromium chromium-driver"
    return f"no {' and no '.join(absent)} here: {wanted}" if absent else None


@frozen
class Element:
    """Something on the page."""

    browser: Browser
    id: str

    def click(self) -> None:
        """Click it where it is, as a mouse does; something in front of it is an error."""
        self.browser.ask("POST", f"element/{self.id}/click", {})

    def type(self, text: str) -> None:
        """Type into it."""
        self.browser.ask("POST", f"element/{self.id}/value", {"text": KEYS.get(text, text)})

    @property
    def text(self) -> str:
        """What of its text can be seen."""
        return str(self.browser.ask("GET", f"element/{self.id}/text"))


@define(eq=False)
class Browser:
    """One browser with one window."""

    http: httpx.Client
    session: str = ""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One WebDriver command.

        Raises:
            DriverError: it failed.
        """
        url = "/".join(one for one in ("/session", self.session, path) if one)
        answer = self.http.request(method, url, json=body)
        value = answer.json()["value"]
        if answer.is_error:
            raise DriverError(f"{value['error']}: {value['message'].splitlines()[0]}")
        return value

    def devtools(self, command: str, **params: object) -> Any:
        """A command of Chromium's own protocol."""
        return self.ask("POST", "goog/cdp/execute", {"cmd": command, "params": params})

    def go(self, url: str) -> None:
        """Load a page, also where only the fragment of the address is another one."""
        self.ask("POST", "url", {"url": "about:blank"})
        self.ask("POST", "url", {"url": url})

    def run(self, script: str, *args: object) -> Any:
        """Run a script in the page, and give back what it returns, once it is there."""
        return self.ask("POST", "execute/sync", {"script": script, "args": list(args)})

    def find(self, css: str) -> Element:
        """The first element that matches, once there is one."""
        found: Element = self.until(lambda: next(iter(self.all(css)), None), f"an element {css}")
        return found

    def all(self, css: str) -> list[Element]:
        """Every element that matches now."""
        found = self.ask("POST", "elements", {"using": "css selector", "value": css})
        return [Element(self, one[_ELEMENT]) for one in found]

    def key(self, *names: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        actions = [
            {"type": kind, "value": KEYS.get(name, name)}
            for name in names
            for kind in ("keyDown", "keyUp")
        ]
        self.ask("POST", "actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def texts(self, css: str) -> list[str]:
        """The whole texts of all elements that match and are shown."""
        script = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter(one => one.checkVisibility()).map(one => one.textContent)"
        )
        found: list[str] = self.run(script, css)
        return found

    def until(self, look: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
        """Look until there is something to see, and give it back."""
        end = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > end:
                shown = self.run("return document.body.innerText")
                raise AssertionError(f"no {what} within {seconds} s; the page shows:\n{shown}")
            time.sleep(0.02)  # a browser is another process, with no event of ours to wait for
        return found

    def sees(self, text: str, css: str = "body", seconds: float = WAIT_SECONDS) -> None:
        """Wait until an element that matches shows the text."""
        self.until(
            lambda: any(text in one for one in self.texts(css)), f"{text!r} in {css}", seconds
        )

    def resize(self, width: int, height: int) -> None:
        """Give the page this room."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def prefer(self, scheme: Scheme) -> None:
        """Prefer light or dark, as a person's system does."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def picture(self, file: Path) -> None:
        """Keep what can be seen."""
        file.write_bytes(base64.b64decode(self.ask("GET", "screenshot")))

    def complaints(self) -> list[str]:
        """What the browser itself said against the page since it was last asked."""
        said = self.ask("POST", "se/log", {"type": "browser"})
        return [str(one["message"]) for one in said if one["level"] == "SEVERE"]


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="kb", ignore_cleanup_errors=True) as home:
        environ = {"HOME": home, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        driver = subprocess.Popen(
            ["chromedriver", "--port=0"], env=environ, stdout=subprocess.PIPE, text=True
        )
        try:
            with httpx.Client(base_url=_address(driver), timeout=60, trust_env=False) as http:
                browser = Browser(http)
                made = browser.ask("POST", "", {"capabilities": {"alwaysMatch": _wish(home)}})
                browser.session = made["sessionId"]
                try:
                    yield browser
                finally:
                    browser.ask("DELETE", "")
        finally:
            driver.terminate()
            driver.communicate(timeout=10)


def _address(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    for line in driver.stdout:
        if found := _STARTED.search(line):
            return f"http://127.0.0.1:{found[1]}"
    raise AssertionError("chromedriver did not start")


def _wish(home: str) -> dict[str, object]:
    arguments = [
        "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--disable-extensions", "--proxy-server=direct://", f"--user-data-dir={home}/profile",
        # Nothing but loopback is reached, whatever a page or the browser itself would like.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    ]  # fmt: skip
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # it has none for root
    return {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": shutil.which(PROGRAMS[0]), "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
    }
