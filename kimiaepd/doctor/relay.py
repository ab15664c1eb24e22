"""The relay: reached, AEP, authorised; whether an answer could come back; and its clock.

Rules:
- What is said is what was proven. The discovery document over HTTP proves that the relay is there
  and speaks AEP; an answered hello over its WebSocket, that events could be delivered; one that is
  refused without the token, that the token is what opens it.
- The first thing that is wrong is the finding; what depends on it is not looked at.
- The token goes where a daemon would send it (`relay.address`): never after a redirect, and never
  to a place that the relay names.

Nothing is delivered and nothing subscribed to. Finding our own relay is `own_relay.py`'s business.
"""

from __future__ import annotations

import datetime as dt
import email.utils

from kimiaepd.doctor import own_relay
from kimiaepd.doctor.check import Check, Patient, finding, ok, warning
from kimiaepd.doctor.hello import NoHelloError, exchange
from kimiaepd.doctor.own_relay import ANSWER_SECONDS
from kimiaepd.doctor.told import told
from kimiaepd.errors import ConfigError
from kimiaepd.http_call import Answer, UnreachableError, get
from kimiaepd.log_lines import tame
from kimiaepd.mapping.event import VERSION
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.relay.address import Address, address_of
from kimiaepd.relay_token import relay_token

RELAY, CONTROL, CLOCK = own_relay.RELAY, own_relay.CONTROL, "clock"

APART_SECONDS = 60.0
"""How far our clock and the relay's may be apart: deadlines of asks are told by the clock."""

_OK = 200
_NOT_AUTHORISED = (401, 403)
_UPGRADE = 426
_REDIRECTS = range(300, 400)
_BROKEN = range(500, 600)

_RIGHT_URL = "set relay.url to the relay's base URL, as its own documentation gives it"
_GIVE_TOKEN = "set relay.token_file (or AEP_TOKEN) to the token that the relay has for this machine"  # noqa: S105 - it says how


async def examine(patient: Patient, now: dt.datetime) -> tuple[Check, ...]:
    """Look at the relay that is configured, else at our own; mostly it takes no second.

    Three quarters of a minute are the most.

    Args:
        patient: whose relay it is.
        now: the time, with its zone.
    """
    settings = patient.settings.relay
    try:
        address = address_of(settings)
        if address is None:
            own = await own_relay.look(patient)
            further = await _ask(patient, own.address, own.token, now) if own.address else ()
            return (*own.checks, *further)
        token = relay_token(settings, patient.environ)
    except ConfigError as error:
        return (told(RELAY, error, remedy=_GIVE_TOKEN),)
    return await _ask(patient, address, token, now)


async def _ask(
    patient: Patient, address: Address, token: str | None, now: dt.datetime
) -> tuple[Check, ...]:
    url = address.url
    try:
        answer = await _discover(address, token)
    except UnreachableError as error:
        said = f"{url} cannot be reached: {error}"
        return (finding(RELAY, said, "see that the relay runs, and that relay.url is its"),)
    document = answer.json() or {}
    trouble = _refusal(url, answer, token) or _not_ours(url, document)
    checks = [trouble] if trouble else await _greet(patient, address, document, token)
    return (*checks, *_clock(url, answer, now))


# --- discovery, AEP-0003 section 3.4 -------------------------------------------------------------


async def _discover(address: Address, token: str | None) -> Answer:
    headers = {"AEP-Version": VERSION}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return await get(f"{address.http_base}/events", headers=headers, seconds=ANSWER_SECONDS)


def _refusal(url: str, answer: Answer, token: str | None) -> Check | None:
    """What is wrong with an answer by its status alone; None where nothing is."""
    status = answer.status
    if status in _NOT_AUTHORISED:
        return _unauthorised(url, f"HTTP {status}", token)
    if status in _REDIRECTS:
        to = tame(answer.headers.get("location", "somewhere else"))
        said = f"{url} sends its callers to {to} (HTTP {status}); a token is never sent after it"
        return finding(RELAY, said, "set relay.url to the place itself")
    if status == _UPGRADE:
        return _other_version(url, (answer.json() or {}).get("versions"))
    if status in _BROKEN:
        said = f"{url} is broken, or what stands before it: HTTP {status}"
        return finding(RELAY, said, "see the relay's own log")
    if status != _OK:
        said = f"{url}/events is no AEP endpoint: HTTP {status}"
        return finding(RELAY, said, _RIGHT_URL)
    return None


