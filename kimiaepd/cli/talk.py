"""`kimiaepd ping` and `kimiaepd status`: what a running daemon says of itself."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import click
import trio

from kimiaepd import settings as settings_room
from kimiaepd.hook_socket.client import request
from kimiaepd.hook_socket.wire import Kind
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSON, JSONObject

_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0.01, max=60),
    default=2.0,
    show_default=True,
    help="Seconds to wait for an answer.",
)


@click.command()
@_TIMEOUT
def ping(timeout: float) -> None:
    """Ask the daemon whether it answers.

    Exit status 0: it does. See `kimiaepd status --help` for the others.
    """
    answer = _ask("ping", timeout)
    click.echo(f"pid {answer.get('pid')}, version {answer.get('version')}, at {_socket()}")


@click.command()
@_TIMEOUT
@click.option("--json", "as_json", is_flag=True, help="The whole status as one JSON object.")
def status(timeout: float, as_json: bool) -> None:
    """Show what the daemon has seen and where it writes.

    Exit status 0: it runs and answers; 1: no daemon runs; 3: one is there but does not answer.
    """
    answer = _ask("status", timeout)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    for name, text in [*_lines(answer).items(), *_sessions(answer)]:
        click.echo(f"{name:<9}{text}")


def _ask(kind: Kind, timeout: float) -> JSONObject:
    return trio.run(partial(request, _socket(), kind, timeout=timeout))


def _socket() -> Path:
    return settings_room.load(os.environ).paths.socket


def _lines(answer: JSONObject) -> dict[str, str]:
    said = answer.get
    return {
        "daemon": f"{said('version')}, pid {said('pid')}, up {said('uptime_s')} s",
        "socket": f"{said('socket')}",
        "log": f"{said('log_dir')} (sync: {said('sync')}, epoch {said('epoch')})",
        "capture": _pairs(said("capture")),
        "hooks": f"{said('hooks')} taken in, {said('duplicates')} came twice",
        "bad": _pairs(said("not_understood")),
        "events": _pairs(said("events")),
        "disk": _pairs(said("log")),
        "clients": _pairs(said("connections")),
        "relay": _relay(said("relay")),
        "gate": _gate(_object(said("gate"))),
        "notifier": _notifier(_object(said("notifier"))),
        "steering": _steering(said("instruct")),
        "web": web_line(answer),
    }


def _relay(value: JSON) -> str:
    """The link and how far behind it is; the last error where something is wrong."""
    if not isinstance(value, dict):
        return "none; events stay on disk"
    said = value.get
    own = _object(said("own"))
    parts = [
        f"{said('url')}{' (our own)' if own else ''} {said('link')} for {said('for_s')} s",
        f"{said('delivered')} delivered, {said('lag_events')} to go ({said('lag_bytes')} bytes)",
    ]
    parts += [f"{said(name)} {name}" for name in ("rejected", "lost", "crashes") if said(name)]
    if own:
        held = _object(own.get("held"))
        parts.append(f"holds {held.get('events')} events of {held.get('sessions')} sessions")
        parts.append(f"{own.get('connections')} connections")
        if crashes := own.get("crashes"):
            parts.append(f"{crashes} crashes of its own")
    if error := said("last_error"):
        parts.append(f"last error: {tame(str(error))}")
    return ", ".join(parts)


def _gate(gate: JSONObject) -> str:
    """Whether calls are held now, and what became of them so far."""
    if not gate.get("enabled"):
        return "off"
    parts = [f"{gate.get('mode')}, {gate.get('held')} held now"]
    if not gate.get("controlled"):
        parts.append("there is no relay with a token, so no call is held")
    elif not gate.get("answerable"):
        parts.append("nobody could answer, so no call is held")
    if down := gate.get("stood_down"):
        parts.append(f"stood down in {down} sessions, where nobody answered")
    if calls := _object(gate.get("calls")):
        parts.append(f"so far: {_pairs(calls)}")
    return ", ".join(parts)


def _notifier(notifier: JSONObject) -> str:
    """How many programs were run for holds, and what went wrong with how many."""
    if not notifier.get("enabled"):
        return "off"
    parts = [f"{notifier.get('told')} told"]
    parts += [f"{times} {tame(how)}" for how, times in _object(notifier.get("failed")).items()]
    parts += [
        f"{notifier.get(name)} {name}" for name in ("dropped", "waiting") if notifier.get(name)
    ]
    return ", ".join(parts)


def _steering(value: JSON) -> str:
    """What became of the instructions of this daemon."""
    if not isinstance(value, dict):
        return "off"
    said = value.get
    parts = [f"{said('waiting')} waiting, {said('queued')} queued, {said('delivered')} delivered"]
    if kept := said("kept"):
        parts.append(f"{kept} went back, as their reply did not arrive")
    return ", ".join(parts)


def web_line(answer: JSONObject) -> str:
    """The servers of `kimi web`: who is watched, and what went wrong."""
    bridge = _object(answer.get("web"))
    if not bridge:
        return "off"
    servers = bridge.get("servers")
    listed = [one for one in servers if isinstance(one, dict)] if isinstance(servers, list) else []
    parts = [f"{bridge.get('mode')}{', with control' if bridge.get('control') else ''}"]
    if error := bridge.get("last_error"):
        parts.append(f"last error: {tame(str(error))}")
    return "; ".join((*parts, *(_server(one) for one in listed or [{}])))


def _server(server: JSONObject) -> str:
    if not server:
        return "no server runs"
    said = server.get
    parts = [f"pid {said('pid')} at {said('url')} {said('link')} for {said('for_s')} s"]
    parts.append(f"{said('sessions')} sessions")
    parts += [f"{said(name)} {name}" for name in ("gaps", "odd", "crashes") if said(name)]
    if error := said("last_error"):
        parts.append(f"last error: {error}")
    return tame(", ".join(parts))


def _sessions(answer: JSONObject) -> list[tuple[str, str]]:
    sessions = answer.get("sessions")
    found = sessions if isinstance(sessions, list) else []
    return [("session", _session(one)) for one in found if isinstance(one, dict)]


def _session(one: JSONObject) -> str:
    words = [word for word in ("ended", "stale") if one.get(word)]
    if one.get("run"):
        words.append("running")
    name = tame(str(one.get("session")))
    return (
        f"{name}: {', '.join(words) or 'idle'}, {one.get('calls')} open calls, "
        f"{one.get('asks')} open asks, quiet for {one.get('quiet_s')} s"
    )


def _object(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}


def _pairs(value: JSON) -> str:
    return ", ".join(f"{key} {item}" for key, item in _object(value).items()) or "none"
