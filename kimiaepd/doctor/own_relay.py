"""The daemon's own relay, before it is asked like any other: wanted, there, and its two tokens.

Rules:
- Where it is stands in the state directory, and is believed as a client believes it (`place.py`).
- We look with the token that observes: whoever connects with the other one is somebody who could
  answer, and would make a gate stand again. That the other one opens it is proven by a batch of no
  events, which delivers nothing.
- A daemon that does not answer is said where the daemon is looked at, and nowhere else.
"""

from __future__ import annotations

from attrs import frozen

from kimiaepd.collector import place
from kimiaepd.collector.access import token_files
from kimiaepd.collector.token_file import TokenFile
from kimiaepd.doctor.check import Check, Patient, finding, ok, warning
from kimiaepd.doctor.told import told
from kimiaepd.errors import ConfigError, UserError
from kimiaepd.hook_socket.client import request
from kimiaepd.http_call import UnreachableError, call
from kimiaepd.mapping.event import VERSION
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.relay.address import Address, address_of
from kimiaepd.settings import RelaySettings, RelayUrl
from kimiaepd.storage.daemon_lock import LOCK_NAME
from kimiaepd.storage.lock_holder import lock_holder

RELAY, CONTROL = "relay", "control"

ANSWER_SECONDS = 5.0

_TAKEN = 202
_START_AGAIN = "see what it wrote to stderr, then start it again"


@frozen
class Seen:
    """What was seen of it.

    Attributes:
        checks: in the order in which they are shown.
        address: where it is to be asked further; None: that is all there is to say.
        token: the one that observes.
    """

    checks: tuple[Check, ...]
    address: Address | None = None
    token: str | None = None


async def look(patient: Patient) -> Seen:
    """Find it, and see that both of its tokens can be trusted; mostly it takes no second."""
    if not patient.settings.collector.enabled:
        return Seen((ok(RELAY, "none is wanted; events stay on disk"), *_gate_alone(patient)))
    state_dir = patient.settings.paths.state_dir
    if lock_holder(state_dir / LOCK_NAME) is None:
        return Seen((ok(RELAY, "the daemon's own, which is there while one runs"),))
    try:
        status = await request(patient.settings.paths.socket, "status", timeout=ANSWER_SECONDS)
    except UserError:
        return Seen((ok(RELAY, "the daemon's own; nothing of the daemon answers"),))
    url = place.read(state_dir)
    address = address_of(RelaySettings(RelayUrl(url))) if url is not None else None
    return _absent() if address is None else await _there(patient, address, status)


def _absent() -> Seen:
    said = "the daemon that runs has no relay of its own, so its events stay on disk"
    remedy = "see what it wrote to stderr; where it was started with other settings, start it again"
    return Seen((warning(RELAY, said, remedy),))


async def _there(patient: Patient, address: Address, status: JSONObject) -> Seen:
    control, observe = token_files(patient.settings.paths.state_dir)
    tokens: list[str] = []
    for file in (control, observe):
        try:
            tokens.append(file.read())
        except ConfigError as error:
            return Seen((told(RELAY, error, remedy=f"have a new one made: {file.renewal}"),))
    if trouble := await _refused(address, tokens[0], control):
        return Seen((trouble,))
    said = f"the daemon's own, on this machine at port {address.port}; {_holds(status)}"
    return Seen((ok(RELAY, said),), address, tokens[1])


async def _refused(address: Address, token: str, file: TokenFile) -> Check | None:
    """What keeps the token that may control from delivering; None where nothing does."""
    headers = {
        "AEP-Version": VERSION,
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/x-ndjson",
    }
    events = f"{address.http_base}/events"
    try:
        answer = await call("POST", events, headers=headers, content=b"", seconds=ANSWER_SECONDS)
    except UnreachableError as error:
        said = f"the daemon's own, at {address.url}, cannot be reached: {error}"
        return finding(RELAY, said, _START_AGAIN)
    if answer.status == _TAKEN:
        return None
    said = f"the daemon's own, at {address.url}, does not take its token (HTTP {answer.status})"
    return finding(RELAY, said, f"have a new one made: {file.renewal}")


def _holds(status: JSONObject) -> str:
    match status:
        case {"relay": {"own": {"held": {"events": int(events), "sessions": int(sessions)}}}}:
            return f"it holds {events} events of {sessions} sessions"
        case _:
            return "what it holds it does not say"


def _gate_alone(patient: Patient) -> list[Check]:
    if not patient.settings.gate.enabled:
        return []
    said = "gate.enabled is set, but without a relay nobody can answer: no call is held"
    return [warning(CONTROL, said, "set collector.enabled = true, or gate.enabled = false")]
