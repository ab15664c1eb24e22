"""Memory: a session is bounded whatever never ends, and however large what it is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from kimiaepd.lifecycle.state import (
    LONGEST,
    OPEN_ASKS,
    OPEN_CALLS,
    PAST,
    WAITING,
    WAITING_CHARACTERS,
)
from kimiaepd.mapping.json_value import JSON
from made_story import check
from story import Story

MOST_BYTES = 1_500_000


def call(name: str, **more: JSON) -> dict[str, JSON]:
    """The fields of one call."""
    return {"tool_name": "Bash", "tool_call_id": name, "tool_input": {"command": "ls"}, **more}


def crowded(pad: str = "") -> Story:
    """More calls, asks and failures than a session keeps, and none of them ever decided."""
    story = Story()
    for number in range(OPEN_CALLS + 100):
        fields = call(f"{number}{pad}", id=f"a{number}{pad}", agent_id=f"agent{pad}")
        story.hook("PreToolUse", after=0, **fields)
        story.hook("PermissionRequest", after=0, **fields)
        if number % 4 == 0:
            story.hook("PostToolUseFailure", after=0, error={"message": f"no{pad}"}, **fields)
    return story


def parts(thing: object) -> Iterator[object]:
    """Everything that a state holds, itself included."""
    yield thing
    inner = [getattr(thing, member.name) for member in getattr(thing, "__attrs_attrs__", ())]
    if isinstance(thing, dict):
        inner = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple):
        inner = list(thing)
    for part in inner:
        yield from parts(part)


def test_no_more_is_kept_than_is_said() -> None:
    story = crowded()
    state = story.machine.state
    assert (len(state.calls), len(state.asks), len(state.waits)) == (OPEN_CALLS, OPEN_ASKS, WAITING)
    story.hook("SessionEnd", after=1)
    assert (len(state.past_calls), len(state.past_asks)) == (PAST, PAST)
    check(story.events)


def test_an_ask_too_many_dismisses_the_oldest() -> None:
    story = Story()
    for number in range(OPEN_ASKS + 1):
        story.hook("PermissionRequest", after=0, **call(f"c{number}"))
    assert story.only("attention.resolved").subject == story.events[0].id
    assert story.only("attention.resolved").data["resolution"] == "dismissed"


@pytest.mark.parametrize("pad", ["", "x" * 10_000, "é" * 10_000, "\N{GRINNING FACE}" * 10_000])
def test_a_session_at_its_worst_is_under_a_megabyte_and_a_half(pad: str) -> None:
    story = crowded(pad)
    story.hook("Stop", after=0)  # fills what is remembered of the past, too
    full = crowded(pad).machine.state
    full.past_calls, full.past_asks = story.machine.state.past_calls, story.machine.state.past_asks
    sizes = {id(part): sys.getsizeof(part) for part in parts(full)}
    assert sum(sizes.values()) < MOST_BYTES


def test_a_failure_too_large_to_wait_is_decided_at_once_and_whole() -> None:
    story = Story()
    story.hook("PermissionRequest", after=0, **call("c0"))
    story.hook("PreToolUse", after=0, **call("c1"))
    huge = "x" * (WAITING_CHARACTERS + 1)
    assert story.hook("PostToolUseFailure", after=0, error={"message": huge}, **call("c1")) is None
    assert story.only("tool.failed").data["error.message"] == huge
    assert not story.machine.state.waits


def test_a_reply_never_waits_for_what_is_decided_already() -> None:
    story = Story()
    story.hook("PreToolUse", after=0, **call("c1"))
    huge = "x" * (WAITING_CHARACTERS + 1)
    assert story.hook("PostToolUseFailure", after=0, error={"message": huge}, **call("c1")) is None
    assert story.types == ["tool.requested", "tool.failed"]


def test_a_call_that_is_forgotten_among_too_many_is_not_taken_for_the_old_one_of_its_id() -> None:
    story = Story()
    for event in ("PreToolUse", "PostToolUse", "PreToolUse"):
        story.hook(event, after=0, **call("c"))
    for number in range(OPEN_CALLS):
        story.hook("PreToolUse", after=0, **call(f"c{number}"))
    story.hook("PostToolUse", after=0, **call("c"))
    assert story.core.count("tool.completed") == 2


def test_ids_too_long_to_keep_are_told_apart_all_the_same() -> None:
    story = Story()
    one, other = "x" * LONGEST + "1", "x" * LONGEST + "2"
    story.hook("PreToolUse", after=0, **call(one))
    story.hook("PreToolUse", after=0, **call(other))
    story.hook("PostToolUse", after=0, **call(other))
    completed = story.only("tool.completed")
    assert completed.cause == story.events[1].id
    assert completed.data["tool.call_id"] == other, "what is logged is whole"
    (kept,) = story.machine.state.calls
    assert len(kept) == LONGEST
