"""The real CLI, headless, with our hooks and a running daemon: what it did, and how it is told.

Each script is run twice at the same paths, first without hooks and then with them. The second run
must look the same from outside, to the byte, and its session must stand in the log as it went.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSON, JSONObject
from vendor.daemon import register, running
from vendor.kimi import Kimi
from vendor.likeness import Seen, watch
from vendor.logged import RUN_TERMINALS, Log, data, log_files, runs_are_closed
from vendor.place import Place
from vendor.provider import Provider
from vendor.waiting import until

pytestmark = pytest.mark.vendor

TOOL_OUTCOMES = ("tool.completed", "tool.failed", "tool.denied")


@frozen
class Script:
    """The calls of `kimi`, and the core events that they should leave in the log."""

    calls: tuple[tuple[str, ...], ...]
    story: tuple[str, ...]


def prompt(scene: str, *options: str) -> tuple[str, ...]:
    return (*options, "-p", f"mock:{scene} go")


def turn(*inside: str, end: str = "run.finished") -> tuple[str, ...]:
    return ("run.started", *inside, end)


SUBAGENT = ("delegation.subagent.started", "delegation.subagent.stopped")
USED = ("tool.requested", "tool.completed")

SCRIPTS: Mapping[str, Script] = {
    "text": Script((prompt("plain"),), turn()),
    "tool": Script((prompt("bashok"),), turn(*USED)),
    "failing-tool": Script((prompt("bashfail"),), turn("tool.requested", "tool.failed")),
    "unknown-tool": Script((prompt("badtool"),), turn("tool.failed")),
    "megabyte": Script((prompt("big1m"),), turn(*USED)),
    "provider-error": Script((prompt("err500"),), turn(end="run.failed")),
    "subagent": Script((prompt("agent"),), turn(*USED, *SUBAGENT)),
    "subagent-tool": Script((prompt("agentbash"),), turn(*USED, *USED, *SUBAGENT)),
    "resumed": Script(
        (prompt("plain"), prompt("bashok", "--continue")),
        (*turn(), "session.started", *turn(*USED)),
    ),
}


@frozen
class Round:
    """One script as it went.

    Attributes:
        bare: without hooks.
        hooked: with them.
        logs: the files that the daemon began for it.
    """

    bare: Seen
    hooked: Seen
    logs: tuple[Path, ...]

    @property
    def log(self) -> Log:
        (path,) = self.logs
        return Log.read(path)


@pytest.fixture(scope="module")
def rounds(kimi: Kimi, place: Place, provider: Provider, config: bytes) -> Mapping[str, Round]:
    """Every script, run; the daemon has stopped since, so its logs are final."""
    hooked = register(kimi, place, config)
    done = {}
    with running(kimi, place):
        for name, script in SCRIPTS.items():
            bare = watch(kimi, place, provider, config, script.calls)
            before = set(log_files(place))
            seen = watch(kimi, place, provider, hooked, script.calls)
            done[name] = Round(bare, seen, _new_logs(name, place, before))
    return done


def _new_logs(name: str, place: Place, before: set[Path]) -> tuple[Path, ...]:
    """The logs of this script, once its runs are closed: the last hooks outlive the CLI."""
    runs = SCRIPTS[name].story.count("run.started")

    def new() -> tuple[Path, ...]:
        return tuple(path for path in log_files(place) if path not in before)

    until(lambda: runs_are_closed(map(Log.read, new()), runs), f"{name}: {runs} closed runs")
    return new()


@pytest.mark.parametrize("name", SCRIPTS)
def test_hooks_change_nothing_that_the_provider_or_the_terminal_sees(
    rounds: Mapping[str, Round], name: str
) -> None:
    assert rounds[name].hooked == rounds[name].bare


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_log_tells_the_story(kimi: Kimi, rounds: Mapping[str, Round], name: str) -> None:
    # `-p` fires SessionEnd at 0.28.0 alone; of a session that ends again only the first counts.
    ends = ["session.ended"] if kimi.version == "0.28.0" else []

    assert sorted(rounds[name].log.story) == sorted(
        ["session.started", *SCRIPTS[name].story, *ends]
    )
    assert rounds[name].log.story[0] == "session.started"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_log_is_valid(rounds: Mapping[str, Round], name: str) -> None:
    for path in rounds[name].logs:
        judge_log(path)


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_run_has_one_terminal_of_its_own(rounds: Mapping[str, Round], name: str) -> None:
    log = rounds[name].log
    for started in log.all("run.started"):
        (ended,) = [e for e in log.all(*RUN_TERMINALS) if e["run"] == started["run"]]
        assert log.cause(ended) == started
        assert isinstance(data(ended)["duration_ms"], int)


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "unknown-tool"])
def test_each_tool_outcome_is_caused_by_its_request(rounds: Mapping[str, Round], name: str) -> None:
    log = rounds[name].log
    for outcome in log.all(*TOOL_OUTCOMES):
        requested = log.cause(outcome)
        assert requested is not None
        assert requested["type"] == "tool.requested"
        assert call_id(requested) == call_id(outcome)
        assert requested["run"] == outcome["run"]


def test_an_unknown_tool_fails_without_a_request(rounds: Mapping[str, Round]) -> None:
    failed = rounds["unknown-tool"].log.one("tool.failed")

    assert failed["subject"] == "NoSuchTool"
    assert "cause" not in failed


def test_a_failing_tool_says_what_kind_of_error(rounds: Mapping[str, Round]) -> None:
    failed = rounds["failing-tool"].log.one("tool.failed")

    assert failed["subject"] == "Bash"
    assert data(failed)["error"] == {"type": "internal"}


def test_a_provider_error_is_the_runs_reason(rounds: Mapping[str, Round]) -> None:
    failed = data(rounds["provider-error"].log.one("run.failed"))

    assert failed["reason"] == "APIStatusError"
    assert failed["error"] == {"type": "APIStatusError"}


@pytest.mark.parametrize("name", ["subagent", "subagent-tool"])
def test_a_subagents_stop_does_not_end_the_run(rounds: Mapping[str, Round], name: str) -> None:
    log = rounds[name].log

    assert log.all("x.kimi-code.session.stop"), "the subagent's own Stop left no trace"
    assert log.events.index(log.one("run.finished")) > log.events.index(
        log.one("delegation.subagent.stopped")
    )
    assert log.one("delegation.subagent.started")["subject"] == "explore"


def test_a_resumed_session_goes_on_in_its_log(kimi: Kimi, rounds: Mapping[str, Round]) -> None:
    log = rounds["resumed"].log
    first, second = log.all("session.started")

    assert (data(first)["trigger"], data(second)["trigger"]) == ("startup", "resume")
    assert len({event["run"] for event in log.all("run.started")}) == 2
    ended_again = log.all("x.kimi-code.session.session_end")
    assert len(ended_again) == (1 if kimi.version == "0.28.0" else 0)


def test_no_content_is_logged_at_the_default_ceiling(
    rounds: Mapping[str, Round], place: Place
) -> None:
    for name, finished in rounds.items():
        for path in finished.logs:
            text = path.read_text()
            for content in ("mock:", "from-the-tool", "nothing unusual", "bbbb", str(place.root)):
                assert content not in text, (name, content)


def call_id(event: JSONObject) -> JSON:
    tool = data(event)["tool"]
    assert isinstance(tool, dict)
    return tool["call_id"]
