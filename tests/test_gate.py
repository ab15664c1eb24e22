"""The held gate in virtual time: who is asked, what an answer does, and that every hold ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock, wait_all_tasks_blocked

from faults import Faults
from gate_room import GateRoom, Shim, gated, is_settled
from judge import judge
from kimiaepd.gate import wording
from kimiaepd.gate.gate import NOTHING
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject, parse
from kimiaepd.policy import Matcher, Mode, Rule
from kimiaepd.settings import GateSettings, HoldMs, WhenUnreachable

FOUR = GateSettings(enabled=True, options="four")


def tail(room: GateRoom, count: int, session: str = "s") -> list[JSON]:
    return room.room.types(session)[-count:]


def reason(reply: bytes) -> JSON:
    """What a reply that denies tells the model."""
    said = parse(reply)
    assert isinstance(said, dict)
    output = said["hookSpecificOutput"]
    assert isinstance(output, dict)
    assert (output["hookEventName"], output["permissionDecision"]) == ("PreToolUse", "deny")
    return output["permissionDecisionReason"]


async def test_a_call_is_asked_about_and_a_denial_reaches_it_with_its_reason(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        await room.start("UserPromptSubmit", {"prompt": "go"})
        shim = await room.call(command="rm -rf /home/user/build")
        requested, asked = room.room.events()[1:]
        assert shim.waits
        assert asked["type"] == "attention.requested"
        assert asked["subject"] == "Bash"
        assert asked["cause"] == requested["id"]
        assert asked["run"] == requested["run"]
        assert asked["severity"] == "notice"
        data = asked["data"]
        assert isinstance(data, dict)
        assert data["prompt"] == "Bash: rm -rf ~/build"
        assert data["respond_via"] == ["control"]
        assert data["options"] == [
            {"id": "allow", "label": "No objection"}, {"id": "deny", "label": "Deny"},
        ]  # fmt: skip
        mock_clock.jump(3)
        ack = await room.answer(room.ask(), {"option": "deny", "text": "not the build"})
        assert reason(shim.reply) == "not the build"
        accepted, answered, resolved, denied = room.room.events()[3:]
        assert ack == accepted
        assert accepted["type"] == "control.accepted"
        assert answered["cause"] == accepted["cause"]
        assert answered["data"] == {
            "answer": {"option": "deny", "text": "not the build"}, "via": "control",
        }  # fmt: skip
        assert (answered["subject"], resolved["subject"]) == (asked["id"], asked["id"])
        assert resolved["cause"] == answered["id"]
        assert resolved["data"] == {"resolution": "answered", "latency_ms": 3000}
        assert denied["cause"] == answered["id"]
        tool: JSONObject = {"name": "Bash", "call_id": "c1"}
        assert denied["data"] == {"tool": tool, "by": "policy"}
        failed: JSONObject = {"tool_name": "Bash", "tool_call_id": "c1", "error": {"code": "x"}}
        await room.start("PostToolUseFailure", failed)
        await room.start("Stop", {})
        assert tail(room, 2) == ["x.kimi-code.session.post_tool_use_failure", "run.finished"]
        is_settled(room)


async def test_an_allow_says_nothing_and_leaves_the_vendors_own_approval(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        await room.answer(room.ask(), {"text": " Allow "})
        assert shim.reply == NOTHING
        bash: JSONObject = {"tool_name": "Bash", "tool_call_id": "c1"}
        await room.start("PermissionRequest", {**bash, "id": "a1", "action": "Running: ls"})
        await room.start("PermissionResult", {**bash, "id": "a1", "decision": "approved"})
        await room.start("PostToolUse", {**bash, "tool_output": "x"})
        assert room.room.types() == [
            "tool.requested", "attention.requested", "control.accepted", "attention.answered",
            "attention.resolved", "attention.requested", "attention.answered",
            "attention.resolved", "tool.completed",
        ]  # fmt: skip
        is_settled(room)


async def test_a_denial_without_words_has_a_reason_all_the_same(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        await room.answer(room.ask(), {"option": "deny", "text": " \n"})
        assert reason(shim.reply) == wording.DENIED


async def test_other_words_refuse_and_are_the_reason(tmp_path: Path, mock_clock: MockClock) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        await room.answer(room.ask(), {"text": "allow it only in the sandbox"})
        assert reason(shim.reply) == "allow it only in the sandbox"
        is_settled(room)


@pytest.mark.parametrize("answer", [None, {}, {"text": " "}, {"option": "yes"}, {"values": {}}])
async def test_what_is_no_answer_is_invalid_and_the_call_stays_held(
    tmp_path: Path, mock_clock: MockClock, answer: JSON
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        ack = await room.answer(room.ask(), answer)
        data = ack["data"]
        assert isinstance(data, dict)
        assert (ack["type"], data["reason"]) == ("control.rejected", "invalid")
        assert shim.waits
        await room.answer(room.ask(), {"option": "allow"})
        assert shim.reply == NOTHING
        is_settled(room)


# --- time ---


async def test_nobody_waits_longer_than_it_says(tmp_path: Path, mock_clock: MockClock) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        mock_clock.jump(49.999)
        await wait_all_tasks_blocked()
        assert shim.waits
        mock_clock.jump(0.001)
        await wait_all_tasks_blocked()
        assert shim.reply == NOTHING
        timeout = room.room.events()[-1]
        assert timeout["type"] == "attention.timeout"
        assert timeout["subject"] == room.ask()
        assert timeout["data"] == {"after_ms": 50_000}
        is_settled(room)


@pytest.mark.parametrize(("after", "is_accepted"), [(49.999, True), (50, False), (300, False)])
async def test_an_answer_counts_until_the_deadline(
    tmp_path: Path, mock_clock: MockClock, *, after: float, is_accepted: bool
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        mock_clock.jump(after)
        ack = await room.answer(room.ask(), {"option": "deny"})  # before any task has run
        assert ack["type"] == ("control.accepted" if is_accepted else "control.rejected")
        assert (shim.reply != NOTHING) == is_accepted
        ended = "tool.denied" if is_accepted else "attention.timeout"
        assert tail(room, 1) == [ended]
        is_settled(room)


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
async def test_a_wall_clock_that_jumps_changes_nothing(
    tmp_path: Path, mock_clock: MockClock, jump_s: int
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        room.wall_ahead_ns = jump_s * 10**9
        mock_clock.jump(49.999)
        await wait_all_tasks_blocked()
        assert shim.waits
        mock_clock.jump(0.001)
        await wait_all_tasks_blocked()
        assert shim.reply == NOTHING
        assert room.room.events()[-1]["data"] == {"after_ms": 50_000}
        is_settled(room)


async def test_the_ask_says_until_when(tmp_path: Path, mock_clock: MockClock) -> None:
    async with gated(tmp_path) as room:
        room.room.book.emitter.clock_ns = lambda: 1_800_000_000 * 10**9
        await room.call(started_ns=1_700_000_000 * 10**9)
        asked = room.room.events()[-1]
        data = asked["data"]
        assert isinstance(data, dict)
        assert data["expires_at"] == "2027-01-15T08:00:50.000Z"


async def test_a_hold_goes_on_under_the_terms_that_it_began_with(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path, FOUR) as room:
        first = await room.call("c1")
        room.gate.terms = GateSettings(enabled=True, hold_ms=HoldMs(1_000))
        second = await room.call("c2")
        old, new = (str(ask["id"]) for ask in room.asks())
        mock_clock.jump(1)
        await wait_all_tasks_blocked()
        assert second.reply == NOTHING
        room.gate.terms = GateSettings(enabled=False)
        assert first.waits
        assert (await room.answer(new, {"option": "allow"}))["type"] == "control.rejected"
        await room.answer(old, {"option": "cancel"})
        assert reason(first.reply) == wording.DENIED
        is_settled(room)


# --- who else ends a hold ---


async def test_a_shim_that_goes_frees_the_call_and_dismisses_the_ask(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        mock_clock.jump(2)
        shim.leave()
        await wait_all_tasks_blocked()
        resolved = room.room.events()[-1]
        assert resolved["data"] == {"resolution": "dismissed", "latency_ms": 2000}
        late = await room.answer(room.ask(), {"option": "deny"})
        assert late["type"] == "control.rejected"
        assert tail(room, 1) == ["control.rejected"]
        is_settled(room)


async def test_the_end_of_the_session_frees_its_calls_and_no_others(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        ours, theirs = await room.call(), await room.call(session="t")
        await room.start("SessionEnd", {"reason": "exit"})
        assert ours.reply == NOTHING
        assert theirs.waits
        assert tail(room, 2) == ["attention.resolved", "session.ended"]
        await room.answer(room.ask("t"), {"option": "allow"}, session="t")
        is_settled(room)


async def test_a_stop_frees_fifty_calls_at_once_and_nothing_is_held_after_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        shims = [await room.call(f"c{number}", session=f"s{number % 7}") for number in range(50)]
        room.gate.stop()
        await wait_all_tasks_blocked()
        assert {shim.reply for shim in shims} == {NOTHING}
        assert (await room.call("late")).reply == NOTHING
        for number in range(7):
            assert "attention.timeout" not in room.room.types(f"s{number}")
            is_settled(room, f"s{number}")


async def test_what_is_cancelled_is_dismissed(tmp_path: Path, mock_clock: MockClock) -> None:
    """A second SIGTERM does not wait for anybody."""
    async with gated(tmp_path) as room:
        async with trio.open_nursery() as hooks:
            room.nursery = hooks
            await room.call()
            hooks.cancel_scope.cancel()
        assert room.room.events()[-1]["type"] == "attention.resolved"
        is_settled(room)


async def test_an_accepted_answer_wins_over_everything_that_comes_after_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        room.command(room.ask(), {"answer": {"option": "deny"}})
        mock_clock.jump(60)
        shim.leave()
        room.gate.stop()
        await wait_all_tasks_blocked()
        assert tail(room, 3) == ["attention.answered", "attention.resolved", "tool.denied"]
        assert reason(shim.reply) == wording.DENIED
        is_settled(room)


async def test_an_answer_stands_though_the_session_ends_before_its_call_is_freed(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        room.command(room.ask(), {"answer": {"option": "deny"}})
        await room.room.hook("SessionEnd", {"reason": "exit"})
        await wait_all_tasks_blocked()
        assert tail(room, 4) == [
            "attention.answered", "attention.resolved", "tool.denied", "session.ended",
        ]  # fmt: skip
        assert reason(shim.reply) == wording.DENIED
        is_settled(room)


# --- commands ---


async def test_one_answer_counts_and_a_repeated_command_gets_its_ack_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        ask = room.ask()
        for _ in range(5):
            room.command(ask, {"answer": {"option": "deny"}}, command="same")
        room.command(ask, {"answer": {"option": "allow"}}, command="another")
        await wait_all_tasks_blocked()
        assert [ack["type"] for ack in room.acks] == ["control.accepted", "control.rejected"]
        assert len(set(room.again)) == 1
        assert parse(room.again[0]) == room.acks[0]
        assert reason(shim.reply) == wording.DENIED
        assert room.room.types().count("attention.answered") == 1
        is_settled(room)


@pytest.mark.parametrize("subject", ["", "01HZZZZZZZZZZZZZZZZZZZZZZZ", "the call"])
async def test_an_answer_to_nothing_that_is_held_is_invalid(
    tmp_path: Path, mock_clock: MockClock, subject: str
) -> None:
    async with gated(tmp_path) as room:
        shim = await room.call()
        await room.call(session="t")
        ack = await room.answer(subject, {"option": "deny"})
        assert ack["type"] == "control.rejected"
        ack = await room.answer(room.ask("t"), {"option": "deny"}, session="s")
        assert ack["type"] == "control.rejected", "it is another session's"
        assert shim.waits


async def test_several_calls_are_held_at_once_and_share_nothing(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        shims = [await room.call(f"c{number}") for number in range(3)]
        asks = [str(ask["id"]) for ask in room.asks()]
        await room.answer(asks[1], {"option": "deny", "text": "no"})
        assert [shim.waits for shim in shims] == [True, False, True]
        await room.answer(asks[0], {"option": "allow"})
        assert [shim.waits for shim in shims] == [False, False, True]
        shims[2].leave()
        await wait_all_tasks_blocked()
        assert [shim.reply == NOTHING for shim in shims] == [True, False, True]
        is_settled(room)


async def test_allow_session_asks_once_in_that_session(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path, FOUR) as room:
        await room.call("c1")
        await room.answer(room.ask(), {"option": "allow_session"})
        assert (await room.call("c2", "another")).reply == NOTHING
        assert len(room.asks()) == 1
        assert (await room.call("c3", tool="Write")).waits
        assert (await room.call("c4", session="t")).waits
        await room.start("SessionEnd", {"reason": "exit"})
        assert (await room.call("c5")).waits, "a resumed session is asked again"


async def test_what_was_allowed_for_a_session_that_ends_at_that_moment_is_over_with_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path, FOUR) as room:
        await room.call("c1")
        room.command(room.ask(), {"answer": {"option": "allow_session"}})
        await room.room.hook("SessionEnd", {"reason": "exit"})  # before the task that holds runs
        await wait_all_tasks_blocked()
        await room.room.hook("SessionStart", {"source": "resume"})
        assert (await room.call("c2")).waits, "a resumed session is asked again"


# --- two installs ---


@pytest.mark.parametrize("option", ["allow", "deny"])
async def test_a_second_hook_of_a_held_call_shares_its_outcome(
    tmp_path: Path, mock_clock: MockClock, option: str
) -> None:
    async with gated(tmp_path) as room:
        first, second = await room.call(), await room.call()
        assert len(room.asks()) == 1
        await room.answer(room.ask(), {"option": option})
        assert first.reply == second.reply
        assert room.room.book.duplicates == 1
        is_settled(room)


async def test_a_second_hook_of_a_call_that_is_still_held_shares_it_however_late_it_comes(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        first = await room.call(started_ns=10**18)
        mock_clock.jump(20)
        second = await room.call(started_ns=10**18 + 20 * 10**9)
        assert len(room.asks()) == 1
        await room.answer(room.ask(), {"option": "deny"})
        assert reason(first.reply) == reason(second.reply)
        is_settled(room)


async def test_a_second_shim_that_goes_ends_nothing(tmp_path: Path, mock_clock: MockClock) -> None:
    async with gated(tmp_path) as room:
        first, second = await room.call(), await room.call()
        second.leave()
        await wait_all_tasks_blocked()
        assert first.waits
        assert second.reply == NOTHING


async def test_a_second_hook_that_comes_after_a_denial_is_denied_too(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        first = await room.call(started_ns=10**18)
        await room.answer(room.ask(), {"option": "deny", "text": "no"})
        second = await room.call(started_ns=10**18 + 90_000_000)
        assert second.reply == first.reply
        assert room.room.types().count("tool.denied") == 1
        again = await room.call(started_ns=10**18 + 9 * 10**9)
        assert again.waits, "a later call under the same id is another call"


async def test_a_call_under_the_id_of_one_that_never_ended_is_asked_about_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """Kimi kills PostToolUse hooks, and models use ids again."""
    async with gated(tmp_path) as room:
        await room.call(started_ns=10**18)
        await room.answer(room.ask(), {"option": "allow"})
        for command in ("ls", "rm -rf ."):
            again = await room.call(command=command, started_ns=10**18 + 60 * 10**9)
            assert again.waits
            await room.answer(room.ask(), {"option": "deny"})
            assert reason(again.reply) == wording.DENIED
        is_settled(room)


async def test_a_call_without_an_id_is_held_like_any_other(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        first, second = await room.call(None), await room.call(None)
        assert len(room.asks()) == 2
        await room.answer(room.ask(), {"option": "deny"})
        assert first.waits
        assert reason(second.reply) == wording.DENIED


# --- nobody there ---


async def test_nobody_is_asked_where_nobody_could_answer(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        room.reachable = False
        assert (await room.call("c1")).reply == NOTHING
        room.reachable = True
        held = await room.call("c2")
        room.reachable = False
        mock_clock.jump(30)
        await wait_all_tasks_blocked()
        assert held.waits, "somebody may come back in time"
        room.reachable = True
        await room.answer(room.ask(), {"option": "deny"})
        assert reason(held.reply) == wording.DENIED
        assert room.gate.counts["nobody there"] == 1
        is_settled(room)


async def test_it_is_asked_all_the_same_where_that_is_wanted(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path, GateSettings(enabled=True, when_unreachable="hold")) as room:
        room.reachable = False
        for number in range(2):
            assert (await room.call(f"c{number}")).waits
            mock_clock.jump(50)
            await wait_all_tasks_blocked()
        assert (await room.call("c3")).reply == NOTHING, "nor does anybody wait for ever then"
        is_settled(room)


@pytest.mark.parametrize("when_unreachable", ["pass", "hold"])
async def test_nobody_waits_where_no_answer_could_ever_come(
    tmp_path: Path, mock_clock: MockClock, when_unreachable: WhenUnreachable
) -> None:
    """There is no relay, or no token for it: then no command is taken, from anyone."""
    terms = GateSettings(enabled=True, when_unreachable=when_unreachable)
    async with gated(tmp_path, terms) as room:
        room.reachable = False
        room.gate.is_controlled = lambda: False
        assert (await room.call()).reply == NOTHING
        assert room.gate.counts == {"no relay with a token": 1}
        status = room.gate.status()
        assert (status["controlled"], status["answerable"]) == (False, False)


async def test_a_call_is_not_held_where_the_log_takes_no_request(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        await room.start("UserPromptSubmit", {"prompt": "go"})
        with Faults() as faults:
            faults.disk_takes(0)
            assert (await room.call("c1")).reply == NOTHING
        assert room.gate.counts["not logged"] == 1
        assert room.told == [], "nobody was asked, so nobody is told"
        assert (await room.call("c2")).waits
        assert len(room.asks()) == 1
        await room.answer(room.ask(), {"option": "allow"})
        is_settled(room)


async def test_after_two_timeouts_in_a_row_nobody_waits_any_more(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        for number in range(2):
            await room.call(f"c{number}")
            mock_clock.jump(50)
            await wait_all_tasks_blocked()
        assert tail(room, 2) == ["attention.timeout", "x.kimi-code.gate.stood_down"]
        assert room.room.events()[-1]["data"] == {"timeouts": 2}
        assert (await room.call("c3")).reply == NOTHING
        assert (await room.call("c4", session="t")).waits, "each session's gate is its own"
        assert room.gate.status()["stood_down"] == 1
        room.gate.somebody_came()
        assert (await room.call("c5")).waits
        mock_clock.jump(50)
        await wait_all_tasks_blocked()
        assert (await room.call("c6")).waits, "one timeout is not two"
        mock_clock.jump(50)
        await wait_all_tasks_blocked()
        is_settled(room)


async def test_calls_that_time_out_together_stand_the_gate_down_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        for number in range(4):
            assert (await room.call(f"c{number}")).waits
        mock_clock.jump(50)
        await wait_all_tasks_blocked()
        assert room.room.types().count("attention.timeout") == 4
        assert room.room.types().count("x.kimi-code.gate.stood_down") == 1
        is_settled(room)


async def test_a_session_that_is_resumed_is_asked_about_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        for number in range(2):
            await room.call(f"c{number}")
            mock_clock.jump(50)
            await wait_all_tasks_blocked()
        await room.start("SessionEnd", {"reason": "exit"})
        await room.start("SessionStart", {"source": "resume"})
        assert (await room.call("c3")).waits


async def test_any_command_between_two_timeouts_shows_that_somebody_is_there(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path) as room:
        for number in range(4):
            await room.call(f"c{number}")
            mock_clock.jump(50)
            await wait_all_tasks_blocked()
            late = await room.answer(room.ask(), {"option": "allow"})
            assert late["type"] == "control.rejected"
        assert (await room.call("c9")).waits
        assert "x.kimi-code.gate.stood_down" not in room.room.types()


async def test_a_dismissed_ask_is_no_timeout(tmp_path: Path, mock_clock: MockClock) -> None:
    async with gated(tmp_path) as room:
        for number in range(3):
            shim = await room.call(f"c{number}")
            shim.leave()
            await wait_all_tasks_blocked()
        assert (await room.call("c9")).waits


# --- rules ---

READ_ONLY = Rule(id="read-only", tool_name="Write", decision="rejected", reason="read only")
IN_SRC = Rule(
    id="in-src", tool_name="Write", decision="approved", matcher=Matcher("path_glob", "src/**")
)


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_rule_denies_at_once_in_every_mode_and_needs_nobody(
    tmp_path: Path, mock_clock: MockClock, mode: Mode
) -> None:
    terms = GateSettings(enabled=True, mode=mode, rules=(READ_ONLY,))
    async with gated(tmp_path, terms) as room:
        room.reachable = False
        first = await room.call(tool="Write", started_ns=10**18)
        second = await room.call(tool="Write", started_ns=10**18 + 1)
        assert reason(first.reply) == reason(second.reply) == "read only"
        requested, denied = room.room.events()
        assert denied["cause"] == requested["id"]
        tool: JSONObject = {"name": "Write", "call_id": "c1"}
        assert denied["data"] == {"tool": tool, "by": "policy", "rule": "read-only"}
        assert room.gate.counts == {"denied by rule": 1}
        is_settled(room)


async def test_a_path_passes_by_where_it_really_leads(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    (work / "src").mkdir(parents=True)
    elsewhere.mkdir()
    (work / "src" / "link").symlink_to(elsewhere)
    (tmp_path / "alias").symlink_to(work)
    terms = GateSettings(enabled=True, mode=Mode.AUTO, rules=(IN_SRC,))
    async with gated(tmp_path / "data", terms) as room:

        async def write(path: str, cwd: Path) -> Shim:
            given: JSONObject = {"path": path, "content": "x"}
            call: JSONObject = {"tool_name": "Write", "tool_input": given, "cwd": str(cwd)}
            shim = await room.start("PreToolUse", call)
            with trio.move_on_after(5):  # a thread looks; this clock stands still meanwhile
                while shim.waits and not room.gate.status()["held"]:
                    await trio.lowlevel.checkpoint()
            return shim

        assert (await write("src/a.py", work)).reply == NOTHING
        assert (await write("src/a.py", tmp_path / "alias")).reply == NOTHING
        held = await write("src/link/a.py", work)
        assert held.waits
        data = room.asks()[-1]["data"]
        assert isinstance(data, dict)
        assert data["prompt"] == "Write: src/link/a.py"
        await room.answer(room.ask(), {"option": "deny"})
        assert (await write("other.py", work)).waits


SECRETS = Rule(
    id="r-1", tool_name="Write", decision="rejected", matcher=Matcher("path_glob", "/never/**")
)


@pytest.mark.parametrize("cwd", ["link", None])
@pytest.mark.parametrize("names", ["as it is named", "as it really is"])
async def test_a_path_is_denied_by_either_name_of_where_it_lies(
    tmp_path: Path, mock_clock: MockClock, names: str, cwd: str | None
) -> None:
    (tmp_path / "work" / "secret").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "work")
    there = tmp_path / ("link" if names == "as it is named" else "work")
    rule = evolve(SECRETS, matcher=Matcher("path_glob", f"{there}/secret/**"))
    terms = GateSettings(enabled=True, mode=Mode.YOLO, rules=(rule,))
    async with gated(tmp_path / "data", terms) as room:
        path = "secret/x" if cwd else str(tmp_path / "link" / "secret" / "x")
        given: JSONObject = {"path": path, "content": "x"}
        call: JSONObject = {"tool_name": "Write", "tool_input": given}
        call |= {"cwd": str(tmp_path / cwd)} if cwd else {}
        shim = await room.start("PreToolUse", call)
        with trio.move_on_after(5):  # a thread looks; this clock stands still meanwhile
            while shim.waits and not room.gate.status()["held"]:
                await trio.lowlevel.checkpoint()
        assert not shim.waits
        assert reason(shim.reply)


@pytest.mark.parametrize("path", ["/tmp/link", "src/a.py"])
async def test_a_path_that_may_lead_where_a_rule_denies_is_held_where_nobody_can_look(
    tmp_path: Path, mock_clock: MockClock, path: str
) -> None:
    terms = GateSettings(enabled=True, mode=Mode.YOLO, rules=(SECRETS,))
    async with gated(tmp_path, terms) as room:
        given: JSONObject = {"path": path, "content": "x"}
        call: JSONObject = {"tool_name": "Write", "tool_input": given, "cwd": str(tmp_path)}
        with Faults() as faults:
            faults.no_thread()
            assert (await room.start("PreToolUse", call)).waits
        await room.answer(room.ask(), {"option": "allow"})


async def test_a_path_that_nobody_can_look_at_is_held(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    terms = GateSettings(enabled=True, mode=Mode.AUTO, rules=(IN_SRC,))
    async with gated(tmp_path, terms) as room:
        given: JSONObject = {"path": "src/a.py", "content": "x"}
        call: JSONObject = {"tool_name": "Write", "tool_input": given, "cwd": str(tmp_path)}
        with Faults() as faults:
            faults.no_thread()
            assert (await room.start("PreToolUse", call)).waits
        await room.answer(room.ask(), {"option": "allow"})


# --- levels, and what is told ---


@pytest.mark.parametrize("level", list(Capture))
async def test_no_level_shows_more_than_it_may(
    tmp_path: Path, mock_clock: MockClock, level: Capture
) -> None:
    async with gated(tmp_path, FOUR, ceilings=Ceilings(level, {})) as room:
        shim = await room.call(command="echo PLANTED", started_ns=1)
        if level < Capture.REDACTED:
            await room.answer(room.open_ask(), {"text": "No objection"})
            assert reason(shim.reply) == "No objection", "a label that nobody saw is only words"
        else:
            await room.answer(room.open_ask(), {"option": "deny", "text": "PLANTED too"})
        raw = b"".join(file.read_bytes() for file in (tmp_path / "log").rglob("*.jsonl"))
        assert (b"PLANTED" in raw) == (level >= Capture.REDACTED)
        assert (b"No objection" in raw) == (level >= Capture.REDACTED)
        judge(room.room.events())
        assert room.told[0]["prompt"] == (
            "Bash: echo PLANTED" if level >= Capture.REDACTED
            else "kimi-code requests permission: Bash"
        )  # fmt: skip


async def test_a_hold_that_begins_and_ends_is_told(tmp_path: Path, mock_clock: MockClock) -> None:
    async with gated(tmp_path) as room:
        await room.call()
        await room.answer(room.ask(), {"option": "deny"})
        begun, ended = room.told
        assert begun["event"] == "held"
        assert (begun["session"], begun["ask"], begun["tool"]) == ("s", room.ask(), "Bash")
        assert begun["prompt"] == "Bash: ls"
        assert list(begun) == ["event", "session", "ask", "tool", "prompt", "expires_at"]
        assert ended == {**begun, "event": "over", "outcome": "answered", "option": "deny"}


async def test_the_gate_counts_what_became_of_calls(tmp_path: Path, mock_clock: MockClock) -> None:
    async with gated(tmp_path) as room:
        await room.call("c1")
        await room.answer(room.ask(), {"option": "deny"})
        (await room.call("c2")).leave()
        await room.call("c3")
        mock_clock.jump(50)
        await wait_all_tasks_blocked()
        room.gate.terms = GateSettings(enabled=True, mode=Mode.YOLO)
        assert (await room.call("c4")).reply == NOTHING
        status = room.gate.status()
        assert status["calls"] == {
            "held": 3, "answered": 1, "dismissed": 1, "timeout": 1, "passed": 1,
        }  # fmt: skip
        assert status["mode"] == "yolo"


async def test_a_gate_that_is_off_does_nothing(tmp_path: Path, mock_clock: MockClock) -> None:
    async with gated(tmp_path, GateSettings()) as room:
        assert (await room.call()).reply == NOTHING
        assert (await room.call()).reply == NOTHING
        assert room.room.types() == ["tool.requested"]
        assert room.room.book.duplicates == 1


# --- after a restart ---


async def test_what_was_held_long_ago_is_dismissed_at_the_next_start_too(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path / "first") as room:
        await room.call()
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
    async with gated(tmp_path / "killed", epoch=2, idle_seconds=-1.0) as room:
        assert room.room.types()[-1] == "attention.resolved"


async def test_what_a_dead_daemon_held_is_dismissed_at_the_next_start(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with gated(tmp_path / "first") as room:
        await room.start("UserPromptSubmit", {"prompt": "go"})
        await room.call()
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
        ask = room.ask()
    async with gated(tmp_path / "killed", epoch=2) as room:
        *_, requested, resolved = room.room.events()
        assert (resolved["subject"], resolved["epoch"]) == (requested["id"], 2)
        assert resolved["data"] == {"resolution": "dismissed"}
        late = await room.answer(ask, {"option": "deny"})
        assert late["type"] == "control.rejected"
        assert (await room.call("c2")).waits
        await room.answer(room.ask(), {"option": "allow"})
        is_settled(room)
