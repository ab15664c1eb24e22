"""The event list per release, and the vendor's schema of one entry."""

from __future__ import annotations

import math

import pytest

from kimiaepd.setup.events import SINCE, Version, certainly_unknown, known_to
from kimiaepd.setup.vendor_schema import doubt, fault

NEWER_EVENTS = {"UserPromptQueued", "TurnStarted", "TaskStarted", "SessionHeartbeat"}
OLD, TURNS, NEWEST = Version(0, 28, 0), Version(0, 42, 0), Version(2, 1, 0)


@pytest.mark.parametrize("text", ["0.28.0", "0.28.1", "0.41.9", "0.42.0-beta.1"])
def test_releases_before_0_42_get_the_sixteen(text: str) -> None:
    events = known_to(Version.parse(text))
    assert len(events) == 16
    assert not NEWER_EVENTS & set(events)


@pytest.mark.parametrize("text", ["0.42.0", "0.42.0+build", "1.0.0", "2.1.0", "3.0.0"])
def test_releases_from_0_42_get_the_twenty(text: str) -> None:
    events = known_to(Version.parse(text))
    assert len(events) == 20
    assert set(events) >= NEWER_EVENTS


def test_an_unknown_release_gets_what_every_release_knows() -> None:
    assert known_to(None) == known_to(OLD)


def test_a_release_older_than_any_tried_gets_nothing() -> None:
    assert known_to(Version(0, 27, 9)) == ()


@pytest.mark.parametrize("text", ["", "2.1", "v2.1.0", "2.1.0 ", "kimi, version 1.30.0", "2.1.0\n"])
def test_only_a_bare_version_is_a_version(text: str) -> None:
    assert Version.parse(text) is None


def test_versions_order_as_numbers_and_a_prerelease_comes_first() -> None:
    texts = ["0.100.0", "0.42.0", "0.9.0", "0.42.0-rc.9", "0.28.0"]
    versions = sorted(version for text in texts if (version := Version.parse(text)))
    assert [str(version) for version in versions] == [
        "0.9.0", "0.28.0", "0.42.0 (pre-release)", "0.42.0", "0.100.0",
    ]  # fmt: skip


def test_an_event_is_certainly_unknown_only_to_a_release_that_was_tried() -> None:
    assert certainly_unknown("TurnStarted", OLD)
    assert certainly_unknown("Nonsense", NEWEST)
    assert not certainly_unknown("TurnStarted", TURNS)
    assert not certainly_unknown("NextYears", Version(2, 2, 0))
    assert not certainly_unknown("TurnStarted", None)


@pytest.mark.parametrize("event", SINCE)
def test_a_full_entry_is_right(event: str) -> None:
    entry = {"event": event, "matcher": "Bash|Write", "command": "true", "timeout": 600}
    assert fault(entry, NEWEST) is None
    assert doubt(entry, NEWEST) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"yolo": True}, "no key 'yolo'"),
        ({"event": "Nonsense"}, "no event 'Nonsense'"),
        ({"event": 7}, "no event"),
        ({"command": ""}, "no command"),
        ({"command": ["true"]}, "its command is not a string"),
        ({"matcher": 1}, "matcher"),
        *(
            ({"timeout": timeout}, "timeout")
            for timeout in (0, 601, -1, 2.5, math.nan, math.inf, True, "10")
        ),
    ],
)
def test_what_drops_every_hook_is_named(change: dict[str, object], said: str) -> None:
    entry = {"event": "Stop", "command": "true", **change}
    assert said in (fault(entry, NEWEST) or "")


@pytest.mark.parametrize("timeout", [1, 600, 5.0])
def test_the_vendors_odd_but_right_timeouts_pass(timeout: float) -> None:
    assert fault({"event": "Stop", "command": "true", "timeout": timeout}, NEWEST) is None


@pytest.mark.parametrize("missing", ["event", "command"])
def test_what_must_be_there_is_missed(missing: str) -> None:
    entry = {"event": "Stop", "command": "true"}
    del entry[missing]
    assert missing in (fault(entry, NEWEST) or "")


def test_an_event_that_a_release_may_have_is_a_doubt_and_no_fault() -> None:
    for entry, version in (({"event": "TurnStarted"}, None), ({"event": "New"}, Version(9, 0, 0))):
        assert fault({"command": "true", **entry}, version) is None
        assert entry["event"] in (doubt(entry, version) or "")
