"""Whatever hooks come, in whatever order and however often: the rules that always hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from made_story import Telling, Told, anything, check, sessions

stories = st.one_of(anything, sessions())
quickly = settings(max_examples=150, deadline=None)


@quickly
@given(stories)
def test_every_lifecycle_rule_holds(hooks: list[Told]) -> None:
    story = Telling().tell_all(hooks)
    check(story.events)
    story.machine.settle()
    check(story.events)


@quickly
@given(stories)
def test_nothing_is_lost(hooks: list[Told]) -> None:
    story = Telling().tell_all(hooks)
    story.machine.settle()
    assert story.unheard == story.machine.duplicates


@quickly
@given(stories)
def test_after_settle_no_tick_is_needed(hooks: list[Told]) -> None:
    story = Telling().tell_all(hooks)
    story.machine.settle()
    assert story.machine.deadline is None
    logged = len(story.events)
    story.machine.tick(story.now + 1000)
    assert len(story.events) == logged


@quickly
@given(stories)
def test_a_reply_waits_200_ms_at_most_and_a_hook_two_seconds_twice(hooks: list[Told]) -> None:
    """Twice: a failure that waited for a refusal then waits for the request of that."""
    story = Telling()
    for told in hooks:
        story.wait(told.after)
        wait = story.take(told.payload)
        if wait is not None:
            assert wait.until <= story.now + 0.2
        for other in story.machine.state.waits:
            assert story.now < other.until <= other.hook.at + 4.0


@quickly
@given(stories)
def test_the_end_of_a_session_leaves_nothing_open(hooks: list[Told]) -> None:
    story = Telling().tell_all(hooks)
    story.hook("SessionEnd", after=3)
    story.wait(2)
    assert not story.machine.state.is_open
    assert story.core.count("session.ended") == 1
    check(story.events)


@quickly
@given(hooks=stories, index=st.integers(0, 39))
def test_a_hook_of_the_same_bytes_twice_opens_and_ends_nothing_twice(
    hooks: list[Told], index: int
) -> None:
    once = Telling().tell_all(hooks)
    twice = Telling().tell_all([*hooks[: index + 1], *again(hooks, index), *hooks[index + 1 :]])
    once.machine.settle()
    twice.machine.settle()
    check(twice.events)
    paired = ("PreToolUse", "PermissionRequest", "UserPromptSubmit", "SessionStart")
    if any(told.payload["hook_event_name"] in paired for told in again(hooks, index)):
        opening = ("tool.requested", "attention.requested", "run.started", "session.started")
        for word in opening:
            assert twice.core.count(word) == once.core.count(word)


def again(hooks: list[Told], index: int) -> list[Told]:
    """The hook at an index once more, at once, if it has an id or needs none."""
    if index >= len(hooks):
        return []
    payload = hooks[index].payload
    has_id = "tool_call_id" in payload or payload["hook_event_name"] in (
        *("UserPromptSubmit", "SessionStart"),
    )
    return [Told(0.0, payload)] if has_id else []
