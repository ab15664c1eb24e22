"""How the console looks in a real Chromium: for axe-core, and in pictures for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser.axe import axe, faults
from browser.console_room import Console
from browser.driver import Scheme
from vendor.install import UnavailableError

WIDTHS = ((1440, 900), (960, 720), (390, 844))


@pytest.fixture(scope="module")
def checker() -> None:
    """Skips where npm does not give axe-core."""
    try:
        axe()
    except UnavailableError as why:
        pytest.skip(str(why))


def told(console: Console) -> None:
    """A few sessions in each state, asks that wait and one that is decided."""
    console.say("SessionStart", "session_8c1f77aa21", source="startup", model="kimi-k2")
    console.prompt("Add retries to the payment client", "session_8c1f77aa21")
    console.prompt("Write the release notes", "session_77fe01ab90")
    console.say("Stop", "session_77fe01ab90")
    console.say("SessionStart", "session_0d5e5f0a11", source="startup")
    console.say("SessionEnd", "session_0d5e5f0a11", reason="exit")
    console.say("PostToolUseFailure", "session_8c1f77aa21", tool_name="Bash", tool_call_id="c0",
                error={"code": "internal", "message": "exit status 1"})  # fmt: skip
    first = console.held("make test", "session_8c1f77aa21")
    console.press(first, "d")
    console.held("git push --force origin main", "session_8c1f77aa21", 2)
    console.held("docker compose down --volumes", "session_b2e90d1154", 3)
    console.choose("session_8c1f77aa21")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_is_wrong_at_any_width(
    console: Console, checker: None, scheme: Scheme, pictures: Path
) -> None:
    browser = console.browser
    told(console)
    browser.prefer(scheme)
    found: dict[str, list[str]] = {}
    for width, height in WIDTHS:
        browser.resize(width, height)
        for pane, key in {"inbox": "i", "sessions": "s", "timeline": "t"}.items():
            browser.key(key)
            if pane == "timeline":
                browser.key("k")
                browser.find("#detail pre")
            name = f"console-{scheme}-{width}-{pane}"
            found[name] = faults(browser)
            browser.picture(pictures / f"{name}.png")
            browser.key("Escape")
        browser.key("?")
        found[f"{width} help"] = faults(browser)
        browser.key("Escape")
    browser.go(f"{console.url}/")
    browser.find("#code")
    found["door"] = faults(browser)
    browser.picture(pictures / f"console-{scheme}-door.png")
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(("width", "height"), WIDTHS)
def test_nothing_sticks_out_of_the_page(console: Console, width: int, height: int) -> None:
    told(console)
    console.browser.resize(width, height)
    wide = (
        "return [document.documentElement, ...document.querySelectorAll('.rows, #inbox-scroll')]"
        ".filter(one => one.scrollWidth > one.clientWidth).map(one => one.id || one.tagName)"
    )
    for key in "ist":
        console.browser.key(key)
        assert console.browser.run(wide) == []
