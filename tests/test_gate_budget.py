"""The hold ends before the shim gives up, and the shim before the CLI kills it: else it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kimiaepd import paths
from kimiaepd.settings import LONGEST_HOLD_MS, GateSettings, HoldMs, Settings
from kimiaepd.setup.command import AFTER_HOLD_SECONDS, HELD_TIMEOUT, budgets
from kimiaepd.setup.install import cut_short, install_in


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        paths.resolve({"HOME": str(tmp_path)}),
        gate=GateSettings(enabled=True, hold_ms=HoldMs(20_000)),
    )


def config(settings: Settings) -> Path:
    return settings.paths.kimi_home / "config.toml"


@pytest.mark.parametrize("hold_ms", [1, 1_000, 50_000, LONGEST_HOLD_MS])
def test_every_hold_that_can_be_set_ends_by_itself(hold_ms: int) -> None:
    budget = budgets(GateSettings(enabled=True, hold_ms=HoldMs(hold_ms)))["PreToolUse"]
    assert hold_ms / 1000 + AFTER_HOLD_SECONDS == budget.seconds < budget.timeout == HELD_TIMEOUT


def test_what_setup_registers_waits_long_enough(settings: Settings) -> None:
    assert cut_short(settings) is None, "no config, no hook"
    install_in(settings, None)
    assert cut_short(settings) is None


def test_hooks_registered_before_the_gate_was_switched_on_are_said_to(settings: Settings) -> None:
    install_in(evolve(settings, gate=GateSettings()), None)
    assert cut_short(settings, remedy="mend it") == (
        f"the hook for PreToolUse in {config(settings)} waits 0.25 s, and kimi 10 s, for a call"
        " that may be held for 20 s; run: mend it"
    )
    assert cut_short(evolve(settings, gate=GateSettings())) is None


def test_so_are_a_longer_hold_and_a_shorter_timeout(settings: Settings) -> None:
    install_in(settings, None)
    longer = evolve(settings, gate=GateSettings(enabled=True, hold_ms=HoldMs(23_000)))
    assert "waits 23 s, and kimi 60 s" in (cut_short(longer) or "")
    text = config(settings).read_text()
    config(settings).write_text(text.replace("timeout = 60", "timeout = 23"))
    assert "waits 23 s, and kimi 23 s" in (cut_short(settings) or "")
    config(settings).write_text(text.replace("timeout = 60\n", "\n"))
    assert "kimi who knows how many s" in (cut_short(settings) or "")


def test_a_config_that_cannot_be_read_is_anothers_to_say(settings: Settings) -> None:
    config(settings).parent.mkdir()
    config(settings).write_text("[[hooks")
    assert cut_short(settings) is None
