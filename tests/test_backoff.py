"""The waits: jittered, capped, begun anew only after a connection that lasted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.backoff import BASE_SECONDS, CAP_SECONDS, HEALTHY_SECONDS, REFUSED_SECONDS, Backoff


def highest(low: float, high: float) -> float:
    return high


def test_each_wait_may_be_twice_as_long_up_to_a_cap() -> None:
    backoff = Backoff(highest)
    waits = [backoff.next() for _ in range(10)]
    assert waits[:4] == [BASE_SECONDS, 1.0, 2.0, 4.0]
    assert waits[-1] == CAP_SECONDS


def test_a_connection_that_is_accepted_and_closed_resets_nothing() -> None:
    backoff = Backoff(highest)
    waits = []
    for _ in range(20):
        backoff.lasted(HEALTHY_SECONDS - 1)
        waits.append(backoff.next())
    assert waits[-1] == CAP_SECONDS
    backoff.lasted(HEALTHY_SECONDS)
    assert backoff.next() == BASE_SECONDS


def test_a_refused_token_is_tried_slowly_and_costs_nothing_later() -> None:
    backoff = Backoff(highest)
    assert [backoff.next(is_refused=True) for _ in range(3)] == [REFUSED_SECONDS] * 3
    assert backoff.next() == BASE_SECONDS


@pytest.mark.parametrize(("asked", "wait"), [(20.0, 20.0), (0.0, 0.5), (1e9, REFUSED_SECONDS)])
def test_what_the_relay_asks_for_is_obeyed_within_reason(asked: float, wait: float) -> None:
    assert Backoff(highest).next(retry_after=asked) == wait


@given(st.integers(0, 2**32), st.integers(0, 5_000))
def test_no_wait_is_ever_negative_or_beyond_the_cap(seed: int, failures: int) -> None:
    backoff = Backoff(random.Random(seed).uniform, failures)
    assert 0 <= backoff.next() <= CAP_SECONDS


def test_a_hundred_daemons_do_not_come_back_at_once() -> None:
    """After ten failures against one restart they are spread over ten seconds and more."""
    numbers = random.Random(1)
    waits = sorted(Backoff(numbers.uniform, failures=10).next() for _ in range(100))
    assert waits[90] - waits[10] >= 10
