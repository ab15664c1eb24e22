"""Frames: what a relay may send, what is made of it, and what is ignored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.mapping.event import Capture
from kimiaepd.relay import frames
from kimiaepd.relay.frames import Closing, Incoming, PeerHello, Ping, Pong, Refusal, read_frame

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KINDS = ("hello", "ping", "pong", "closing", "error", "roster", "x.y", "")


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        ('{"type":"hello","versions":["0.1"]}', PeerHello(("0.1",))),
        ('{"type":"hello","versions":["0.2",1,null]}', PeerHello(("0.2",))),
        ('{"type":"hello"}', PeerHello(())),
        ('{"type":"ping","t":{"a":1}}', Ping({"a": 1})),
        ('{"type":"pong","t":7}', Pong(7)),
        ('{"type":"closing","reason":"restart"}', Closing("restart")),
        (
            '{"type":"error","code":"invalid-event","cause":"01X","detail":"no seq"}',
            Refusal("invalid-event", "01X", "no seq"),
        ),
        ('{"type":"error","cause":7,"detail":{"a":1}}', Refusal("unknown", None, '{"a": 1}')),
        ('{"type":"control.cancel","id":"1"}', Incoming({"type": "control.cancel", "id": "1"})),
    ],
)
def test_a_frame_is_read_leniently(message: str, frame: frames.Frame) -> None:
    assert read_frame(message) == frame


@pytest.mark.parametrize(
    "message", ["", "{", "[1]", "null", "7", '{"type":7}', "{}", '{"type":"roster"}', "\ud800"]
)
def test_what_nobody_knows_is_ignored(message: str) -> None:
    assert read_frame(message) is None


def test_a_ping_that_would_cost_memory_is_ignored() -> None:
    assert read_frame(json.dumps({"type": "ping", "t": "x" * 1_000})) == Ping("x" * 1_000)
    assert read_frame(json.dumps({"type": "ping", "t": "x" * 2_000})) is None


@pytest.mark.parametrize("kind", ["ping", "error"])
def test_what_is_nested_deeper_than_can_be_written_is_ignored(kind: str) -> None:
    for depth in range(10, 1_100):
        nested = "[" * depth + "]" * depth
        frame = read_frame(f'{{"type":"{kind}","t":{nested},"detail":{nested}}}')
        if isinstance(frame, Ping):
            frames.pong(frame.t)


def test_binary_is_refused() -> None:
    assert read_frame(b'{"type":"ping","t":1}') is None


@given(st.dictionaries(st.text(), json_values, max_size=5), st.sampled_from(KINDS))
def test_nothing_a_relay_sends_raises(value: dict[str, object], kind: str) -> None:
    read_frame(json.dumps({**value, "type": kind}))


@given(st.text())
def test_no_text_raises(text: str) -> None:
    read_frame(text)


def test_a_relays_words_are_cut() -> None:
    frame = read_frame(json.dumps({"type": "error", "code": "c", "detail": "x" * 9_999}))
    assert isinstance(frame, Refusal)
    assert len(frame.detail) == 200


def test_our_hello_says_what_we_are_and_what_we_answer() -> None:
    said = json.loads(frames.hello("host/3", Capture.METADATA, ("control.cancel",)))
    assert said["versions"] == ["0.1"]
    assert said["role"] == "emitter"
    assert said["identity"] == {"agent": "kimi-code", "instance": "host/3", "card": None}
    assert said["capabilities"]["capture"] == ["none", "metadata"]
    assert said["capabilities"]["control"] == {
        "accepts": ["control.cancel"],
        "ack_window_ms": 10_000,
    }


def test_what_they_ask_comes_back_as_it_came() -> None:
    assert json.loads(frames.pong({"n": [1, "é"]})) == {"type": "pong", "t": {"n": [1, "é"]}}
