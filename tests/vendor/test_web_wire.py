"""Connections to a real `kimi web` that are cut in the middle of a turn, and a token that changes.

What happened meanwhile is told from the server's journal, at the next connection.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.web.home import read_token
from vendor import daemon
from vendor.kimi import Kimi
from vendor.place import Place, scratch_place
from vendor.provider import Provider
from vendor.waiting import until
from vendor.web import serving
from vendor.web_desk import Desk, furnish, servers, types
from vendor.web_wire import Wire, wired

pytestmark = pytest.mark.vendor

ASK = ("attention.requested", "attention.answered", "attention.resolved")
TURN = ["run.started", *ASK, "tool.requested", "tool.completed", "run.finished"]


@frozen
class Line:
    """A server, and the daemon at the other end of a wire."""

    kimi: Kimi
    real: Place
    ours: Place
    desk: Desk
    wire: Wire

    def watched(self) -> JSONObject:
        (server,) = servers(self.ours)
        return server

    def connects(self, upgrades: int) -> None:
        """Wait for the next connection, after which there were so many."""
        until(lambda: self.wire.upgrades == upgrades, f"{upgrades} connections")
        until(lambda: self.watched()["link"] == "connected", "the connection")


@pytest.fixture(scope="module")
def line(kimi: Kimi, place: Place, provider: Provider) -> Iterator[Line]:
    furnish(kimi, place, provider.url, "primary", hooks=False)
    with scratch_place() as ours:
        furnish(kimi, ours, provider.url, "primary", hooks=False)
        with serving(kimi, place) as web, wired(web, place, ours) as wire:
            with daemon.running(kimi, ours):
                # What the daemon makes of it is in its own place.
                line = Line(kimi, place, ours, Desk(ours, web), wire)
                line.connects(1)
                yield line
            for file in (ours.log_dir / "kimi-code").glob("*.jsonl"):
                judge_log(file)


def test_a_turn_is_told_once_whatever_the_connection_missed_of_it(line: Line) -> None:
    desk = line.desk
    before = line.wire.upgrades
    session = desk.begins("mock:bashok and a cut before the answer")
    desk.logs(session, "attention.requested")
    line.wire.cut()
    desk.decides(session, "approved")
    desk.ends(session)
    desk.web.prompt(session, "mock:bashok and the connection comes back")
    desk.asked(session)
    line.wire.mend()
    line.connects(before + 1)
    desk.decides(session, "approved")
    desk.logs(session, "run.finished", count=2)

    assert types(desk.log(session)) == [*TURN, *TURN]
    assert line.watched()["gaps"] == 0


def test_a_token_that_was_rotated_is_taken_at_the_next_connection(line: Line) -> None:
    """This comes last at this server: the driver of these tests keeps the old token."""
    before = line.wire.upgrades
    session = line.desk.begins("mock:bashok under the old token")
    line.desk.logs(session, "attention.requested")
    old = read_token(line.real.kimi_home)
    rotate(line)
    assert read_token(line.real.kimi_home).value != old.value
    desk = Desk(line.ours, line.desk.web.with_token(read_token(line.real.kimi_home).value))
    assert line.wire.upgrades == before
    line.wire.cut()
    line.wire.mend()
    line.connects(before + 1)
    desk.decides(session, "approved")
    desk.logs(session, "run.finished")

    assert types(desk.log(session)) == TURN
    assert line.watched()["last_error"] is None or "401" not in str(line.watched()["last_error"])


def rotate(line: Line) -> None:
    subprocess.run(
        ["kimi", "web", "rotate-token"],
        executable=line.kimi.programs[0] / "kimi",
        env=line.real.environ(line.kimi.programs),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=30,
    )
