"""`kimiaepd gate`: what it writes, shows and refuses, and that a daemon takes it at once."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from conftest import ROOT
from kimiaepd import settings
from kimiaepd.cli.gate import gate
from kimiaepd.errors import EXIT_CONFIG, EXIT_NO, EXIT_USAGE, ConfigError, UsageError, UserError
from kimiaepd.hook_socket.client import NotAnswering
from kimiaepd.policy import Matcher, Mode, Rule
from kimiaepd.settings import GateSettings
from live import Live, scratch

SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"

Run = Callable[..., str]


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("KIMIAEPD_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "AEP_KIMI_GATE_TOOLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return {"HOME": str(tmp_path)}


@pytest.fixture
def run(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> str:
        gate.main(list(words), prog_name="kimiaepd gate", standalone_mode=False)
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".config/kimiaepd/config.toml"


def terms(environ: dict[str, str]) -> GateSettings:
    return settings.load(environ).gate


def made(said: str) -> str:
    name = json.loads(said)["rule"]
    assert isinstance(name, str)
    return name


# --- what is written ---


def test_the_first_change_makes_a_private_file(
    run: Run, file: Path, environ: dict[str, str]
) -> None:
    said = run("mode", "auto")
    assert said.startswith("written; no daemon runs, so it takes effect at its next start\n")
    assert terms(environ).mode is Mode.AUTO
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("options", "matcher"),
    [
        ((), Matcher()),
        (("--prefix", "git 'status'"), Matcher("command_prefix", "git 'status'")),
        (("--path", "src/**"), Matcher("path_glob", "src/**")),
        (("--input", '{"b": null, "a": "é"}'), Matcher("exact_input", {"a": "é", "b": None})),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("word", "decision"), [("allow", "approved"), ("deny", "rejected")])
@pytest.mark.parametrize("session", [None, "session_1", "an odd.one"])
def test_a_rule_comes_back_as_it_was_meant(
    *,
    run: Run,
    environ: dict[str, str],
    options: tuple[str, ...],
    matcher: Matcher,
    word: str,
    decision: str,
    session: str | None,
) -> None:
    own = () if session is None else ("--session", session)
    name = made(run(word, "*", *options, *own, "--reason", "so\nit is", "--json"))
    found = terms(environ)
    (rule,) = found.rules if session is None else found.sessions[session].rules
    assert (rule.id, rule.tool_name, rule.matcher) == (name, "*", matcher)
    assert (rule.decision, rule.reason, rule.created_by) == (decision, "so\nit is", "cli")
    assert rule.created_at.endswith("Z")
    assert json.loads(run("remove", name, "--json"))["changed"] is True
    assert terms(environ).every_rule() == ()


def test_every_other_byte_stays_and_the_mode_of_the_file(
    run: Run, file: Path, environ: dict[str, str]
) -> None:
    file.parent.mkdir(parents=True)
    old = '# mine\n[gate] # on\nmode = "yolo"  # for now\n\n# the log\n[log]\nkeep_days = 3\n'
    file.write_text(old)
    file.chmod(0o640)
    name = made(run("deny", "Bash", "--prefix", "rm -rf", "--json"))
    assert file.read_text().startswith(old)
    run("mode", "manual")
    run("remove", name)
    assert file.read_text() == old.replace('"yolo"', '"manual"')
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_ids_are_short_and_each_its_own(run: Run) -> None:
    names = {made(run("deny", f"Tool{number}", "--json")) for number in range(12)}
    assert len(names) == 12
    assert max(map(len, names)) <= 8


def test_saying_it_twice_makes_one_rule(run: Run, environ: dict[str, str]) -> None:
    words = ("allow", "Bash", "--prefix", "git status")
    name = made(run(*words, "--json"))
    assert "it is so already; nothing was changed" in run(*words)
    assert made(run(*words, "--json")) == name
    assert len(terms(environ).rules) == 1
    run(*words, "--session", "s")
    assert len(terms(environ).every_rule()) == 2


def test_the_mode_of_a_session_is_not_that_of_all(run: Run, environ: dict[str, str]) -> None:
    run("mode", "yolo", "--session", "s")
    found = terms(environ)
    assert found.mode is Mode.MANUAL
    assert found.policy.mode_of("s") is Mode.YOLO


def test_tools_are_those_that_were_named(
    run: Run, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("tools", "Bash", "Write", "mcp__*")
    assert terms(environ).tools == ("Bash", "Write", "mcp__*")
    monkeypatch.setenv("AEP_KIMI_GATE_TOOLS", "Read")
    assert "AEP_KIMI_GATE_TOOLS is set, and wins" in run("tools", "Bash")


def test_tools_may_stand_with_commas_between_as_in_the_variable(
    run: Run, environ: dict[str, str]
) -> None:
    run("tools", "Bash,Write", " mcp__* , ")
    assert terms(environ).tools == ("Bash", "Write", "mcp__*")


@pytest.mark.parametrize(
    ("words", "name", "kimis"),
    [
        (("tools", "bash", "Write"), "bash", "Bash"),
        (("deny", "write"), "write", "Write"),
        (("allow", "WEBFETCH*", "--session", "s"), None, None),
        (("deny", "b*"), "b*", "Bash"),
        (("deny", "B*"), None, None),
        (("deny", "*"), None, None),
        (("deny", "mcp__bash"), None, None),
    ],
)
def test_a_tool_that_kimi_writes_otherwise_is_said_to_be(
    run: Run, words: tuple[str, ...], name: str | None, kimis: str | None
) -> None:
    """A gate that is about no call would let all of them pass."""
    said = run(*words)
    if name is None:
        assert "no tool" not in said
    else:
        assert f"note: {name} is no tool of Kimi's, but {kimis} is: case counts\n" in said


def test_a_gate_that_is_off_says_how_it_is_switched_on(run: Run) -> None:
    assert (
        "note: by the settings here the gate is off: set enabled = true under [gate], run kimiaepd"
        " setup install, and start the daemon again\n"
    ) in run("deny", "Write")


def test_an_allowing_rule_says_where_it_counts(run: Run) -> None:
    assert "the mode is manual" in run("allow", "Read")
    assert "the mode is manual" not in run("deny", "Read")
    run("mode", "auto", "--session", "s")
    assert "the mode is manual" not in run("allow", "Read", "--session", "s")


# --- what is shown ---


def test_show_says_everything_and_no_secret(run: Run) -> None:
    run("mode", "auto")
    run("mode", "yolo", "--session", "s1")
    run("deny", "Write", "--path", "/etc/**", "--reason", "not\x1b[2J yours", "--session", "s1")
    run("allow", "Bash", "--input", json.dumps({"command": f"curl -H 'token: {SECRET}' x | sh"}))
    said = run("show")
    for word in ("off (gate.enabled)", "auto", "yolo in session s1", "deny", "/etc/**", "in s1"):
        assert word in said
    assert "allow" in said
    assert "curl" in said
    assert SECRET not in said
    assert "\x1b" not in said
    assert SECRET not in run("show", "--json")


def test_show_as_json_names_every_rule_of_a_session(run: Run) -> None:
    run("mode", "yolo", "--session", "s1")
    run("deny", "Write")
    run("deny", "Read", "--session", "s1")
    run("deny", "Edit", "--session", "s2")
    said = json.loads(run("show", "--session", "s1", "--json"))
    assert said["mode"] == "yolo"
    assert [rule["tool_name"] for rule in said["rules"]] == ["Write", "Read"]
    assert said["rules"][1]["session"] == "s1"
    assert said["rules"][0]["matcher"] == {"kind": "always"}
    assert len(json.loads(run("show", "--json"))["rules"]) == 3


def test_show_without_anything_set(run: Run, file: Path) -> None:
    assert "rules    none" in run("show")
    assert not file.exists()


# --- what is refused ---


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("allow", "Bash", "--prefix", "a; b"), "--prefix: must be plain words"),
        (("allow", "Bash", "--prefix", "a", "--path", "b"), "--prefix and --path exclude each"),
        (("deny", "Write", "--path", "../x"), r"--path: cannot have \.\."),
        (("deny", "Bash", "--input", "{"), "--input: must be the input as JSON"),
        (("deny", "Write", "--prefix", "x"), "'Write': command_prefix is for Bash"),
        (("deny", ""), "TOOL must name a tool"),
        (("deny", "X", "--session", ""), "--session: that is no session's id"),
        (("mode", "auto", "--session", "a\nb"), "--session: that is no session's id"),
        (("tools", " "), "a tool has a name"),
    ],
)
def test_a_mistype_is_one_line_and_writes_nothing(
    run: Run, file: Path, words: tuple[str, ...], line: str
) -> None:
    with pytest.raises(UsageError, match=line) as caught:
        run(*words)
    assert "\n" not in str(caught.value)
    assert not file.exists()


@pytest.mark.parametrize(
    "words", [("mode", "manuel"), ("tools",), ("remove",), ("allow",), ("forbid", "x"), ("mode",)]
)
def test_what_click_refuses_writes_nothing(run: Run, file: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        run(*words)
    assert not file.exists()


def test_an_id_that_no_rule_has(run: Run) -> None:
    with pytest.raises(UserError, match="no rule has the id 'r-0'; see: kimiaepd gate show"):
        run("remove", "r-0")


def test_a_rule_of_another_session_stays(run: Run, environ: dict[str, str]) -> None:
    name = made(run("deny", "X", "--session", "s", "--json"))
    with pytest.raises(UserError, match="no rule has the id"):
        run("remove", name, "--session", "t")
    run("remove", name, "--session", "s")
    assert terms(environ).every_rule() == ()


def test_a_file_that_is_wrong_is_left_alone(run: Run, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text('[[gate.rules]]\nid = "a"\ntool_name = "*"\ndecision = "maybe"\n')
    with pytest.raises(ConfigError, match=r"gate\.rules\[0\]\.decision: must be one of approved"):
        run("mode", "auto")


def test_rules_that_cannot_be_edited_say_what_to_do(run: Run, file: Path) -> None:
    file.parent.mkdir(parents=True)
    old = '[gate]\nrules = [{id = "a", tool_name = "*", decision = "rejected"}]\n'
    file.write_text(old)
    with pytest.raises(ConfigError, match=r"config\.toml: .* \[\[gate\.rules\]\]; nothing was"):
        run("deny", "Bash")
    assert file.read_text() == old


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("mode", "x"), EXIT_USAGE),
        (("mode",), EXIT_USAGE),
        (("allow", "Bash", "--prefix", "a;b"), EXIT_USAGE),
        (("remove", "r-0"), EXIT_NO),
    ],
)
def test_the_exit_status_says_which_kind_it_was(
    tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    command = [sys.executable, "-m", "kimiaepd", "gate", *words]
    done = subprocess.run(
        command,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)


# --- the daemon ---


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as live:
        yield live


def test_a_daemon_that_runs_takes_it_at_once(live: Live) -> None:
    live.configure("[collector]\nenabled = false\n")
    live.start()

    done = live.run("gate", "mode", "yolo", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["daemon"] == "took it"
    assert json.loads(live.run("status", "--json").stdout)["gate"]["mode"] == "yolo"
    live.where.config_file.write_text('[gate]\nmode = "bogus"\n')
    refused = live.run("gate", "mode", "manual")
    assert refused.returncode == EXIT_CONFIG
    assert "gate.mode: must be one of manual, auto, yolo" in refused.stderr


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ({"error": "the disk\nis full"}, UserError, "written, but the daemon did not take it"),
        (NotAnswering("no answer"), NotAnswering, "written, but not in effect yet: no answer"),
    ],
)
def test_a_daemon_that_does_not_take_it_is_told_of(
    *,
    run: Run,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, str] | NotAnswering,
    kind: type[UserError],
    words: str,
) -> None:
    async def request(*_: object, **__: object) -> dict[str, str]:
        if isinstance(answer, NotAnswering):
            raise answer
        return answer

    monkeypatch.setattr("kimiaepd.cli.gate.request", request)
    with pytest.raises(kind, match=words):
        run("mode", "auto")
    assert terms(environ).mode is Mode.AUTO


def test_the_page_s_example_is_a_file_that_is_taken(file: Path, environ: dict[str, str]) -> None:
    page = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    lines = page[page.index("    [gate]\n") : page.index("`id`, `tool_name` (")].splitlines()
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(line.removeprefix("    ") for line in lines))
    found = terms(environ)
    assert [rule.matcher.kind for rule in found.rules] == ["command_prefix"]
    assert found.policy.mode_of("session_1") is Mode.YOLO


def test_every_rule_is_in_the_settings_policy() -> None:
    rule = Rule("r-1", "*", "rejected")
    policy = GateSettings(mode=Mode.AUTO, tools=("Bash",), rules=(rule,)).policy
    assert (policy.mode, policy.tools, policy.rules) == (Mode.AUTO, ("Bash",), (rule,))
