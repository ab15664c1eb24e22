"""What the daemon logged of the vendor's sessions, read back from its files.

`judge.py` says whether a log is valid; here are the questions a story asks of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from kimiaepd.mapping.json_value import JSONObject
from vendor.place import Place

RUN_TERMINALS = frozenset({"run.finished", "run.failed", "run.cancelled"})


@frozen
class Log:
    """The events of one session, in the order of the file."""

    events: tuple[JSONObject, ...]

    @classmethod
    def read(cls, path: Path) -> Log:
        """A log as it is now; a line that is being written is not there yet."""
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        return cls(tuple(json.loads(line) for line in whole.splitlines()))

    @property
    def story(self) -> list[str]:
        """The standard's own types, in order; `x.` types only say what was seen."""
        return [t for t in map(_type, self.events) if not t.startswith("x.")]

    def all(self, *types: str) -> list[JSONObject]:
        return [event for event in self.events if _type(event) in types]

    def one(self, event_type: str) -> JSONObject:
        """The only event of this type."""
        (event,) = self.all(event_type)
        return event

    def cause(self, event: JSONObject) -> JSONObject | None:
        """The event that this one names as its cause, if it is in this log."""
        return next((e for e in self.events if e["id"] == event.get("cause")), None)

    def of_run(self, number: int) -> Log:
        """The events of the session's nth run, from 0."""
        run = self.all("run.started")[number]["run"]
        return Log(tuple(event for event in self.events if event.get("run") == run))


def log_files(place: Place) -> list[Path]:
    """The daemon's logs, the oldest first."""
    files = (place.log_dir / "kimi-code").glob("*.jsonl")
    return sorted(files, key=lambda path: path.stat().st_ctime_ns)


def runs_are_closed(logs: Iterable[Log], runs: int) -> bool:
    """Whether so many runs have begun, and all of them have ended."""
    stories = [log.story for log in logs]
    started = sum(story.count("run.started") for story in stories)
    ended = sum(word in RUN_TERMINALS for story in stories for word in story)
    return started == ended == runs


def data(event: JSONObject) -> JSONObject:
    found = event["data"]
    assert isinstance(found, dict)
    return found


def _type(event: JSONObject) -> str:
    return str(event["type"])
