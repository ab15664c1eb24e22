"""What a terminal sends, as keys: no piece of a sequence, and nothing pasted, is one by mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.views.keys import Key, Keys, Pressed, Text


def typed(letters: str) -> list[Pressed]:
    return [Text(one, is_key=True) for one in letters]


def fed(*pieces: bytes) -> list[Pressed]:
    keys = Keys()
    return [one for piece in pieces for one in keys.feed(piece)]


@pytest.mark.parametrize(
    ("data", "pressed"),
    [
        (b"j", typed("j")),
        (b"jk", typed("jk")),
        (b"\x1b[A\x1bOB", [Key.UP, Key.DOWN]),
        (b"\r\n\x7f", [Key.ENTER, Key.ENTER, Key.BACKSPACE]),
        (b"\x15\x17\x0c", [Key.CLEAR, Key.WORD, Key.REDRAW]),
        (b"\x1b[1;5A\x1b[?1;2c\x1ba\x00\x01", []),
        (b"\x1b\x1b[A", [Key.ESCAPE, Key.UP]),
        (b"ad\x1b[5~a", [*typed("ad"), Key.PAGE_UP, *typed("a")]),
        ("nein, ß".encode(), [Text("nein, ß")]),
        (b"\x1b[200~a\x1b[201~a", [Text("a"), *typed("a")]),
        (b"\x1b[200~\x1b[A\ta\r\x1b[201~", [Text(" [A a ")]),
        (b"\xffa", typed("\ufffda")),
    ],
)  # fmt: skip
def test_what_is_sent_is_what_was_pressed(data: bytes, pressed: list[Pressed]) -> None:
    assert fed(data) == pressed


@pytest.mark.parametrize("data", [b"\x1b[A", b"\x1b[6~", "ß".encode()])
def test_what_comes_in_pieces_is_the_same(data: bytes) -> None:
    assert fed(*(bytes([one]) for one in data)) == fed(data)


def test_an_escape_alone_is_a_key_and_the_beginning_of_a_sequence_is_none() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b") == []
    assert keys.is_waiting
    assert keys.settle() == [Key.ESCAPE]
    assert keys.feed(b"\x1b[") == []
    assert keys.settle() == []
    assert not keys.is_waiting


def test_what_is_pasted_in_pieces_is_no_key_either() -> None:
    data = b"\x1b[200~allow all\x1b[201~q"
    keys = Keys()
    pressed = [one for byte in data for one in keys.feed(bytes([byte]))]
    assert (
        "".join(one.text for one in pressed if isinstance(one, Text) and not one.is_key)
        == "allow all"
    )
    assert [one for one in pressed if isinstance(one, Text) and one.is_key] == typed("q")


@given(st.lists(st.binary() | st.sampled_from([b"\x1b", b"[", b"O", b"\x1b[200~", b"\x1b[201~"])))
def test_no_bytes_are_too_odd_and_little_of_them_is_kept(pieces: list[bytes]) -> None:
    keys = Keys()
    for piece in pieces:
        for one in keys.feed(piece):
            if isinstance(one, Text):
                assert not any(ord(letter) < 32 or ord(letter) == 127 for letter in one.text)
        assert len(keys._rest) < 64
    keys.settle()
