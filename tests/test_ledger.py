from __future__ import annotations

import errno
import json
import os
import stat
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import Faults
from kimiaepd.errors import ConfigError
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.storage import ledger as module
from kimiaepd.storage.ledger import Ledger, LedgerError
from log_helpers import on_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def reread(path: Path) -> dict[str, JSONObject]:
    ledger = Ledger.open(path)
    found = dict(ledger.items())
    assert {session: ledger.get(session) for session in found} == found
    assert len(ledger) == len(found)
    ledger.close()
    return found


def record(number: int, *, is_open: bool = False) -> JSONObject:
    return {"n": number, "open": is_open}


# --- the plain way -----------------------------------------------------------------------------


def test_the_newest_record_of_each_session_survives(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.put("a", record(1))
    ledger.put("b", {"é": [None, 1.5, "x\ny"]})
    ledger.put("a", record(2, is_open=True))

    assert ledger.get("a") == record(2, is_open=True)
    assert ledger.get("none") is None
    assert dict(ledger.items(is_open=True)) == {"a": record(2, is_open=True)}
    ledger.close()
    assert reread(path) == {"a": record(2, is_open=True), "b": {"é": [None, 1.5, "x\ny"]}}


def test_a_record_that_the_caller_changes_later_is_as_it_was_put(path: Path) -> None:
    ledger = Ledger.open(path)
    mine: JSONObject = {"calls": []}
    ledger.put("a", mine)
    mine["calls"] = ["more"]
    got = ledger.get("a")
    assert got == {"calls": []}
    got["calls"] = ["more"]
    assert ledger.get("a") == {"calls": []}
    ledger.close()


def test_a_put_is_one_write(path: Path) -> None:
    ledger = Ledger.open(path)
    with Faults() as faults:
        faults.fail(os, "write", errno.EIO, after=3)
        for number in range(3):
            ledger.put("a", record(number))

    assert faults.calls["write"] == 3
    ledger.close()


@pytest.mark.parametrize("umask", [0, 0o777])
def test_the_file_is_private_whatever_the_umask(
    path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(umask)
    try:
        monkeypatch.setattr(module, "COMPACT_BYTES", 10)
        ledger = Ledger.open(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for number in range(9):
            ledger.put("a", record(number))
        ledger.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    for name in (".", "link", "missing/ledger"):
        with pytest.raises(ConfigError, match=str(tmp_path)):
            Ledger.open(tmp_path / name)


json_values: st.SearchStrategy[JSON] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé"), inner, max_size=3),
    max_leaves=6,
)
puts = st.lists(
    st.tuples(
        st.text("ab/é\n", max_size=3),
        st.dictionaries(st.sampled_from(["open", "x", "y"]), json_values, max_size=3),
    ),
    max_size=30,
)


@on_disk
@given(puts, st.integers(1, 200), st.integers(0, 30))
def test_it_is_a_dictionary_that_survives(
    tmp_path_factory: pytest.TempPathFactory,
    plan: list[tuple[str, JSONObject]],
    compact_bytes: int,
    restart: int,
) -> None:
    path = tmp_path_factory.mktemp("state") / "ledger.jsonl"
    expected: dict[str, JSONObject] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COMPACT_BYTES", compact_bytes)
        ledger = Ledger.open(path)
        for number, (session, value) in enumerate(plan):
            if number == restart:
                ledger.close()
                ledger = Ledger.open(path)
            ledger.put(session, value)
            expected[session] = value
            assert ledger.get(session) == value
        assert dict(ledger.items()) == expected
        ledger.close()
        assert reread(path) == expected


# --- crashes and disks that fail ----------------------------------------------------------------


def test_a_file_cut_anywhere_gives_what_was_whole(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.put("a", record(1))
    first = path.stat().st_size
    ledger.put("a", record(2))
    ledger.close()
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        expected = {"a": record(2 if length == len(whole) else 1)} if length >= first else {}

        assert reread(path) == expected
        assert path.stat().st_size in (0, first, len(whole))


def test_what_is_no_record_is_passed_over_and_counted(path: Path) -> None:
    good = b'{"session":"a","record":{}}\n'
    bad = [b"\xff\n", b"[]\n", b"\n", b'{"session":1,"record":{}}\n', b'{"session":"b"}\n', b"\0\n"]
    path.write_bytes(b"".join(bad) + good + b"\0\0\0")
    ledger = Ledger.open(path)

    assert dict(ledger.items()) == {"a": {}}
    assert ledger.skipped == len(bad)
    ledger.close()


@on_disk
@given(st.binary(max_size=200))
def test_whatever_is_in_the_file_it_opens_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("state") / "ledger.jsonl"
    path.write_bytes(content)
    ledger = Ledger.open(path)
    ledger.put("a", record(1))
    ledger.close()

    assert reread(path)["a"] == record(1)


def test_a_full_disk_is_said_and_what_was_put_is_known_all_the_same(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.put("a", record(1))
    with Faults() as faults:
        faults.disk_takes(3)
        with pytest.raises(LedgerError) as caught:
            ledger.put("a", record(2))

    assert caught.value.code == "ENOSPC"
    assert ledger.get("a") == record(2)
    assert len(path.read_bytes().splitlines()) == 1
    ledger.put("b", record(3))
    ledger.close()
    assert reread(path) == {"a": record(1), "b": record(3)}


def test_a_record_that_stays_half_written_is_written_anew_with_all_others(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.put("a", record(1))
    with Faults() as faults:
        faults.cut_writes(5)
        faults.fail(os, "ftruncate", errno.EIO)
        with pytest.raises(LedgerError):
            ledger.put("a", record(2))
        faults.fail(os, "rename", errno.EIO)
        with pytest.raises(LedgerError):
            ledger.put("b", record(3))
    ledger.put("c", record(4))
    ledger.close()

    assert reread(path) == {"a": record(2), "b": record(3), "c": record(4)}
    assert len(path.read_bytes().splitlines()) == 3


def test_a_rewrite_that_fails_loses_nothing_and_is_not_tried_at_every_put(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 400)
    ledger = Ledger.open(path)
    with Faults() as faults:
        faults.fail(os, "rename", errno.EACCES)
        for number in range(60):
            ledger.put("a", record(number))
    grown = path.stat().st_size
    assert 1 < faults.calls["rename"] <= 1 + grown // 400
    assert reread(path) == {"a": record(59)}
    for number in range(20):
        ledger.put("a", record(number))
    ledger.close()

    assert path.stat().st_size < grown
    assert reread(path) == {"a": record(19)}


def test_no_put_waits_for_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 400)
    ledger = Ledger.open(path)
    before = path.stat().st_ino
    with Faults() as faults:
        faults.fail_sync(errno.EIO)
        faults.fail(os, "fsync", errno.EIO)
        for number in range(60):
            ledger.put("a", record(number))
        assert faults.calls["fsync"] == faults.calls["fdatasync"] == faults.calls["fcntl"] == 0

    assert path.stat().st_ino != before
    ledger.close()
    assert reread(path) == {"a": record(59)}


@pytest.mark.parametrize("left", [b"", b"\0" * 900, b'{"session":"a","rec', b"\0" * 40 + b"}\n"])
def test_a_rewrite_that_a_power_cut_took_costs_the_records_and_nothing_else(
    path: Path, left: bytes
) -> None:
    path.write_bytes(left)
    assert reread(path) == {}
    ledger = Ledger.open(path)
    ledger.put("b", record(1))
    ledger.close()

    assert reread(path) == {"b": record(1)}


def test_a_rewritten_file_that_cannot_be_opened_is_rewritten_by_the_next_put(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 400)
    ledger = Ledger.open(path)
    with Faults() as faults:
        faults.fail(os, "open", errno.EMFILE, after=1)
        while faults.calls["open"] < 2:
            ledger.put("a", record(1))  # it is in the file that was replaced
        with pytest.raises(LedgerError):
            ledger.put("a", record(2))
    ledger.put("b", record(1))

    assert reread(path) == {"a": record(2), "b": record(1)}
    ledger.close()


# --- bounds ------------------------------------------------------------------------------------


def test_a_record_that_is_too_large_is_refused_and_the_one_before_stays(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.put("a", record(1))
    with pytest.raises(LedgerError) as caught:
        ledger.put("a", {"x": "y" * module.RECORD_BYTES})

    assert caught.value.code == "too-large"
    assert ledger.get("a") == record(1)
    ledger.close()


def test_the_file_is_rewritten_when_most_of_it_is_old(path: Path) -> None:
    ledger = Ledger.open(path)
    largest = 0
    for number in range(40):
        ledger.put(f"s{number % 2}", {"n": number, "pad": "x" * 200_000})
        largest = max(largest, path.stat().st_size)
    ledger.close()

    assert module.COMPACT_BYTES - 250_000 < largest <= module.COMPACT_BYTES + 250_000
    assert path.stat().st_size <= module.COMPACT_BYTES
    assert {session: found["n"] for session, found in reread(path).items()} == {"s0": 38, "s1": 39}


def test_a_file_that_is_mostly_live_is_not_rewritten(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 100)
    ledger = Ledger.open(path)
    with Faults() as faults:
        faults.fail(os, "rename", errno.EIO)
        for number in range(50):
            ledger.put(f"s{number}", record(number))

    assert faults.calls["rename"] == 0
    ledger.close()


def test_beyond_the_bound_the_session_put_longest_ago_goes_but_no_open_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SESSIONS", 3)
    ledger = Ledger.open(path)
    ledger.put("a", record(1))
    ledger.put("b", record(2, is_open=True))
    ledger.put("c", record(3))
    ledger.put("a", record(4))
    ledger.put("d", record(5, is_open=True))
    assert sorted(dict(ledger.items())) == ["a", "b", "d"]  # c was put longest ago
    ledger.put("e", record(6, is_open=True))
    assert sorted(dict(ledger.items())) == ["b", "d", "e"]
    ledger.put("f", record(7, is_open=True))
    assert sorted(dict(ledger.items())) == ["b", "d", "e", "f"]  # more than three, but all open
    ledger.put("b", record(8))
    assert sorted(dict(ledger.items())) == ["d", "e", "f"]
    ledger.close()

    assert sorted(reread(path)) == ["d", "e", "f"]


def test_open_sessions_have_a_bound_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSIONS", 3)
    ledger = Ledger.open(path)
    for number in range(9):
        ledger.put(f"s{number}", record(number, is_open=True))
    ledger.close()

    assert sorted(reread(path)) == ["s3", "s4", "s5", "s6", "s7", "s8"]


def test_only_the_word_true_makes_a_session_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SESSIONS", 1)
    ledger = Ledger.open(path)
    ledger.put("a", {"open": 1})
    ledger.put("b", {"open": "true"})
    ledger.put("c", {})

    assert dict(ledger.items()) == {"c": {}}
    ledger.close()


@on_disk
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 100), st.booleans()), min_size=1, max_size=120
    )
)
def test_memory_and_disk_stay_within_what_the_module_says(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[int, int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("state") / "ledger.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("SESSIONS", 5), ("LIVE_BYTES", 600), ("COMPACT_BYTES", 300)):
            patch.setattr(module, name, value)
        ledger = Ledger.open(path)
        for session, pad, is_open in plan:
            ledger.put(f"s{session}", {"open": is_open, "pad": "x" * pad})
            live = sum(len(json.dumps(found)) for _, found in ledger.items())

            assert len(ledger) <= 2 * 5
            assert live <= ledger._live <= 2 * 600
            # One record over: it was written before anybody looked at the size.
            assert path.stat().st_size <= max(300, 2 * ledger._live) + 200
        ledger.close()


def test_a_session_costs_its_record_and_at_most_300_bytes(path: Path) -> None:
    ledger = Ledger.open(path)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2000):
            ledger.put(f"session_{number:032}", {"open": number % 2 == 0, "pad": "x" * 500})
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert used <= ledger._live + 2000 * 300
    ledger.close()
