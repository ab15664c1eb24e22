"""The vendor's recorded `kimi web` streams, read, and said again by a scripted server.

A file of `../shared/captures/web` has one WebSocket, a line for each message: `{t, dir, frame}`,
with `dir` "in" for what the server said. Its name says the version and the scene.

What is said again is what the server said of its sessions, with their ids, epochs and places, each
durable frame once: how often a client is told, what it is greeted with and what is acknowledged is
the scripted server's own matter, as it was the real one's.

    capture = read_capture(shared / FOLDER / "ws-2.1.0-text.jsonl")
    async with serving(home, capture.version) as server:
        stage(server, capture)
        ...                                           # let the client subscribe
        await play(server, capture)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from attrs import field, frozen

from kap_journal import GLOBAL, Journal, members
from kap_server import KapServer
from kimiaepd.mapping.json_value import JSON, JSONObject

FOLDER = "captures/web"
_NAME = re.compile(r"ws-(?P<version>\d+\.\d+\.\d+)-(?P<scene>.+)\.jsonl")


@frozen
class Capture:
    """One recorded connection.

    Attributes:
        version: the vendor's.
        scene: what was recorded, such as "approval-approved".
        messages: who spoke ("in": the server, "out": the client) and what, in order.
        close: the code of the end; None where the file has no end.
    """

    version: str
    scene: str
    messages: tuple[tuple[str, JSONObject], ...] = field(repr=False)
    close: int | None = None

    @property
    def said(self) -> list[JSONObject]:
        """What the server said; greetings, acknowledgements and pings among it."""
        return [frame for way, frame in self.messages if way == "in"]

    @property
    def asked(self) -> list[JSONObject]:
        """What the client said."""
        return [frame for way, frame in self.messages if way == "out"]

    def frames(self) -> Iterator[JSONObject]:
        """The frames of sessions and of the server's journal, each durable one once."""
        seen = set[tuple[JSON, JSON]]()
        for frame in self.said:
            if "seq" not in frame:
                continue
            place = (frame["session_id"], frame["seq"])
            if frame.get("volatile") is True:
                yield frame
            elif place not in seen:
                seen.add(place)
                yield frame

    def sessions(self) -> list[str]:
        """The ids of the sessions that the client was told of because it asked."""
        accepted = [
            name
            for frame in self.said
            if frame.get("type") == "ack"
            for key in ("accepted", "accepted_subscriptions")
            for name in _names(members(frame["payload"]).get(key))
        ]
        return list(dict.fromkeys(accepted))


def captures(shared: Path) -> list[Path]:
    """The files, in the order of their names; none where there is no such folder."""
    return sorted((shared / FOLDER).glob("ws-*.jsonl"))


def read_capture(file: Path) -> Capture:
    """Read one."""
    name = _NAME.fullmatch(file.name)
    assert name, file
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    messages = [(entry["dir"], entry["frame"]) for entry in entries]
    closes = [frame["$close"]["code"] for _, frame in messages if "$close" in frame]
    return Capture(
        name["version"],
        name["scene"],
        tuple(message for message in messages if "$close" not in message[1]),
        closes[-1] if closes else None,
    )


def stage(server: KapServer, capture: Capture) -> None:
    """Let a server have the capture's journals, each as it was before the first frame of it.

    The sessions that are told of are live; one whose creation is told of comes with that, unless
    the client had subscribed to it, and it is an old one that is replayed.
    """
    places = dict[str, tuple[str, int]]()
    created = set[str]()
    for frame in capture.frames():
        name, seq, epoch = frame["session_id"], frame["seq"], frame["epoch"]
        assert isinstance(name, str)
        assert isinstance(seq, int)
        assert isinstance(epoch, str)
        if frame["type"] == "event.session.created" and name not in capture.sessions():
            created.add(name)
        if name not in created:
            # A volatile frame has the place of the durable one before it.
            places.setdefault(name, (epoch, seq if frame.get("volatile") is True else seq - 1))
    for name, cursor in _acknowledged(capture).items():
        places.setdefault(name, cursor)
    for name, (epoch, seq) in places.items():
        if name == GLOBAL:
            server.home.journal = Journal(epoch, seq)
        else:
            server.session(name, epoch=epoch, seq=seq)


async def play(server: KapServer, capture: Capture) -> None:
    """Say all of it; it returns when the last of it is sent."""
    for _ in steps(server, capture):
        await server.drained()


def steps(server: KapServer, capture: Capture) -> Iterator[JSONObject]:
    """Say it one frame at a time, each just before it is given: a test may act in between."""
    for frame in capture.frames():
        say_again(server, frame)
        yield frame


def say_again(server: KapServer, frame: JSONObject) -> None:
    """Say one frame; a session that nobody knew is created with it."""
    name, seq = str(frame["session_id"]), frame["seq"]
    assert isinstance(seq, int)
    if name != GLOBAL and name not in server.home.sessions:
        server.session(name, epoch=str(frame["epoch"]), seq=seq - 1)
    server.relay(frame)


def _acknowledged(capture: Capture) -> dict[str, tuple[str, int]]:
    """Where the server said that journals stand, the first time that it did."""
    found = dict[str, tuple[str, int]]()
    for frame in capture.said:
        if frame.get("type") == "ack":
            for name, at in members(members(frame["payload"]).get("cursors")).items():
                seq, epoch = members(at).get("seq"), members(at).get("epoch")
                assert isinstance(seq, int)
                assert isinstance(epoch, str)
                found.setdefault(name, (epoch, seq))
    return found


def _names(value: JSON) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
