"""Settings: defaults, then config.toml, then the environment, then flags; errors name the key.

Rules:
- The classes below are the documentation of every key; `VARIABLES` says which variable sets which.
- A value that is wrong and a key that is not known end the start with one line that names the file
  and the key, or the variable (exit status 78). Nothing is guessed and nothing is half taken.
- `KIMIAEPD_*` and `AEP_*` variables that nobody knows are named in a warning, because they are
  mostly typing errors; they may also belong to another AEP program, so they are not an error.

It reads one file and touches nothing else. Where things are is `paths.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NewType, TypeAlias, get_args
from urllib.parse import urlsplit

import cattrs
from attrs import evolve, field, frozen
from cattrs.gen import make_dict_structure_fn

from kimiaepd import gate_rules, paths
from kimiaepd.errors import ConfigError
from kimiaepd.mapping.event import CATEGORIES, Capture
from kimiaepd.policy import Mode, Outcome, Policy, Rule, SessionPolicy

SyncPolicy: TypeAlias = Literal["always", "interval", "os"]
GateOptions: TypeAlias = Literal["two", "four"]
WhenUnreachable: TypeAlias = Literal["pass", "hold"]
WebMode: TypeAlias = Literal["off", "companion", "primary"]
HoldMs = NewType("HoldMs", int)
RelayUrl = NewType("RelayUrl", str)
AbsoluteFile = NewType("AbsoluteFile", str)
Program = NewType("Program", tuple[str, ...])
"""A program and its arguments; none at all where it is empty."""

Port = NewType("Port", int)

LARGEST_PORT = 65_535

LONGEST_HOLD_MS = 52_000
"""Kimi kills a hook after 60 s; the shim's deadline lies between."""


