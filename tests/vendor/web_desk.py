"""A desk at which somebody works with `kimi web`: they begin turns and answer in the browser.

The browser is the server's REST, and what they have it for is done as the vendor's page does it:
nothing here goes through our own client. What the daemon makes of it is read from its log.
"""

from __future__ import annotations

import shutil
from functools import partial

import trio
from attrs import frozen

from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSON, JSONObject
from vendor.daemon import STATUS_DEADLINE_S, register
from vendor.kimi import Kimi
from vendor.logged import Log
from vendor.place import Place, plain_config
from vendor.waiting import until
from vendor.web import Web

CORE = ("run.", "tool.", "attention.")
"""The types of what both channels tell; the rest of a session's story has no twin on the wire."""

SETTINGS = """\
[collector]
port = 0
[web]
mode = "{mode}"
"""


def furnish(
    kimi: Kimi, place: Place, url: str, mode: str, *, hooks: bool, settings: str = ""
) -> None:
    """A first day: the CLI's config.toml with or without our hooks, and our settings."""
    shutil.rmtree(place.root, ignore_errors=True)
    configure(place, mode, settings)
    config = plain_config(kimi.version, url)
    if hooks:
        config = register(kimi, place, config)
    place.renew(config)


def configure(place: Place, mode: str, settings: str = "") -> None:
    """Our settings: the mode, and what else a test wants."""
    file = place.home / ".config/kimiaepd/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SETTINGS.format(mode=mode) + settings)


@frozen
class Desk:
    """Somebody with one server."""

    place: Place
    web: Web

    # --- in the browser ---

    def begins(self, prompt: str) -> str:
        """A new session in which a turn has begun."""
        session = self.web.session(self.place.work)
        self.web.prompt(session, prompt)
        return session

    def look(self, session: str) -> JSONObject:
        """The session, as its page has it."""
        return self.web.ask("GET", f"/sessions/{session}")

    def ends(self, session: str) -> None:
        """Wait until nothing runs in the session."""
        until(lambda: not self.look(session)["busy"], "the end of the turn")

    def asked(self, session: str, what: str = "approval") -> str:
        """Wait for the ask that the session comes to; what an answer calls it."""
        until(lambda: self.look(session)["pending_interaction"] == what, f"the {what}")
        pending = partial(self.web.ask, "GET", f"/sessions/{session}/{what}s?status=pending")
        items = until(lambda: pending()["items"], f"the pending {what}")
        assert isinstance(items, list)
        (item,) = items
        assert isinstance(item, dict)
        return str(item[f"{what}_id"])

    def decides(self, session: str, decision: str, **beside: JSON) -> None:
        """Answer the approval that the session comes to."""
        path = f"/sessions/{session}/approvals/{self.asked(session)}"
        self.web.ask("POST", path, {"decision": decision, **beside})

    def fills_in(self, session: str, answers: JSONObject) -> None:
        """Answer the question that the session comes to."""
        path = f"/sessions/{session}/questions/{self.asked(session, 'question')}"
        self.web.ask("POST", path, {"answers": answers})

    def dismisses(self, session: str) -> None:
        """Close that question without an answer; the vendor's word for it is a code of its own."""
        path = f"/sessions/{session}/questions/{self.asked(session, 'question')}:dismiss"
        self.web.ask("POST", path, {}, code=40909)

    def aborts(self, session: str) -> None:
        """Stop the turn."""
        self.web.ask("POST", f"/sessions/{session}:abort", {})

    def compacts(self, session: str) -> None:
        """Have the session's history made short."""
        self.web.ask("POST", f"/sessions/{session}:compact", {})

    # --- what the daemon made of it ---

    def log(self, session: str) -> Log:
        """The session's log as it is now; without events while there is none."""
        file = self.place.log_dir / f"kimi-code/{session}.jsonl"
        return Log.read(file) if file.exists() else Log(())

    def logs(self, session: str, *types: str, count: int = 1) -> JSONObject:
        """Wait for events of these types in the log; the last of so many."""
        found = until(
            lambda: all_of if len(all_of := self.log(session).all(*types)) >= count else [],
            f"{count} of {types} in the log of {session}",
        )
        return found[-1]


def core(log: Log) -> list[JSONObject]:
    """The events that tell of runs, calls and asks."""
    return [event for event in log.events if str(event["type"]).startswith(CORE)]


def types(log: Log) -> list[str]:
    """Their types, in order."""
    return [str(event["type"]) for event in core(log)]


def servers(place: Place) -> list[JSONObject]:
    """What the daemon says of the servers that it watches."""
    status = trio.run(partial(request, place.socket, "status", timeout=STATUS_DEADLINE_S))
    web = status["web"]
    assert isinstance(web, dict)
    found = web["servers"]
    assert isinstance(found, list)
    return [server for server in found if isinstance(server, dict)]


def watches(place: Place, count: int = 1) -> int:
    """Wait until so many servers are watched, and no more are known; how many they are.

    What hooks have told of a session before that, is not told again.
    """

    def is_so() -> bool:
        links = [server["link"] for server in servers(place)]
        return links == ["connected"] * count

    until(is_so, f"{count} servers that are watched")
    return count


def sessions_watched(place: Place) -> int:
    """How many sessions it is told of, by all servers."""
    return sum(int(str(server["sessions"])) for server in servers(place))
