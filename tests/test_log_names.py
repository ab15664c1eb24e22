from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kimiaepd.storage.log_names import (
    LogName,
    active_name,
    closed_name,
    parse_name,
    session_of_stem,
    stem_of,
    torn_name,
)

NOW = 1_764_524_000_123_456_789

# Ids that a file system may take for each other or for something else, and everything else.
tricky = st.text(alphabet="aAéE/.%~@-_2F\0\\: \n\ud800", max_size=12)
sessions = st.one_of(tricky, st.text(max_size=40), st.text(alphabet="ab/É", max_size=300))


def test_an_ordinary_session_is_called_by_its_id() -> None:
    session = "session_596982be-705e-48a5-b4ff-3f5db1f397c8"

    assert active_name(stem_of(session)) == f"{session}.jsonl"


@pytest.mark.parametrize(
    ("session", "stem"),
    [
        ("../x", "%2E.%2Fx"),
        (".", "%2E"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("", "%"),
        ("%", "%25"),
        ("a\0b", "a%00b"),
        ("a b", "a%20b"),
        ("é", "%C3%A9"),
        ("con", "con"),
    ],
)
def test_what_would_leave_the_directory_is_encoded(session: str, stem: str) -> None:
    assert stem_of(session) == stem


@pytest.mark.parametrize("session", ["CON", "A", "aB", "Session_1", "É" * 200, "x" * 5000])
def test_what_could_be_mistaken_is_hashed(session: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._%-]*~[0-9a-f]{32}", stem_of(session))


def test_a_file_system_that_folds_case_keeps_sessions_apart() -> None:
    ids = ["a", "A", "session", "Session", "SESSION"]

    assert len({stem_of(session).lower() for session in ids}) == len(ids)


def test_an_id_cannot_claim_the_name_of_another_by_quoting_its_hash() -> None:
    assert stem_of(stem_of("A")) != stem_of("A")


@given(sessions, sessions)
@example("A", "a")
@example("a%2f", "a/")
@example("a~b", "a@b")
@example("x" * 500, "x" * 501)
def test_names_are_one_to_one_with_sessions_in_any_case(one: str, other: str) -> None:
    assert (stem_of(one).lower() == stem_of(other).lower()) == (one == other)


@given(sessions)
@example("é" * 2000)
@example("É" * 2000)
@example("." * 1000)
def test_every_name_is_a_plain_file_name_that_fits(session: str) -> None:
    longest = torn_name(closed_name(stem_of(session), NOW), NOW)

    assert len(longest) <= 255
    assert re.fullmatch(r"[A-Za-z0-9%][A-Za-z0-9._%~@-]*|[_-][A-Za-z0-9._%~@-]*", longest)


@given(sessions)
def test_a_name_says_its_session_unless_it_was_cut(session: str) -> None:
    raw = session.encode("utf-8", "surrogatepass")
    encoded = len(re.sub(rb"[^A-Za-z0-9._-]|^\.", b"%XX", raw))
    cut = encoded > 200 or (encoded > 167 and raw != raw.lower())

    assert session_of_stem(stem_of(session)) == (None if cut else session)


@given(sessions)
def test_every_name_reads_back(session: str) -> None:
    stem = stem_of(session)
    active, closed = active_name(stem), closed_name(stem, NOW)
    torn = torn_name(active, NOW)

    assert parse_name(active) == LogName(active, stem, stamp=None, torn=False)
    assert parse_name(closed) == LogName(closed, stem, stamp=NOW, torn=False)
    assert parse_name(torn) == LogName(torn, stem, stamp=None, torn=True)


@pytest.mark.parametrize(
    "name",
    [
        ".lock",
        ".jsonl",
        "notes.txt",
        "x.jsonl.tmp",
        "x.jsonl.gz",
        "x@12.jsonl",
        "x.jsonl.torn-12",
        "Session.jsonl",  # the reference adapter's name for it, not ours
        "a%2f.jsonl",
        "a%.jsonl",
        "a%FF.jsonl",
        "é.jsonl",
        "x~abc.jsonl",
    ],
)
def test_a_file_of_another_program_is_not_ours(name: str) -> None:
    assert parse_name(name) is None
