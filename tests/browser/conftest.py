"""What the browser tests share: one Chromium, and a daemon with the console open in it.

They skip with the reason where there is no Chromium (CI forbids skips).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser.console_room import Console, consoling
from browser.driver import Browser, browsing, missing
from conftest import ROOT
from live import Live, scratch


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests; each gets the page anew."""
    if why := missing():
        pytest.skip(why)
    with browsing() as running:
        yield running


@pytest.fixture
def live() -> Iterator[Live]:
    """A scratch instance with the gate and instructions on; not started."""
    settings = {"AEP_KIMI_CONTROL": "1", "AEP_INSTRUCT": "1", "AEP_CAPTURE": "redacted"}
    with scratch(**settings) as made:
        yield made


@pytest.fixture
def console(browser: Browser, live: Live) -> Iterator[Console]:
    """A daemon, and its console open."""
    live.start()
    with consoling(browser, live) as opened:
        opened.open()
        yield opened
        assert browser.complaints() == [], "the browser found fault with the page"


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where pictures of the page are kept: an ignored folder, or `$KIMIAEPD_PICTURES`."""
    folder = Path(os.environ.get("KIMIAEPD_PICTURES") or ROOT / "build/pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