def _not_ours(url: str, document: JSONObject) -> Check | None:
    """What is wrong with a discovery document; None where nothing is."""
    versions = document.get("aep")
    if not isinstance(versions, list):
        said = f"{url}/events is no AEP endpoint: it gives no discovery document"
        return finding(RELAY, said, _RIGHT_URL)
    return None if VERSION in versions else _other_version(url, versions)


def _other_version(url: str, versions: JSON) -> Check:
    said = f"{url} speaks AEP {_listed(versions)}, and this version of kimiaepd {VERSION} alone"
    return finding(RELAY, said, "upgrade the older of the two")


def _unauthorised(url: str, what: str, token: str | None) -> Check:
    if token:
        said = f"{url} does not take the token ({what})"
        return finding(RELAY, said, _GIVE_TOKEN)
    return finding(RELAY, f"{url} wants a token ({what}), and none is set", _GIVE_TOKEN)


# --- the socket, AEP-0003 sections 3.5 and 4 -----------------------------------------------------


async def _greet(
    patient: Patient, address: Address, document: JSONObject, token: str | None
) -> list[Check]:
    url = address.url
    try:
        hello = await exchange(address, token)
    except NoHelloError as error:
        return [_no_hello(url, error, document, token)]
    versions = hello.get("versions")
    if not isinstance(versions, list) or VERSION not in versions:
        return [_other_version(url, versions)]
    found = hello.get("capabilities")
    capabilities = found if isinstance(found, dict) else {}
    sent = "with the token" if token else "without a token"
    line = f"{url} answers our hello, sent {sent}: AEP {_listed(versions)}"
    return [
        ok(RELAY, f"{line}; its capabilities: {_listed([*capabilities])}"),
        await _control(patient, address, capabilities.get("control"), token),
    ]


def _no_hello(url: str, error: NoHelloError, document: JSONObject, token: str | None) -> Check:
    if error.refused:
        return _unauthorised(url, f"at its WebSocket: {error}", token)
    endpoints = document.get("endpoints")
    if not isinstance(endpoints, dict) or "socket" not in endpoints:
        said = f"{url} has no WebSocket endpoint, and events are delivered over one"
        return finding(RELAY, said, _RIGHT_URL)
    said = f"{url} answers over HTTP, but gives no hello over its WebSocket: {error}"
    return finding(RELAY, said, "see what stands between, such as a proxy without WebSockets")


async def _control(patient: Patient, address: Address, control: JSON, token: str | None) -> Check:
    """Whether an answer could come back (AEP-0004 section 4.1: never without authentication)."""
    if not token:
        said = "no token is set, and no relay takes an answer or another command without"
        return warning(CONTROL, said, _GIVE_TOKEN)
    if await _lets_everybody_in(address):
        said = f"{address.url} asks nobody for a token, and such a relay must refuse commands"
        return warning(CONTROL, said, "start the relay with a token (AEP_TOKEN), the one set here")
    accepts = control.get("accepts") if isinstance(control, dict) else None
    gate = "on" if patient.settings.gate.enabled else "off, so no call is held"
    return ok(
        CONTROL,
        f"possible: the relay takes the token, and nobody without it; it says to accept: "
        f"{_listed(accepts)}; gate.enabled is {gate}",
    )


async def _lets_everybody_in(address: Address) -> bool:
    try:
        await exchange(address, None)
    except NoHelloError:
        return False
    return True


def _listed(values: JSON) -> str:
    found = [str(value) for value in values] if isinstance(values, list) else []
    return tame(", ".join(found)) or "nothing"


# --- the clock -----------------------------------------------------------------------------------


def _clock(url: str, answer: Answer, now: dt.datetime) -> list[Check]:
    try:
        theirs = email.utils.parsedate_to_datetime(answer.headers.get("date", ""))
        if theirs.tzinfo is None:  # "-0000": UTC, from who knows no better
            theirs = theirs.replace(tzinfo=dt.UTC)
        apart = (theirs - now).total_seconds()
    except (ValueError, OverflowError):
        return []
    if abs(apart) <= APART_SECONDS:
        return []
    side = "ahead of" if apart > 0 else "behind"
    said = f"the clock of {url} is {abs(apart):.0f} s {side} this machine's"
    return [
        warning(CLOCK, said, "set the one that is wrong; with systemd: timedatectl set-ntp true")
    ]
