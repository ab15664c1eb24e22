"""A person at the other end: `aep_sdk` on the daemon's own relay, as any console of the standard.

They find the relay as its user does (`kimiaepd console`), hear every event over a duplex of their
own, and command with the SDK's `ControlClient`. They see nothing else: no log, no screen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aep_sdk.control import ControlClient, Duplex, open_duplex
from attrs import define, field

from kimiaepd.mapping.json_value import JSONObject
from vendor.daemon import ask
from vendor.kimi import Kimi
from vendor.place import Place
from vendor.waiting import until

RESPOND = "control.attention.respond"
CANCEL = "control.cancel"
INSTRUCT = "x.kimi-code.control.instruct"
HELLO: JSONObject = {
    "type": "hello",
    "versions": ["0.1"],
    "role": "consumer",
    "identity": {"agent": "reader", "instance": "desk"},
    "capabilities": {},
}


@define(eq=False)
class Human:
    """One person.

    Attributes:
        heard: every event that came over the relay, in the order of its coming.
        answered: the ids of the asks that they answered.
    """

    client: ControlClient
    heard: list[JSONObject] = field(factory=list)
    answered: list[str] = field(factory=list)

    def asked(self, count: int = 1) -> list[JSONObject]:
        """Wait until exactly so many held calls wait for an answer; what is asked, in order."""
        return until(
            lambda: open_asks if len(open_asks := self._open_asks()) == count else [],
            f"{count} open asks at the relay",
        )

    def hears(self, event_type: str, subject: object) -> JSONObject:
        """Wait for an event of this type about this subject."""
        return until(
            lambda: next((e for e in self.of_type(event_type) if e.get("subject") == subject), {}),
            f"{event_type} about {subject} at the relay",
        )

    def of_type(self, event_type: str) -> list[JSONObject]:
        return [event for event in list(self.heard) if event["type"] == event_type]

    def answers(self, asked: JSONObject, option: str, text: str | None = None) -> JSONObject:
        """Answer an ask; the daemon's ack.

        Raises:
            NackError: it was not accepted.
        """
        said: JSONObject = {"option": option} if text is None else {"option": option, "text": text}
        return self._respond(asked, said)

    def says(self, asked: JSONObject, text: str) -> JSONObject:
        """Answer an ask in words alone; the daemon's ack.

        Raises:
            NackError: it was not accepted.
        """
        return self._respond(asked, {"text": text})

    def instructs(self, session: str, text: str) -> JSONObject:
        """Tell a session's agent something; the daemon's ack."""
        return self.commands(INSTRUCT, session, {"text": text})

    def commands(self, command: str, session: str, data: JSONObject) -> JSONObject:
        """Command a session; the daemon's ack.

        Raises:
            NackError: it was not accepted.
        """
        ack: JSONObject = self.client.send(command, session, data=data)
        return ack

    def _respond(self, asked: JSONObject, answer: JSONObject) -> JSONObject:
        self.answered.append(str(asked["id"]))
        ack: JSONObject = self.client.send(
            RESPOND,
            str(asked["session"]),
            subject=str(asked["id"]),
            cause=str(asked["id"]),
            data={"answer": answer},
        )
        return ack

    def read(self, duplex: Duplex) -> None:
        """Take in what comes until the end of the connection."""
        while (frame := duplex.recv_json()) is not None:
            if "aep" in frame:
                self.heard.append(frame)

    def _open_asks(self) -> list[JSONObject]:
        over = {event.get("subject") for event in self.of_type("attention.resolved")}
        over |= {event.get("subject") for event in self.of_type("attention.timeout")}
        over |= set(self.answered)
        return [
            event
            for event in self.of_type("attention.requested")
            if _is_held(event) and event["id"] not in over
        ]


def _is_held(requested: JSONObject) -> bool:
    """Whether we can be answered; an ask of the vendor's own is only seen."""
    asked = requested["data"]
    return isinstance(asked, dict) and asked.get("respond_via") == ["control"]


@contextmanager
def watching(kimi: Kimi, place: Place) -> Iterator[Human]:
    """A person who watches the running daemon, and is heard by it."""
    said = ask(kimi, place, "console", "--token", "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    duplex = open_duplex(found["url"], token=found["token"])
    human = Human(ControlClient(found["url"], agent="phone", host="desk", token=found["token"]))
    reader = threading.Thread(target=human.read, args=(duplex,))
    duplex.send_json(HELLO)
    duplex.send_json({"type": "subscribe", "id": "all", "filter": {}, "from": "all"})
    reader.start()
    try:
        human.client.connect()
        yield human
    finally:
        human.client.close()
        duplex.close()
        reader.join()
