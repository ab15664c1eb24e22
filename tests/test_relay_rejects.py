"""What a relay does not take is kept for people, once each, privately, and not without end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kimiaepd.relay import rejects as room
from kimiaepd.relay.backlog import Item
from kimiaepd.relay.frames import Refusal
from kimiaepd.relay.rejects import Rejects


def item(seq: int, filler: int = 0) -> Item:
    return Item("s", (1, seq), b'{"id":"s-%d","seq":%d,"epoch":1}' % (seq, seq) + b" " * filler)


def test_an_event_is_kept_as_it_was_with_who_refused_it_and_when(tmp_path: Path) -> None:
    rejects = Rejects(tmp_path / "rejected.jsonl")
    rejects.put(item(0), Refusal("invalid-event", "s-0", "no time"), 0)
    assert json.loads(rejects.path.read_text()) == {
        "at": "1970-01-01T00:00:00.000Z",
        "code": "invalid-event",
        "detail": "no time",
        "event": item(0).line.decode(),
    }
    assert rejects.path.stat().st_mode & 0o777 == 0o600
    assert rejects.last == "invalid-event no time"


def test_an_event_that_is_refused_again_is_set_aside_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "REMEMBERED", 2)
    rejects = Rejects(tmp_path / "rejected.jsonl")
    for seq in (0, 0, 1, 0, 1, 2, 1):
        rejects.put(item(seq), Refusal("invalid-event", None, ""), 0)
    assert rejects.count == len(rejects.path.read_bytes().splitlines()) == 3
    rejects.put(item(0), Refusal("invalid-event", None, ""), 0)
    assert rejects.count == 4, "what is remembered is bounded"


def test_the_file_is_bounded_and_the_count_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_BYTES", 1_000)
    rejects = Rejects(tmp_path / "rejected.jsonl")
    for seq in range(5):
        rejects.put(item(seq, filler=300), Refusal("invalid-event", None, ""), 0)
    assert rejects.count == 5
    assert rejects.path.stat().st_size <= 1_000
    assert len(rejects.path.read_bytes().splitlines()) == 2


def test_a_file_that_cannot_be_written_costs_the_copy_alone(tmp_path: Path) -> None:
    (tmp_path / "rejected.jsonl").mkdir()
    rejects = Rejects(tmp_path / "rejected.jsonl")
    rejects.put(item(0), Refusal("invalid-event", None, ""), 0)
    assert rejects.count == 1
