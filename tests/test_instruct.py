"""Steering: from a command to the model's context, once, or to a reason why not."""

from __future__ import annotations

import itertools
import socket
import sys
import tempfile
import unicodedata
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon_room import DEFAULT, Room, opened
from judge import judge
from kimiaepd import shim
from kimiaepd.commands import Command, Commands
from kimiaepd.hook_socket.connection import Connection
from kimiaepd.hook_socket.conversation import Conversations, Reply
from kimiaepd.hook_socket.limits import Limits
from kimiaepd.hook_socket.peer import Peer
from kimiaepd.hook_socket.wire import encode_request
from kimiaepd.instruct import INSTRUCT, LONGEST, MOST, SESSIONS, Instructions, clean
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Capture, Draft
from kimiaepd.mapping.json_value import JSON, JSONObject, dump, parse
from kimiaepd.sessions import Session

QUEUED = "x.kimi-code.instruction.queued"
DELIVERED = "x.kimi-code.instruction.delivered"
DROPPED = "x.kimi-code.instruction.dropped"
MARKER = "PLANTED-77ab"


@define(eq=False)
class Desk:
    """An observer's room with instructions, the commands before them, and a shim after them."""

    room: Room
    instructions: Instructions
    commands: Commands = field(init=False)
    _numbers: Iterator[int] = field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        self.commands = Commands(
            is_known=self.room.book.is_known,
            acknowledge=self._acknowledge,
            decline=self._acknowledge,
            again=lambda _: None,
            is_authenticated=lambda: True,
            clock=lambda: float("inf"),
        )
        self.commands.register(INSTRUCT, self.instructions.take)

    def _acknowledge(self, command: Command, draft: Draft) -> bytes:
        book = self.room.book
        if not book.is_known(command.session):
            return dump({"type": draft.type})
        session = self.session(command.session)
        run = session.state.run.id if session.state.run else None
        line, _ = book.emitter.say(session.stream, draft, run=run, cause=command.id)
        book.keep(session)
        return line.rstrip(b"\n")

    def instruct(self, text: JSON, *, session: str = "s", command: str | None = None) -> str:
        """Take an instruction; gives back the command's id."""
        command = command or f"c{next(self._numbers)}"
        self.commands.take(
            {
                "id": command,
                "source": "aep://phone/agent/thumb",
                "type": INSTRUCT,
                "session": session,
                "data": {"text": text},
            }
        )
        return command

    def session(self, name: str = "s") -> Session:
        return self.room.book.get(name, trio.current_time(), is_heard=False)

    async def prompt(self, *, session: str = "s") -> Reply | None:
        """A prompt, unlike any before; what its hook is to be told."""
        prompt = f"prompt {next(self._numbers)}"
        await self.room.hook("UserPromptSubmit", {"prompt": prompt}, session=session)
        return self.instructions.reply(self.session(session))

    async def told(self, *, session: str = "s") -> str | None:
        """The same, where the reply arrives; what the model is told."""
        reply = await self.prompt(session=session)
        if reply is None:
            return None
        reply.over(True)
        return message(reply)

    def all(self, *types: str, session: str = "s") -> list[JSONObject]:
        return [event for event in self.room.events(session) if event["type"] in types]

    def fates(self, session: str = "s") -> list[tuple[str, str]]:
        """What became of which command, in order."""
        return [
            (str(event["type"]).rpartition(".")[2], str(event["cause"]))
            for event in self.all(QUEUED, DELIVERED, DROPPED, session=session)
        ]


def everything(level: Capture) -> Ceilings:
    return Ceilings(level, {})


def message(reply: Reply) -> str:
    said = parse(reply.body)
    assert isinstance(said, dict)
    assert list(said) == ["message"]
    return str(said["message"])


def data(event: JSONObject) -> JSONObject:
    found = event.get("data", {})
    assert isinstance(found, dict)
    return found


