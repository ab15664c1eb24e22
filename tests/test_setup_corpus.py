"""Every file of the corpus through every order of install, upgrade, rewrite and uninstall.

From a file the four lead to few others, and from those to few more, so all of them are visited:
whatever order they come in, and however often, it is a walk among these. What a file must hold is
worked out here anew, from `tomllib` and lines, with nothing of the code that is tried.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
import tomllib
from collections.abc import Iterator
from functools import lru_cache

import pytest
from attrs import frozen

from config_corpus import BOM, HOOK, KIMI, Sample, entry, samples
from kimiaepd.setup.command import Entry, entries
from kimiaepd.setup.config_edit import Action, plan_install, plan_uninstall
from kimiaepd.setup.config_text import EditRefusedError
from kimiaepd.setup.events import Version, known_to

OLD, NEW = Version(0, 28, 0), Version(2, 1, 0)
MANY = 64
"""More files than any file leads to."""


def wanted(events: tuple[str, ...], shim: str) -> tuple[Entry, ...]:
    return entries(socket="/state/hook.sock", shim=shim, python="/usr/bin/python3", events=events)


FIRST = wanted(known_to(OLD), "/data/it's/shim.py")
UPGRADE = wanted(known_to(NEW), "/elsewhere/ünï/shim.py")
# For the many ways through the small files fewer events do, the last of which only one release has.
FEW, OTHER_FEW = FIRST[:2], (UPGRADE[1], *UPGRADE[-2:])
# Many ways lead to one file.
install_in, uninstall_from = lru_cache(plan_install), lru_cache(plan_uninstall)
HANDLED = [sample for sample in samples() if not sample.refused]
REFUSED = [sample for sample in samples() if sample.refused]


def by_name(sample: Sample) -> str:
    return sample.name


# --- what a file holds ------------------------------------------------------------------------


def split(raw: bytes) -> tuple[str, list[dict[str, object]]]:
    """What others say, spelt so that equal means equal, and the hooks that are ours."""
    data = tomllib.loads(raw.removeprefix(BOM).decode())
    hooks = data.pop("hooks", [])
    ours = [hook for hook in hooks if "/state/hook.sock' ] && [" in str(hook.get("command"))]
    return repr((data, [hook for hook in hooks if hook not in ours])), ours


PLACEHOLDER = re.compile(
    rb"(# kimiaepd set aside until its hooks are removed: )?"
    rb"\s*([\"']?)(h|\\u0068)ooks\2\s*=\s*\[\s*\]\s*(?P<comment>#.*)?"
)


def lines(raw: bytes) -> list[bytes]:
    """The lines that are not blank; of a placeholder, the comment behind it."""
    found = []
    for line in raw.removeprefix(BOM).split(b"\n"):
        placeholder = PLACEHOLDER.fullmatch(line)
        kept = placeholder["comment"] or b"" if placeholder else line
        found.append(kept.removesuffix(b"\r"))
    return [line for line in found if line.strip()]


# --- the vendor's own hand --------------------------------------------------------------------


def rewritten(raw: bytes) -> bytes:
    """The file as the CLI saves it: no comment, values before tables, strings as in JSON."""
    data = tomllib.loads(raw.removeprefix(BOM).decode())
    return "\n".join(_table((), data)).removeprefix("\n").encode() + b"\n"


def _table(path: tuple[str, ...], table: dict[str, object]) -> Iterator[str]:
    deeper: list[tuple[str, list[dict[str, object]], str]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            deeper.append((key, [value], "[{}]"))
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            deeper.append((key, value, "[[{}]]"))
        else:
            yield f"{_spell(key)} = {_spell(value)}"
    for key, tables, header in deeper:
        for one in tables:
            yield "\n" + header.format(".".join(map(_spell, (*path, key))))
            yield from _table((*path, key), one)


def _spell(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[ {', '.join(map(_spell, value))} ]" if value else "[]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_spell(key)} = {_spell(one)}' for key, one in value.items())} }}"
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value).lower()


# --- every order ------------------------------------------------------------------------------


@frozen
class State:
    """A file on its way.

    Attributes:
        raw: its bytes.
        without: what it would be without us.
        is_exact: whether an uninstall gives that to the byte, as it does until the vendor rewrites.
        ours: what is registered.
    """

    raw: bytes
    without: bytes
    is_exact: bool
    ours: tuple[Entry, ...] | None

    def installed(self, ours: tuple[Entry, ...], version: Version) -> State:
        raw = install_in(self.raw, ours, version).new
        again = install_in(raw, ours, version)
        assert (again.action, again.new) == (Action.UNCHANGED, raw)
        return State(raw, self.without, self.is_exact, ours)

    def uninstalled(self) -> State:
        raw = uninstall_from(self.raw).new
        assert uninstall_from(raw).action is Action.UNCHANGED
        if self.is_exact:
            assert raw == self.without
        else:
            assert lines(raw) == lines(self.without)
        return State(raw, raw, is_exact=True, ours=())

    def saved(self) -> State:
        """The vendor rewrote it. A placeholder that is set aside goes with the comments."""
        raw = rewritten(self.raw)
        return State(raw, rewritten(self.without), is_exact=False, ours=self.ours)

    def next(self) -> Iterator[State]:
        yield self.installed(FEW, OLD)
        yield self.installed(OTHER_FEW, NEW)
        yield self.saved()
        yield self.uninstalled()


def check(state: State) -> None:
    foreign, ours = split(state.raw)
    assert foreign == split(state.without)[0]
    rest = iter(lines(state.raw))
    # A comment behind a line of ours is the end of a line until we go.
    assert all(any(there.endswith(line) for there in rest) for line in lines(state.without))
    if state.ours is None:  # something of ours that was there before
        return
    assert sorted(Entry(**hook) for hook in ours) == sorted(state.ours)  # type: ignore[arg-type]
    for hook in ours:
        assert set(hook) == {"command", "event", "timeout"}
        assert type(hook["timeout"]) is int
        assert 1 <= hook["timeout"] <= 600


@pytest.mark.parametrize("sample", HANDLED, ids=by_name)
def test_every_order_keeps_what_others_wrote_and_leaves_one_set_of_ours(sample: Sample) -> None:
    start = State(sample.raw, sample.without, is_exact=True, ours=None)
    seen, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        check(state)
        for after in state.next():
            if after not in seen:
                seen.add(after)
                waiting.append(after)
        assert len(seen) < MANY


@pytest.mark.parametrize("sample", HANDLED, ids=by_name)
def test_the_whole_way_with_all_events(sample: Sample) -> None:
    state = State(sample.raw, sample.without, is_exact=True, ours=None).installed(FIRST, OLD)
    assert len(split(state.raw)[1]) == 16
    check(state)
    state = state.installed(UPGRADE, NEW)
    assert len(split(state.raw)[1]) == 20
    check(state)
    state.uninstalled()
    state = state.saved()
    assert plan_install(state.raw, UPGRADE, NEW).action is Action.UNCHANGED
    check(state.uninstalled())


@pytest.mark.parametrize("sample", REFUSED, ids=by_name)
def test_a_refusal_names_a_line_that_is_there_and_says_what_to_do(sample: Sample) -> None:
    assert sample.refused
    start, reason = sample.refused
    with pytest.raises(EditRefusedError) as caught:
        plan_install(sample.raw, FIRST, OLD)
    assert reason in caught.value.reason
    assert caught.value.line
    named = sample.raw.split(b"\n")[caught.value.line - 1]
    assert named.startswith(start)
    assert caught.value.remedy
    if sample.keeps_ours:
        with pytest.raises(EditRefusedError):
            plan_uninstall(sample.raw)
    else:
        assert plan_uninstall(sample.raw).action is Action.UNCHANGED


def test_the_corpus_is_as_large_and_as_odd_as_it_should_be() -> None:
    assert len(HANDLED) > 100
    assert len(REFUSED) > 30
    assert len({sample.name for sample in samples()}) == len(samples())


# --- great files ------------------------------------------------------------------------------

GREAT = {
    "a megabyte of keys": b"".join(b"k%d = '%0100d'\n" % (n, n) for n in range(9_000)),
    "a megabyte of text": b"a = '''" + b"[[hooks]]\n" * 100_000 + b"'''\n",
    "a megabyte in a line": b'a = "' + b"#" * 1_000_000 + b'"',
    "many hooks of another": HOOK.encode() * 2000,
    "many models": KIMI.encode() + b"".join(b"[models.m%d]\na = 1\n" % n for n in range(3000)),
}


@pytest.mark.parametrize("raw", GREAT.values(), ids=GREAT)
def test_a_great_file_is_handled_too(raw: bytes) -> None:
    started = time.process_time()
    new = plan_install(raw, FIRST, OLD).new
    assert new.startswith(raw)
    assert plan_uninstall(new).new == raw
    assert time.process_time() - started < 30  # a second or two; a minute and more if quadratic


def test_thousands_of_scattered_entries_of_ours_are_cut_out_in_one_pass() -> None:
    scattered = (entry() + "# mine\n").encode() * 2000
    started = time.process_time()
    assert plan_uninstall(scattered).new == b"# mine\n" * 2000
    assert time.process_time() - started < 10