@frozen
class CaptureSettings:
    """What of a session's content may be written at all (AEP-0001 section 8.2).

    Attributes:
        default: the ceiling of every category.
        overrides: the ceiling of single categories, by name: attention, tool, run, ...
        redact_names: environment variables and keys whose values are secrets.
        pii: whether e-mail addresses and telephone numbers are redacted too.
    """

    default: Capture = Capture.METADATA
    overrides: dict[str, Capture] = field(factory=dict)
    redact_names: tuple[str, ...] = ()
    pii: bool = True

    def secret_values(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The values of those variables that are set."""
        return tuple(value for name in self.redact_names if (value := environ.get(name)))


@frozen
class LogSettings:
    """How the log is kept on disk.

    Attributes:
        sync: "always": on disk before the hook returns; "interval": within 200 ms or 64 events;
            "os": when the system likes.
        rotate_mib: the size at which a session's file is closed and a new one begun.
        keep_mib: closed files and ended sessions are removed, oldest first, above this.
        keep_days: and after this many days.
        min_free_mib: below this much free disk, events of little weight are counted, not written.
    """

    sync: SyncPolicy = "interval"
    rotate_mib: int = 64
    keep_mib: int = 2048
    keep_days: int = 30
    min_free_mib: int = 256


@frozen
class HookSettings:
    """Limits on what hooks may cost.

    Attributes:
        frame_mib: the largest hook payload; a larger one is counted and reported, not read.
        connections: hooks served at once; more are let go unserved.
    """

    frame_mib: int = 32
    connections: int = 256


@frozen
class GateSettings:
    """Tool calls that wait for a human (opt in).

    Attributes:
        enabled: whether the hooks of tool calls are registered so that they can be held.
        hold_ms: how long one is held at most. The shim waits 3 s longer and the vendor 60 s in all,
            so it is 52 000 at most.
        mode: "manual": every gated call is held; "auto": what no approving rule lets pass; "yolo":
            nothing. Rejecting rules apply in all three.
        tools: names or globs of the tools that are gated at all.
        options: what a person is offered: "two" (allow, deny), "four" (also for the session, and
            cancel).
        when_unreachable: "pass": a call that nobody could answer about is not held; "hold": it is.
        rules: rules for every session, as `[[gate.rules]]`: id, tool_name (a glob), decision
            ("approved", "rejected"), matcher {kind, value}, reason, created_at, created_by.
        sessions: `mode` and `rules` of single sessions, by their id.
        notify_command: a program and its arguments, run as a hold begins and as it ends with a JSON
            object on stdin (`notifier.py`); by its absolute path, or by a name found on PATH.
    """

    enabled: bool = False
    hold_ms: HoldMs = HoldMs(50_000)
    mode: Mode = field(default=Mode.MANUAL, converter=Mode)
    tools: tuple[str, ...] = ("*",)
    options: GateOptions = "two"
    when_unreachable: WhenUnreachable = "pass"
    rules: tuple[Rule, ...] = ()
    sessions: dict[str, SessionPolicy] = field(factory=dict)
    notify_command: Program = Program(())

    def __attrs_post_init__(self) -> None:
        ids = [rule.id for rule in self.every_rule()]
        if twice := sorted({one for one in ids if ids.count(one) > 1}):
            raise ValueError(f"two rules have the id {twice[0]}; give one of them another")

    @property
    def policy(self) -> Policy:
        """What the gate decides by."""
        return Policy(self.mode, self.tools, self.rules, self.sessions)

    def every_rule(self) -> tuple[Rule, ...]:
        """The rules for everything, then those of single sessions."""
        own = (rule for session in self.sessions.values() for rule in session.rules)
        return (*self.rules, *own)


@frozen
class InstructSettings:
    """What a person says to a session from elsewhere (opt in).

    Attributes:
        enabled: whether instructions are taken; they go with the session's next prompt.
    """

    enabled: bool = False


@frozen
class RelaySettings:
    """Where events are delivered to.

    Attributes:
        url: the relay, `wss://` or `https://` of any host, plain `ws://` or `http://` of this one.
        token_file: a file whose only line is the token; `AEP_TOKEN` wins over it. The token itself
            never stands in the settings: `relay_token.py` reads it.
        allow_plaintext: whether events and token may go unencrypted to another machine.
    """

    url: RelayUrl | None = None
    token_file: AbsoluteFile | None = None
    allow_plaintext: bool = False


@frozen
class CollectorSettings:
    """Our own relay, for whoever has no other: it runs where `relay.url` is not set.

    Attributes:
        enabled: whether it runs at all; without it events stay on disk.
        port: where it listens on this machine, or at the next free one; 0: any free one.
    """

    enabled: bool = True
    port: Port = Port(8398)


@frozen
class WebSettings:
    """The servers of `kimi web`: what is seen of them, and what may be done there.

    Attributes:
        mode: "companion": the stream is shown beside what hooks tell; "primary": it tells of runs,
            calls and asks itself, also where no hooks are registered; "off".
        control: whether approvals may be answered and turns aborted there (primary alone).
    """

    mode: WebMode = "companion"
    control: bool = False


@frozen
class Settings:
    """Everything that can be set, and what was odd about how it was set.

    Attributes:
        session_idle_hours: a session without a hook for this long leaves memory.
        stop_seconds: how long a stop waits for what is under way.
        warnings: one line each, for the log.
    """

    paths: paths.Paths
    capture: CaptureSettings = CaptureSettings()
    log: LogSettings = LogSettings()
    hooks: HookSettings = HookSettings()
    gate: GateSettings = GateSettings()
    instruct: InstructSettings = InstructSettings()
    relay: RelaySettings = RelaySettings()
    collector: CollectorSettings = CollectorSettings()
    web: WebSettings = WebSettings()
    session_idle_hours: int = 24
    stop_seconds: int = 5
    warnings: tuple[str, ...] = ()


VARIABLES = {
    "AEP_CAPTURE": "capture.default",
    "AEP_KIMI_WEB_MODE": "web.mode",
    "AEP_KIMI_WEB_CONTROL": "web.control",
    "AEP_CAPTURE_ATTENTION": "capture.overrides.attention",
    "AEP_REDACT_NAMES": "capture.redact_names",
    "AEP_KIMI_CONTROL": "gate.enabled",
    "AEP_KIMI_GATE_TOOLS": "gate.tools",
    "AEP_ATTENTION_TIMEOUT_MS": "gate.hold_ms",
    "AEP_INSTRUCT": "instruct.enabled",
    "AEP_RELAY_URL": "relay.url",
    "KIMIAEPD_COLLECTOR": "collector.enabled",
    "KIMIAEPD_COLLECTOR_PORT": "collector.port",
    **{variable: setting for setting, variable in paths.VARIABLES.items()},
}
"""Each variable and the key that it sets."""

MOST = 1_000_000
"""The largest number that any setting may be: more of anything here is a typing error."""

_OWN_PREFIXES = ("KIMIAEPD_", "AEP_")
_ATTENTION_DEFAULT = {"attention": Capture.REDACTED}

_Tree: TypeAlias = "dict[str, object]"


def load(environ: Mapping[str, str], *, kimi_home: Path | None = None) -> Settings:
    """All settings.

    Args:
        environ: the environment.
        kimi_home: a flag's word on the vendor's home; it wins over everything.

    Raises:
        ConfigError: a file, a key or a variable is not as it must be; the line names it.
    """
    file = paths.config_file(environ)
    if environ.get("KIMIAEPD_CONFIG") and not file.is_file():
        raise ConfigError(f"KIMIAEPD_CONFIG: {file} is no file; make it, or unset the variable")
    tree = _read(file)
    if "paths" in tree:
        raise ConfigError(f"{file}: unknown key paths")
    origin = {key: f"{file}: {key}" for key in _leaves(tree)}
    for variable, key in VARIABLES.items():
        if value := environ.get(variable):
            _put(tree, key, _from_text(key, value), file)
            origin[key] = variable
    places = {
        key: paths.Said(_text(found, origin[key]), origin[key])
        for key in paths.VARIABLES
        if (found := _take(tree, key)) is not None
    }
    if kimi_home:
        environ = {**environ, "KIMI_CODE_HOME": str(kimi_home.absolute())}
    settings = _structure(tree, origin, file, paths.resolve(environ, places))
    return evolve(
        settings,
        capture=evolve(
            settings.capture, overrides={**_ATTENTION_DEFAULT, **settings.capture.overrides}
        ),
        warnings=_unknown_variables(environ),
    )


def _read(file: Path) -> _Tree:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:  # also a number or a nesting beyond all reason
        raise ConfigError(f"{file}: is not TOML: {error}") from None


def _leaves(tree: Mapping[str, object], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key, value in tree.items():
        keys += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return keys


def _put(tree: _Tree, key: str, value: object, file: Path) -> None:
    *tables, last = key.split(".")
    for name in tables:
        inner = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{file}: {name}: must be a table")
        tree = inner
    tree[last] = value


def _take(tree: _Tree, key: str) -> object:
    *tables, last = key.split(".")
    for name in tables:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return None
        tree = inner
    return tree.pop(last, None)


def _text(value: object, origin: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise ConfigError(f"{origin}: must be a path in quotes")


def _from_text(key: str, text: str) -> object:
    """What a variable says, as the file would say it; a wrong text stays one, and is refused."""
    if key in ("gate.enabled", "instruct.enabled", "collector.enabled", "web.control"):
        return {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)
    if key in ("gate.hold_ms", "collector.port") and text.isascii() and text.isdigit():
        return int(text)
    return text


def _unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    known = {*VARIABLES, "KIMIAEPD_CONFIG", "AEP_TOKEN"}
    return tuple(
        f"{name} is set, but this version knows no such variable"
        for name in sorted(environ)
        if name.startswith(_OWN_PREFIXES) and name not in known
    )


# --- from trees to types ---------------------------------------------------------------------


def _integer(value: object, _: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST:
        return value
    raise ValueError(f"must be a whole number from 1 to {MOST}")


def _boolean(value: object, _: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


def _hold_ms(value: object, kind: object) -> HoldMs:
    if (number := _integer(value, kind)) > LONGEST_HOLD_MS:
        raise ValueError(f"must be {LONGEST_HOLD_MS} at most, because Kimi ends a hook after 60 s")
    return HoldMs(number)


def _port(value: object, _: object) -> Port:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_PORT:
        return Port(value)
    raise ValueError(f"must be a port from 1 to {LARGEST_PORT}, or 0 for any that is free")


def _relay_url(value: object, _: object) -> RelayUrl:
    wrong = ValueError("must be a URL such as wss://relay.example, without a query or credentials")
    try:
        url = urlsplit(value if isinstance(value, str) else "")
        has_host = bool((url.hostname or "").encode("idna")) and url.port != 0
    except ValueError:  # brackets that do not match, a port that is no number, a name with `..`
        raise wrong from None
    if url.scheme not in ("ws", "wss", "http", "https") or not has_host:
        raise wrong
    # A token in a URL ends up in logs, and in `ps`; a request line takes ASCII without blanks.
    is_plain = all("!" <= letter <= "~" for letter in url.geturl())
    if url.query or url.fragment or "@" in url.netloc or not is_plain:
        raise wrong
    return RelayUrl(url.geturl().rstrip("/"))


def _absolute_file(value: object, _: object) -> AbsoluteFile:
    if isinstance(value, str) and value.startswith("/") and "\0" not in value:
        return AbsoluteFile(value)
    raise ValueError("must be an absolute path")


def _program(value: object, _: object) -> Program:
    words = [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
    name = words[0] if words else ""
    # A path that is not absolute would be looked for wherever the daemon happens to run.
    is_found = name.startswith("/") or (bool(name) and "/" not in name)
    if value == [] or (value == words and is_found and not any("\0" in word for word in words)):
        return Program(tuple(words))
    raise ValueError("must be a list: a program (absolute, or found on PATH), then its arguments")


def _capture(value: object, _: object) -> Capture:
    words = [level.word for level in Capture]
    if isinstance(value, str) and value in words:
        return Capture(words.index(value))
    raise ValueError(f"must be one of {', '.join(words)}")


def _names(value: object, _: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return tuple(name.strip() for name in names if name.strip())
    raise ValueError("must be a list of names")


def _literal(value: object, kind: object) -> object:
    words = get_args(kind)
    if isinstance(value, str) and value in words:
        return value
    raise ValueError(f"must be one of {', '.join(words)}")


def _table(value: object, _: object) -> dict[str, Capture]:
    if not isinstance(value, dict):
        raise ValueError("must be a table of category = level")  # noqa: TRY004 - a person's error
    if strangers := sorted(str(key) for key in value if key not in CATEGORIES):
        raise ValueError(f"unknown category {', '.join(strangers)}")
    return {str(key): _capture(level, None) for key, level in value.items()}


_WORDS = (SyncPolicy, GateOptions, WhenUnreachable, WebMode, Outcome)

_CONVERTER = cattrs.Converter(forbid_extra_keys=True)
_CONVERTER.register_structure_hook(int, _integer)
_CONVERTER.register_structure_hook(bool, _boolean)
_CONVERTER.register_structure_hook(Capture, _capture)
_CONVERTER.register_structure_hook_func(lambda kind: kind is HoldMs, _hold_ms)
_CONVERTER.register_structure_hook_func(lambda kind: kind is RelayUrl, _relay_url)
_CONVERTER.register_structure_hook_func(lambda kind: kind is Port, _port)
_CONVERTER.register_structure_hook_func(lambda kind: kind is AbsoluteFile, _absolute_file)
_CONVERTER.register_structure_hook_func(lambda kind: kind is Program, _program)
_CONVERTER.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _names)
_CONVERTER.register_structure_hook_func(lambda kind: kind in _WORDS, _literal)
_CONVERTER.register_structure_hook_func(lambda kind: kind == dict[str, Capture], _table)
gate_rules.register(_CONVERTER)
_CONVERTER.register_structure_hook(paths.Paths, lambda value, _: value)
_CONVERTER.register_structure_hook(
    Settings,
    make_dict_structure_fn(
        Settings,
        _CONVERTER,
        _cattrs_forbid_extra_keys=True,
        warnings=cattrs.override(omit=True),
    ),
)


def _structure(tree: _Tree, origin: Mapping[str, str], file: Path, places: paths.Paths) -> Settings:
    try:
        return _CONVERTER.structure({**tree, "paths": places}, Settings)
    except cattrs.BaseValidationError as error:
        complaint = cattrs.transform_error(error, path="", format_exception=_words)[0]
    words, _, key = complaint.rpartition(" @ ")
    key = key.lstrip(".")
    raise ConfigError(f"{origin.get(key) or _of_file(file, key)}: {words}")


def _of_file(file: Path, key: str) -> str:
    return f"{file}: {key}" if key else f"{file}"


def _words(error: BaseException, _: type | None) -> str:
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return f"unknown key {', '.join(sorted(error.extra_fields))}"
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, KeyError):
        return "is missing"
    return "must be a table"