@contextmanager
def desk_in(
    folder: Path, *, ceilings: Ceilings = DEFAULT, epoch: int = 1, idle_seconds: float = 86_400.0
) -> Iterator[Desk]:
    with opened(folder, ceilings=ceilings, epoch=epoch, idle_seconds=idle_seconds) as room:
        yield Desk(room, Instructions(room.book))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk, and a session that has begun."""
    with desk_in(tmp_path / "d") as made:
        await made.room.hook("SessionStart", {"source": "startup"})
        yield made


# --- the way of one ---


async def test_it_is_acknowledged_and_then_queued_and_both_say_by_which_command(desk: Desk) -> None:
    await desk.prompt()
    command = desk.instruct("mind the gap")

    accepted, queued = desk.room.events()[-2:]
    assert (accepted["type"], queued["type"]) == ("control.accepted", QUEUED)
    assert accepted["cause"] == queued["cause"] == command
    assert accepted["run"] == queued["run"] is not None


async def test_it_goes_with_the_next_prompt_and_with_no_other(
    desk: Desk, autojump_clock: MockClock
) -> None:
    assert await desk.told() is None
    first, second = desk.instruct("one"), desk.instruct("two\nlines")
    await trio.sleep(1.5)

    assert await desk.told() == "one\n\ntwo\nlines"
    assert await desk.told() is None

    assert desk.fates()[2:] == [("delivered", first), ("delivered", second)]
    told_of = [event for event in desk.room.events() if event["type"] in ("run.started", DELIVERED)]
    assert [event["type"] for event in told_of] == [
        "run.started", "run.started", DELIVERED, DELIVERED, "run.started",
    ]  # fmt: skip
    for event in desk.all(DELIVERED):
        assert data(event) == {"queued_ms": 1500}
        assert event["run"] == told_of[1]["run"]
    assert desk.instructions.status() == {"queued": 2, "delivered": 2, "kept": 0, "waiting": 0}
    judge(desk.room.events())


async def test_a_prompt_of_another_session_has_nothing_of_it(desk: Desk) -> None:
    desk.instruct("for s")

    assert await desk.told(session="t") is None
    assert await desk.told() == "for s"


async def test_a_command_that_comes_again_is_no_second_instruction(desk: Desk) -> None:
    for _ in range(3):
        desk.instruct("once", command="c")

    assert await desk.told() == "once"
    assert desk.fates() == [("queued", "c"), ("delivered", "c")]


# --- a reply that does not arrive ---


async def test_what_did_not_arrive_goes_first_with_the_next_prompt(desk: Desk) -> None:
    first = desk.instruct("one")
    reply = await desk.prompt()
    assert reply
    reply.over(False)
    assert desk.fates() == [("queued", first)]
    second = desk.instruct("two")

    assert await desk.told() == "one\n\ntwo"
    assert desk.fates()[2:] == [("delivered", first), ("delivered", second)]
    assert desk.instructions.status()["kept"] == 1


async def test_what_is_on_its_way_is_in_no_second_reply(desk: Desk) -> None:
    first = desk.instruct("one")
    on_its_way = await desk.prompt()
    assert on_its_way
    assert await desk.prompt() is None
    second = desk.instruct("two")

    assert await desk.told() == "two"
    on_its_way.over(True)
    assert desk.fates()[2:] == [("delivered", second), ("delivered", first)]


async def test_a_session_that_ends_meanwhile_leaves_one_outcome(desk: Desk) -> None:
    command = desk.instruct("one")
    on_its_way = await desk.prompt()
    assert on_its_way
    await desk.room.hook("Stop")
    await desk.room.hook("SessionEnd", {"reason": "exit"})
    on_its_way.over(True)

    assert desk.fates() == [("queued", command), ("dropped", command)]


# --- what is not taken ---


@pytest.mark.parametrize(
    "text", ["", " \n\t", None, 7, ["x"], "x" * (LONGEST + 1), "\x1b\x07\x9b", "\u202e"]
)
async def test_what_is_no_instruction_is_rejected_with_the_reason(desk: Desk, text: JSON) -> None:
    desk.room.book.emitter.ceilings = everything(Capture.FULL)
    desk.instruct(text)

    (rejected,) = desk.all("control.rejected")
    assert data(rejected) == {
        "reason": "invalid", "detail": "give a text of 4000 characters at most",
    }  # fmt: skip
    assert desk.fates() == []
    assert await desk.told() is None


async def test_a_session_has_room_for_twenty_of_four_thousand_characters(desk: Desk) -> None:
    texts = [chr(0x1F600 + number) * LONGEST for number in range(MOST)]
    for text in texts:
        desk.instruct(text)
    assert [event["type"] for event in desk.all("control.rejected")] == []
    desk.room.book.emitter.ceilings = everything(Capture.FULL)
    desk.instruct("one more")
    (rejected,) = desk.all("control.rejected")
    assert data(rejected) == {"reason": "invalid", "detail": "20 instructions wait already"}

    reply = await desk.prompt()
    assert reply
    assert message(reply) == "\n\n".join(texts)
    assert len(reply.body) + len(b"000000\n") < shim.LONGEST_REPLY
    reply.over(True)
    desk.instruct("now there is room")
    assert await desk.told() == "now there is room"


async def test_nothing_is_queued_for_who_is_not_there(desk: Desk) -> None:
    await desk.room.hook("UserPromptSubmit", {"prompt": "p"}, session="")
    desk.instruct("x", session="unknown")
    desk.instruct("x", session="nobody")
    await desk.room.hook("SessionEnd", {"reason": "exit"})
    desk.instruct("x")

    assert desk.commands.taken == {"invalid": 3}
    assert desk.fates() == desk.fates("unknown") == []


async def test_a_session_that_is_resumed_takes_them_again(desk: Desk) -> None:
    await desk.room.hook("SessionEnd", {"reason": "exit"})
    await desk.room.hook("SessionStart", {"source": "resume"})
    desk.instruct("again")

    assert await desk.told() == "again"


async def test_all_together_are_bounded_by_the_number_of_sessions(tmp_path: Path) -> None:
    with desk_in(tmp_path / "d") as desk:
        for number in range(SESSIONS + 1):
            await desk.room.hook("SessionStart", session=f"s{number}")
        text = "\U0001f600" * LONGEST
        for number, _ in itertools.product(range(SESSIONS + 1), range(MOST + 1)):
            desk.instruct(text, session=f"s{number}")
        held = [one.text for session in desk.room.book for one in session.state.instructions]
        assert len(held) == SESSIONS * MOST
        assert sum(4 * len(one) for one in held) < 20 * (1 << 20)
        assert max(sys.getsizeof(one) for one in held) < 4 * LONGEST + 200
        taken = desk.commands.taken
        assert taken == {"accepted": SESSIONS * MOST, "invalid": SESSIONS, "busy": MOST + 1}
        await desk.told(session="s0")
        desk.instruct("there is room again", session=f"s{SESSIONS}")
        assert await desk.told(session=f"s{SESSIONS}") == "there is room again"


# --- ends ---


async def test_the_end_of_the_session_drops_them_last_of_all(
    desk: Desk, autojump_clock: MockClock
) -> None:
    await desk.prompt()
    first, second = desk.instruct("one"), desk.instruct("two")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.room.observer.run)
        await desk.room.hook("SessionEnd", {"reason": "exit"})
        assert desk.all(DROPPED) == []  # the end waits for the run's own terminal
        await trio.sleep(3)
        nursery.cancel_scope.cancel()

    assert desk.room.types()[-4:] == ["run.cancelled", DROPPED, DROPPED, "session.ended"]
    dropped = desk.all(DROPPED)
    assert [event["cause"] for event in dropped] == [first, second]
    assert [data(event) for event in dropped] == [{"reason": "session-ended"}] * 2
    assert ["run" in event for event in dropped] == [False, False]
    judge(desk.room.events())


async def test_a_stop_of_the_daemon_drops_them(desk: Desk) -> None:
    command = desk.instruct("one")
    desk.room.observer.settle()

    assert desk.fates() == [("queued", command), ("dropped", command)]
    assert data(desk.all(DROPPED)[0]) == {"reason": "daemon-restarted"}


@pytest.mark.parametrize("ceiling", list(Capture))
@pytest.mark.parametrize("is_record_lost", [False, True])
async def test_after_a_crash_the_next_start_drops_what_was_not_delivered(
    tmp_path: Path, ceiling: Capture, *, is_record_lost: bool
) -> None:
    with desk_in(tmp_path / "d", ceilings=everything(ceiling)) as desk:
        await desk.room.hook("SessionStart")
        delivered = desk.instruct("one")
        assert await desk.told()
        await desk.room.hook("Stop")
        lost = desk.instruct("two")
    if is_record_lost:
        (tmp_path / "d" / "ledger.jsonl").unlink()
    with desk_in(tmp_path / "d", ceilings=everything(ceiling), epoch=2) as desk:
        if is_record_lost:
            desk.session()
        assert desk.fates() == [
            ("queued", delivered), ("delivered", delivered), ("queued", lost), ("dropped", lost),
        ]  # fmt: skip
        (dropped,) = desk.all(DROPPED)
        assert dropped["epoch"] == 2
        assert await desk.told() is None
        judge(desk.room.events())
    with desk_in(tmp_path / "d", epoch=3) as desk:
        assert len(desk.all(DROPPED)) == 1


async def test_a_session_that_leaves_memory_takes_them_along(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with desk_in(tmp_path / "d", idle_seconds=100) as desk:
        await desk.room.hook("SessionStart")
        desk.instruct("one")
        await trio.sleep(101)
        desk.room.book.let_go_idle(trio.current_time())
        assert data(desk.all(DROPPED)[0]) == {"reason": "session-idle"}
        assert await desk.told() is None
        assert len(desk.all(DROPPED)) == 1


async def test_a_nearly_full_disk_does_not_hide_what_became_of_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies: list[bool] = []
    append = desk.room.journal.append

    def appended(session: str, line: bytes, *, droppable: bool) -> bool:
        policies.append(droppable)
        return append(session, line, droppable=droppable)

    monkeypatch.setattr(type(desk.room.journal), "append", staticmethod(appended))
    desk.instruct("one")
    desk.instruct("two")
    await desk.told()
    assert True not in policies


async def test_the_text_is_on_no_disk_at_any_level(tmp_path: Path) -> None:
    with desk_in(tmp_path / "d", ceilings=everything(Capture.FULL)) as desk:
        await desk.room.hook("SessionStart")
        desk.instruct(MARKER)
        desk.instruct(MARKER + "x" * LONGEST)
        assert await desk.told() == MARKER
        desk.instruct(MARKER)
        assert MARKER not in repr(desk.session().state)
    for path in (tmp_path / "d").rglob("*"):
        assert path.is_dir() or MARKER.encode() not in path.read_bytes()


# --- the text ---


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain, r\u00e9sum\u00e9 \U0001f469\u200d\U0001f680", None),
        ("a\ttab\nand a line", None),
        ("\u05e9\u05dc\u05d5\u05dd\u200f", None),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x1b]0;title\x07x\x9b2J", "]0;titlex2J"),
        ("a\x00b\x08c\x7fd\x85e", "abcde"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
        ("\u202egnp.exe\u202c \u2066x\u2069", "gnp.exe x"),
        ("  around  \n", "around"),
    ],
)
def test_a_text_is_cleaned_of_what_is_no_text(text: str, cleaned: str | None) -> None:
    assert clean(text) == (cleaned if cleaned is not None else text)


@given(st.text(st.characters(), max_size=200))
def test_whatever_the_text_is_nothing_in_it_is_obeyed(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned) <= len(text)
    assert clean(cleaned) == cleaned
    controls = {letter for letter in cleaned if unicodedata.category(letter) == "Cc"}
    assert controls <= {"\t", "\n"}
    assert parse(dump({"message": cleaned})) == {"message": cleaned}


# --- all together ---

steps = st.lists(
    st.sampled_from(["instruct", "prompt", "arrives", "is lost", "stop", "end", "crash"]),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps)
async def test_each_has_one_outcome_and_is_delivered_only_if_it_arrived(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        arrived: list[str] = []
        commands: list[str] = []
        epochs = itertools.count(1)
        parts: list[list[str]] = [[]]
        for step in steps:
            parts.append([]) if step == "crash" else parts[-1].append(step)
        for part in parts:
            await _live(Path(folder), next(epochs), part, commands, arrived)
        with desk_in(Path(folder), epoch=next(epochs)) as desk:
            desk.session()
            fates = desk.fates()
            judge(desk.room.events())
        assert [cause for fate, cause in fates if fate == "queued"] == commands
        delivered = [cause for fate, cause in fates if fate == "delivered"]
        dropped = [cause for fate, cause in fates if fate == "dropped"]
        assert sorted([*delivered, *dropped]) == sorted(commands)
        assert set(delivered) <= set(arrived)
        assert len(arrived) == len(set(arrived))


async def _live(
    folder: Path, epoch: int, steps: list[str], commands: list[str], arrived: list[str]
) -> None:
    """One life of a daemon; each instruction's text is its command's id."""
    with desk_in(folder, epoch=epoch) as desk:
        await desk.room.hook("SessionStart")
        on_its_way: list[Reply] = []
        for step in steps:
            if step == "instruct" and not desk.session().is_over:
                command = f"c{len(commands)}"
                accepted = desk.commands.taken.get("accepted", 0)
                desk.instruct(command, command=command)
                if desk.commands.taken.get("accepted", 0) > accepted:
                    commands.append(command)
            elif step == "prompt":
                if reply := await desk.prompt():
                    on_its_way.append(reply)
            elif step in ("arrives", "is lost") and on_its_way:
                reply = on_its_way.pop(0)
                reply.over(step == "arrives")
                arrived += message(reply).split("\n\n") if step == "arrives" else []
            elif step == "stop":
                await desk.room.hook("Stop")
            elif step == "end":
                await desk.room.hook("SessionEnd", {"reason": "exit"})


# --- through a socket ---


@define
class Daemon:
    """What answers hooks, as the daemon would."""

    desk: Desk

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> bytes | Reply:
        said = await self.desk.room.observer.hook(body, started_ns, peer)
        return self.desk.instructions.reply(self.desk.session()) or said

    def oversized(self, head: bytes, size: int, started_ns: int) -> None:
        raise AssertionError

    def status(self) -> JSONObject:
        raise AssertionError

    async def reload(self) -> JSONObject:
        raise AssertionError

    def console(self, *, read_only: bool, with_token: bool) -> JSONObject:
        raise AssertionError


@pytest.mark.parametrize("is_read", [True, False])
async def test_delivered_is_what_the_shim_has_read(desk: Desk, *, is_read: bool) -> None:
    if sys.platform != "linux" and not is_read:
        pytest.skip("only Linux tells of bytes left unread")
    command = desk.instruct("mind the gap")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    conversations = Conversations(Daemon(desk), Limits())
    body: JSONObject = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "p"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conversations.serve, Connection(ours))
        client = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        await client.send_all(encode_request("hook", 7, dump(body)))
        await wait_all_tasks_blocked()
        assert desk.fates() == [("queued", command)]
        if is_read:
            assert await client.receive_some() == b'26\n{"message":"mind the gap"}'
        await client.aclose()
    assert desk.fates()[1:] == ([("delivered", command)] if is_read else [])
    assert await desk.told() == (None if is_read else "mind the gap")
