"""The stream's own messages: what is sent is what servers take, and what comes may be anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.storage.ledger import Ledger, LedgerError
from kimiaepd.web import wire
from kimiaepd.web.cursors import BEGINNING, Cursor, Cursors

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=10,
)
PAYLOAD = ANY | st.fixed_dictionaries(
    {},
    optional={
        "accepted": ANY, "resync_required": ANY, "cursors": ANY, "session_id": ANY,
        "reason": ANY, "current_seq": ANY, "epoch": ANY, "nonce": ANY, "heartbeat_ms": ANY,
    },
)  # fmt: skip


def test_a_session_without_a_cursor_is_asked_for_without_one_and_never_with_null() -> None:
    asked = wire.subscribe("s1", {"a": Cursor(4, "ep"), "b": None, "c": BEGINNING})
    assert asked["payload"] == {
        "session_ids": ["a", "b", "c"],
        "cursors": {"a": {"seq": 4, "epoch": "ep"}, "c": {"seq": 0}},
    }


@given(st.fixed_dictionaries({}, optional={"id": ANY, "payload": PAYLOAD, "type": ANY}))
def test_whatever_a_server_says_is_read(raw: JSONObject) -> None:
    ack = wire.read_ack(raw)
    assert all(isinstance(name, str) for name in ack.accepted)
    assert all(cursor.seq >= 0 for cursor in ack.at.values())
    resync = wire.read_resync(raw)
    assert resync is None or isinstance(resync.session, str)
    assert isinstance(wire.beats(raw), bool)
    assert wire.pong(raw)["type"] == "pong"


@pytest.mark.parametrize("reason", ["buffer_overflow", "something new"])
def test_a_reason_that_nobody_knows_rides_in_no_event(reason: str) -> None:
    raw: JSONObject = {"payload": {"session_id": "s", "reason": reason, "current_seq": 9}}
    resync = wire.read_resync(raw)
    assert resync
    assert resync.reason == (reason if reason == "buffer_overflow" else "unknown")
    assert resync.at == Cursor(9)


def test_cursors_outlive_the_process(tmp_path: Path) -> None:
    for seq in (3, 4):
        ledger = Ledger.open(tmp_path / "cursors")
        cursors = Cursors(ledger)
        assert cursors.get("s") == (Cursor(3, "ep") if seq == 4 else None)
        cursors.put("s", Cursor(seq, "ep"))
        ledger.close()


def test_a_disk_that_takes_no_cursor_is_said_once_and_costs_nothing_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger.open(tmp_path / "cursors")
    cursors = Cursors(ledger)
    put = ledger.put

    def full(session: str, record: JSONObject) -> None:
        put(session, record)
        raise LedgerError("ENOSPC", "no space")

    monkeypatch.setattr(Ledger, "put", lambda _, session, record: full(session, record))
    cursors.put("s", Cursor(1))
    cursors.put("s", Cursor(2))
    assert cursors.get("s") == Cursor(2)
    assert capsys.readouterr().out.count("cursors of kimi web are not kept") == 1
    ledger.close()


@pytest.mark.parametrize("record", [{}, {"seq": "x"}, {"seq": None, "epoch": 3}])
def test_a_record_that_is_none_is_as_if_there_were_none(tmp_path: Path, record: JSONObject) -> None:
    ledger = Ledger.open(tmp_path / "cursors")
    ledger.put("s", record)
    assert Cursors(ledger).get("s") is None
    ledger.close()
