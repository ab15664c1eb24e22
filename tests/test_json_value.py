"""JSON is read as the vendor's JavaScript reads it, whatever the bytes are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.mapping.json_value import MalformedJSONError, dump, parse


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"a":', "malformed"),
        (b"{} {}", "malformed"),
        (b"NaN", "malformed"),
        (b"[Infinity]", "malformed"),
        (b'"\xff"', "encoding"),
        (b"[" * 100_000, "too-deep"),
        (b'{"a":' * 100_000, "too-deep"),
        (b"[" + b"{}," * 3_000_001 + b"{}]", "too-many-parts"),
    ],
)
def test_what_is_not_json_is_said_in_one_word(raw: bytes, code: str) -> None:
    with pytest.raises(MalformedJSONError) as caught:
        parse(raw)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"1e400", None),
        (b"1" * 5000, None),
        (b"12345678901234567890", 12345678901234567000.0),
        (b"9007199254740993", 9007199254740992),
        (b"-0", 0),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\ud83d"', "\ud83d"),
    ],
)
def test_numbers_and_surrogates_are_read_as_javascript_does(raw: bytes, value: object) -> None:
    assert parse(raw) == value


@given(st.binary())
def test_any_bytes_are_a_value_or_one_error(raw: bytes) -> None:
    try:
        value = parse(raw)
    except MalformedJSONError:
        return
    assert b"\n" not in dump(value)


def test_a_lone_surrogate_is_written_as_the_replacement_character() -> None:
    assert dump({"\ud800": "a\udc00"}) == '{"\ufffd":"a\ufffd"}'.encode()
