"""A session told hook by hook, in virtual time: the lifecycles alone, without trio, clock or file.

`Story.hook` takes a hook in, `Story.wait` lets time pass, and `events` is what was logged. Ids are
short and in order: the third event is "e3", the second run "run2".
"""

from __future__ import annotations

from attrs import define, field

from kimiaepd.lifecycle.machine import Machine
from kimiaepd.lifecycle.state import Hook, State, Wait
from kimiaepd.mapping.event import Draft
from kimiaepd.mapping.hooks import map_hook
from kimiaepd.mapping.json_value import JSON, JSONObject, dump
from kimiaepd.mapping.payloads import read_payload


@define
class Logged:
    """One event, as far as a lifecycle decides it. `data` is by dotted path, at full capture."""

    id: str
    type: str
    subject: str | None
    run: str | None
    cause: str | None
    data: dict[str, JSON]
    at: float


@define
class Story:
    """One session's machine and what it logged."""

    now: float = 1000.0
    events: list[Logged] = field(factory=list)
    machine: Machine = field(init=False)
    _runs: int = 0

    def __attrs_post_init__(self) -> None:
        self.machine = Machine(State(), self._emit, self._new_run)

    def hook(self, event: str, after: float = 0.0, **fields: JSON) -> Wait | None:
        """Let time pass, then take one hook in."""
        self.wait(after)
        payload: JSONObject = {"hook_event_name": event, "session_id": "s", **fields}
        return self.take(payload)

    def take(self, payload: JSONObject, started: float | None = None) -> Wait | None:
        """Take a whole payload in, now; its shim started now, or when said."""
        read = read_payload(payload)
        ns = round((self.now if started is None else started) * 1e9)
        twin = dump(payload).decode()
        return self.machine.hook(Hook(read, map_hook(read), self.now, ns, twin))

    def wait(self, seconds: float) -> None:
        """Let time pass, as a clock would: each deadline at its own moment."""
        end = self.now + seconds
        while (due := self.machine.deadline) is not None and due <= end:
            self.now = max(self.now, due)
            self.machine.tick(self.now)
        self.now = end

    @property
    def types(self) -> list[str]:
        """The types logged, in order."""
        return [event.type for event in self.events]

    @property
    def core(self) -> list[str]:
        """The types logged, in order, without those of the vendor's own namespace."""
        return [event.type for event in self.events if not event.type.startswith("x.")]

    def only(self, event_type: str) -> Logged:
        """The one event of this type."""
        (event,) = (event for event in self.events if event.type == event_type)
        return event

    def _emit(
        self, draft: Draft, hook: Hook, *, run: str | None = None, cause: str | None = None
    ) -> str:
        data = {".".join(member.path): member.value for member in draft.fields}
        event_id = f"e{len(self.events) + 1}"
        self.events.append(Logged(event_id, draft.type, draft.subject, run, cause, data, self.now))
        return event_id

    def _new_run(self) -> str:
        self._runs += 1
        return f"run{self._runs}"
