"""Settings: each layer wins over the one before it, and an error names its key or variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimiaepd import settings
from kimiaepd.errors import EXIT_CONFIG, ConfigError
from kimiaepd.mapping.event import Capture

RULE = '[[gate.rules]]\nid = "a"\ntool_name = "*"\ndecision = "rejected"\n'


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config.toml").touch()
    return {"HOME": str(tmp_path), "KIMIAEPD_CONFIG": str(tmp_path / "config.toml")}


def config(environ: dict[str, str], text: str) -> None:
    Path(environ["KIMIAEPD_CONFIG"]).write_text(text, encoding="utf-8")


def test_without_a_file_the_defaults_hold(environ: dict[str, str]) -> None:
    found = settings.load(environ)
    assert found.capture.default is Capture.METADATA
    assert found.capture.overrides == {"attention": Capture.REDACTED}
    assert found.log.sync == "interval"
    assert found.warnings == ()


def test_the_environment_wins_over_the_file_and_flags_over_both(
    environ: dict[str, str], tmp_path: Path
) -> None:
    config(
        environ,
        f'kimi_home = "{tmp_path}/file"\n[capture]\ndefault = "full"\n[log]\ndir = "/var/aep"\n',
    )
    assert settings.load(environ).capture.default is Capture.FULL
    assert settings.load(environ).paths.log_dir == Path("/var/aep/kimi-code")
    environ |= {"AEP_CAPTURE": "redacted", "AEP_LOG_DIR": "/elsewhere", "KIMI_CODE_HOME": "/env"}
    assert settings.load(environ).capture.default is Capture.REDACTED
    assert settings.load(environ).paths.log_dir == Path("/elsewhere/kimi-code")
    assert settings.load(environ).paths.kimi_home == Path("/env")
    assert settings.load(environ, kimi_home=Path("/flag")).paths.kimi_home == Path("/flag")


def test_capture_overrides_add_to_the_standards_default(environ: dict[str, str]) -> None:
    config(environ, '[capture.overrides]\ntool = "full"\n')
    assert settings.load(environ).capture.overrides == {
        "attention": Capture.REDACTED,
        "tool": Capture.FULL,
    }
    environ["AEP_CAPTURE_ATTENTION"] = "none"
    assert settings.load(environ).capture.overrides["attention"] is Capture.NONE


def test_names_come_from_a_list_or_from_commas(environ: dict[str, str]) -> None:
    config(environ, '[capture]\nredact_names = ["A", "B"]\n')
    assert settings.load(environ).capture.redact_names == ("A", "B")
    environ["AEP_REDACT_NAMES"] = "C, D,"
    assert settings.load(environ).capture.redact_names == ("C", "D")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1", "unknown key x"),
        ('[gate]\nmode = "x"', "gate.mode: must be one of manual, auto, yolo"),
        ('[gate]\noptions = "3"', "gate.options: must be one of two, four"),
        ("[gate]\nwhen_unreachable = 1", "gate.when_unreachable: must be one of pass, hold"),
        ("[gate]\ntools = 1", "gate.tools: must be a list of names"),
        ('[gate]\nnotify_command = "x"', "gate.notify_command: must be a list: a program"),
        ('[gate]\nnotify_command = ["x", 1]', "gate.notify_command: must be a list: a program"),
        ('[gate]\nnotify_command = ["bin/x"]', "gate.notify_command: must be a list: a program"),
        ('[gate]\nnotify_command = ["", "x"]', "gate.notify_command: must be a list: a program"),
        ('[gate]\nnotify_command = ["/x", "a\\u0000"]', "gate.notify_command: must be a list"),
        ("[instruct]\nenabled = 1", "instruct.enabled: must be true or false"),
        ("gate.rules = 3", "gate.rules: must be tables, each under [[gate.rules]]"),
        ("gate.rules = [3]", "gate.rules[0]: must be a table"),
        ('[[gate.rules]]\nid = "a"', "gate.rules[0].tool_name: is missing"),
        (f"{RULE}x = 1", "gate.rules[0]: unknown key x"),
        (f"{RULE}reason = 1", "gate.rules[0].reason: must be text in quotes"),
        (f'{RULE}matcher = "x"', "gate.rules[0].matcher: must be a table, such as"),
        (f'{RULE}matcher = {{kind = "x"}}', "gate.rules[0].matcher: kind must be one of always"),
        (f'{RULE}matcher = {{kinds = "x"}}', "gate.rules[0].matcher: unknown key kinds"),
        (f'{RULE}matcher = {{kind = "command_prefix", value = "a;b"}}', "must be plain words"),
        (f'{RULE}matcher = {{kind = "path_glob", value = "~/x"}}', "without ~"),
        (f'{RULE}matcher = {{kind = "exact_input", value = "{{"}}', "must be the input as JSON"),
        (f'{RULE}matcher = {{kind = "exact_input"}}', "exact_input needs a value"),
        (f'{RULE}matcher = {{kind = "path_glob", value = 1}}', "value must be text in quotes"),
        (RULE + RULE, "gate: two rules have the id a"),
        (RULE.replace("gate.", "gate.sessions.s.") + RULE, "gate: two rules have the id a"),
        (RULE.replace('"*"', '""'), "gate.rules[0]: tool_name must name a tool"),
        (RULE.replace('"a"', '"a b"'), "gate.rules[0]: id must be"),
        (RULE.replace("rejected", "no"), "gate.rules[0].decision: must be one of approved"),
        ("gate.sessions = 3", "gate.sessions: must be tables by session"),
        ('[gate.sessions.s]\nmode = "x"', "gate.sessions['s'].mode: must be one of manual"),
        ("[gate.sessions.s]\nx = 1", "gate.sessions['s']: unknown key x"),
        ("[collector]\nenabled = 1", "collector.enabled: must be true or false"),
        ("[collector]\nport = 65536", "collector.port: must be"),
        ("[collector]\nport = -1", "collector.port: must be"),
        ("[collector]\nport = true", "collector.port: must be"),
        ('[collector]\nport = "8398"', "collector.port: must be"),
        ("[collector]\nhost = 1", "collector: unknown key host"),
        ("collector = 3", "collector: must be a table"),
        ("[log]\nfoo = 2", "log: unknown key foo"),
        ("[log]\nkeep_days = 0", "log.keep_days: must be a whole number from 1"),
        ("[log]\nkeep_days = true", "log.keep_days: must be a whole number from 1"),
        ('[log]\nsync = "x"', "log.sync: must be one of always, interval, os"),
        ("log = 3", "log: must be a table"),
        ("capture = 1", "capture: must be a table"),
        ('[capture]\ndefault = "x"', "capture.default: must be one of none, metadata"),
        ("[capture]\npii = 1", "capture.pii: must be true or false"),
        ("[capture]\nredact_names = [1]", "capture.redact_names: must be a list of names"),
        ('[capture.overrides]\nattenton = "full"', "capture.overrides: unknown category attenton"),
        ('[capture.overrides]\ntool = "bad"', "capture.overrides: must be one of"),
        ("socket = 3", "socket: must be a path in quotes"),
        ('socket = "here"', "socket: 'here' is not an absolute path"),
        (f'socket = "/{"x" * 110}"', "socket: the socket path is 111 bytes long"),
        ("a =", "is not TOML"),
        (f"stop_seconds = {'9' * 5001}", "is not TOML"),
        (f"stop_seconds = {'9' * 400}", "stop_seconds: must be a whole number from 1"),
        ("x = " + "[" * 5000, "is not TOML"),
        ('state_dir = "/a\\u0000b"', "a path cannot have a NUL"),
        ("paths = 1", "unknown key paths"),
        ("warnings = 1", "unknown key warnings"),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_and_key(
    environ: dict[str, str], text: str, line: str
) -> None:
    config(environ, text)
    with pytest.raises(ConfigError) as caught:
        settings.load(environ)
    assert str(caught.value).startswith(environ["KIMIAEPD_CONFIG"])
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.status == EXIT_CONFIG


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AEP_CAPTURE", "nope"), ("KIMIAEPD_SOCKET", "relative"), ("AEP_LOG_DIR", "relative")],
)
def test_a_bad_variable_is_named(environ: dict[str, str], variable: str, value: str) -> None:
    environ[variable] = value
    with pytest.raises(ConfigError, match=f"^{variable}: "):
        settings.load(environ)


def test_a_file_that_cannot_be_read_is_named(environ: dict[str, str]) -> None:
    file = Path(environ["KIMIAEPD_CONFIG"])
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        settings.load(environ)
    file.unlink()
    for _ in ("missing", "a directory"):
        with pytest.raises(ConfigError, match=f"^KIMIAEPD_CONFIG: {file} is no file"):
            settings.load(environ)
        file.mkdir(exist_ok=True)


def test_variables_that_nobody_knows_are_named_in_a_warning(environ: dict[str, str]) -> None:
    environ |= {"AEP_CAPTUER": "full", "KIMIAEPD_X": "1", "KIMI_CODE_HOME": "/k", "PATH": "/bin"}
    assert [line.split()[0] for line in settings.load(environ).warnings] == [
        "AEP_CAPTUER",
        "KIMIAEPD_X",
    ]


def test_a_gate_is_switched_on_by_the_file_or_by_the_standards_variable(
    environ: dict[str, str],
) -> None:
    assert settings.load(environ).gate == settings.GateSettings(enabled=False)
    config(environ, "[gate]\nenabled = true\nhold_ms = 20_000\n")
    assert settings.load(environ).gate.enabled
    assert settings.load(environ).gate.hold_ms == 20_000
    environ |= {"AEP_KIMI_CONTROL": "0", "AEP_ATTENTION_TIMEOUT_MS": "52000"}
    assert not settings.load(environ).gate.enabled
    assert settings.load(environ).gate.hold_ms == 52_000
    environ["AEP_KIMI_CONTROL"] = "1"
    assert settings.load(environ).gate.enabled


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("AEP_KIMI_CONTROL", "on", "AEP_KIMI_CONTROL: must be true or false"),
        ("AEP_ATTENTION_TIMEOUT_MS", "52001", "AEP_ATTENTION_TIMEOUT_MS: must be 52000 at most"),
        ("AEP_ATTENTION_TIMEOUT_MS", "5e3", "AEP_ATTENTION_TIMEOUT_MS: must be a whole number"),
        ("KIMIAEPD_COLLECTOR", "on", "KIMIAEPD_COLLECTOR: must be true or false"),
        ("KIMIAEPD_COLLECTOR_PORT", "65536", "KIMIAEPD_COLLECTOR_PORT: must be"),
        ("KIMIAEPD_COLLECTOR_PORT", "-1", "KIMIAEPD_COLLECTOR_PORT: must be"),
        ("KIMIAEPD_COLLECTOR_PORT", "83.98", "KIMIAEPD_COLLECTOR_PORT: must be"),
        ("AEP_RELAY_URL", "relay.example", "AEP_RELAY_URL: must be a URL such as"),
        ("AEP_RELAY_URL", "wss://me:secret@relay.example", "AEP_RELAY_URL: must be a URL such as"),
        ("AEP_RELAY_URL", "https://relay.example/?token=secret", "without a query or credentials"),
        ("AEP_RELAY_URL", "wss://relay..example", "AEP_RELAY_URL: must be a URL such as"),
        ("AEP_RELAY_URL", f"wss://{'x' * 64}.example", "AEP_RELAY_URL: must be a URL such as"),
        ("AEP_RELAY_URL", "wss://b\u00fccher.example", "AEP_RELAY_URL: must be a URL such as"),
        ("AEP_RELAY_URL", "wss://relay.example/\u00e9", "AEP_RELAY_URL: must be a URL such as"),
        ("AEP_RELAY_URL", "wss://relay.example/a b", "AEP_RELAY_URL: must be a URL such as"),
        ("AEP_RELAY_URL", "http://[::1", "AEP_RELAY_URL: must be a URL such as"),
    ],
)
def test_a_variable_with_a_wrong_value_is_named_and_its_secret_is_not(
    environ: dict[str, str], variable: str, value: str, line: str
) -> None:
    environ[variable] = value
    with pytest.raises(ConfigError) as refused:
        settings.load(environ)
    assert line in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_relay_is_a_base_url_and_its_token_a_file(environ: dict[str, str]) -> None:
    config(environ, '[relay]\nurl = "wss://relay.example/aep/"\ntoken_file = "/run/token"\n')
    found = settings.load(environ).relay
    assert (found.url, found.token_file) == ("wss://relay.example/aep", "/run/token")
    config(environ, '[relay]\ntoken = "secret"\n')
    with pytest.raises(ConfigError, match=r"unknown key token"):
        settings.load(environ)
    config(environ, '[relay]\ntoken_file = "token"\n')
    with pytest.raises(ConfigError, match=r"relay\.token_file: must be an absolute path"):
        settings.load(environ)


def test_our_own_relay_runs_unless_the_file_or_a_variable_says_no(
    environ: dict[str, str],
) -> None:
    found = settings.load(environ).collector
    assert (found.enabled, found.port) == (True, 8398)
    config(environ, "[collector]\nenabled = false\nport = 0\n")
    found = settings.load(environ).collector
    assert (found.enabled, found.port) == (False, 0)
    environ |= {"KIMIAEPD_COLLECTOR": "true", "KIMIAEPD_COLLECTOR_PORT": "65535"}
    found = settings.load(environ).collector
    assert (found.enabled, found.port) == (True, 65_535)
    assert settings.load(environ).warnings == ()


def test_the_gate_s_terms_come_from_the_file_and_its_tools_from_the_environment_first(
    environ: dict[str, str],
) -> None:
    config(
        environ,
        '[gate]\nmode = "auto"\ntools = ["Bash"]\noptions = "four"\nwhen_unreachable = "hold"\n'
        '[gate.sessions.s]\nmode = "yolo"\n' + RULE,
    )
    gate = settings.load(environ).gate
    assert (gate.mode, gate.tools, gate.options, gate.when_unreachable) == (
        "auto", ("Bash",), "four", "hold",
    )  # fmt: skip
    assert gate.policy.mode_of("s") == "yolo"
    assert [rule.id for rule in gate.policy.rules_of("t")] == ["a"]
    environ["AEP_KIMI_GATE_TOOLS"] = "Write, mcp__*"
    assert settings.load(environ).gate.policy.tools == ("Write", "mcp__*")


def test_whoever_is_told_of_a_hold_is_a_program_and_its_arguments_as_they_stand(
    environ: dict[str, str],
) -> None:
    assert settings.load(environ).gate.notify_command == ()
    for command in (["notify-me", "a, b", " c "], ["/opt/it/notify me"], []):
        config(environ, f"[gate]\nnotify_command = {command!r}\n")
        assert settings.load(environ).gate.notify_command == tuple(command)


def test_instructions_are_taken_where_the_file_or_the_variable_says_so(
    environ: dict[str, str],
) -> None:
    assert not settings.load(environ).instruct.enabled
    config(environ, "[instruct]\nenabled = true\n")
    assert settings.load(environ).instruct.enabled
    environ["AEP_INSTRUCT"] = "0"
    assert not settings.load(environ).instruct.enabled
