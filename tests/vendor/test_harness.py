"""That the comparison can fail: hooks that do what ours must never do are noticed.

Each hook here is a one-line stub. If one of these tests fails, the others prove nothing.
"""

from __future__ import annotations

import pytest

from vendor.kimi import Kimi
from vendor.likeness import Seen, watch
from vendor.place import Place
from vendor.provider import Provider
from vendor.screen import terminal

pytestmark = pytest.mark.vendor

SCRIPT = [["-p", "mock:bashok go"]]


def hook(event: str, command: str) -> bytes:
    return f"[[hooks]]\nevent = '{event}'\ncommand = '''{command}'''\n".encode()


@pytest.fixture(scope="module")
def bare(kimi: Kimi, place: Place, provider: Provider, config: bytes) -> Seen:
    """The run without a hook."""
    return watch(kimi, place, provider, config, SCRIPT)


def test_a_hook_that_only_takes_notes_changes_nothing(
    kimi: Kimi, place: Place, provider: Provider, config: bytes, bare: Seen
) -> None:
    notes = place.root / "notes"
    hooks = hook("PreToolUse", f"cat >> {notes}") + hook("Stop", f"cat >> {notes}")

    assert watch(kimi, place, provider, config + hooks, SCRIPT) == bare
    assert b'"PreToolUse"' in notes.read_bytes()
    assert b'"Stop"' in notes.read_bytes()


def test_an_empty_object_on_stdout_reaches_the_model_and_is_noticed(
    kimi: Kimi, place: Place, provider: Provider, config: bytes, bare: Seen
) -> None:
    spoken = watch(kimi, place, provider, config + hook("UserPromptSubmit", "echo {}"), SCRIPT)

    assert spoken.requests != bare.requests


def test_exit_status_2_blocks_the_tool_and_is_noticed(
    kimi: Kimi, place: Place, provider: Provider, config: bytes, bare: Seen
) -> None:
    blocked = watch(kimi, place, provider, config + hook("PreToolUse", "exit 2"), SCRIPT)

    assert blocked.requests != bare.requests
    assert b"from-the-tool" in bare.requests[-1].body
    assert b'from-the-tool\\n"' not in blocked.requests[-1].body


@pytest.mark.usefixtures("tmux")
def test_the_terminal_ui_is_driven_and_its_hooks_run(
    kimi: Kimi, place: Place, config: bytes
) -> None:
    notes = place.root / "asked"
    place.renew(config + hook("PermissionRequest", f"cat >> {notes}"))

    with terminal(kimi, place) as screen:
        screen.enter("mock:bashok go")
        screen.shows("Run this command?")
        screen.press("1")
        screen.shows("Prompt 1 is done.")
        screen.leave()

    assert b"echo from-the-tool" in notes.read_bytes()
