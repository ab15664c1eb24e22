"""Any config file, any order of edits: foreign bytes stay, and exactly one set of ours is there."""

from __future__ import annotations

import tomllib

import tomlkit
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kimiaepd.setup.command import Entry, entries
from kimiaepd.setup.config_edit import Action, plan_install, plan_uninstall
from kimiaepd.setup.config_text import BOM, read
from kimiaepd.setup.events import Version, known_to
from kimiaepd.setup.placeholder import PREFIX
from kimiaepd.setup.toml_statements import Kind, statements

OLD, NEW = Version(0, 28, 0), Version(2, 1, 0)


def wanted(version: Version, shim: str = "/data/it's/shim.py") -> tuple[Entry, ...]:
    return entries(
        socket="/state/hook.sock", shim=shim, python="/usr/bin/python3", events=known_to(version)
    )


# --- config files -----------------------------------------------------------------------------


def parses(text: str) -> bool:
    try:
        tomllib.loads(text)
    except ValueError:
        return False
    return True


# What a careless reader of lines would take for structure, in every kind of string.
bait = st.lists(
    st.sampled_from(
        ["[[hooks]]", "\n", '"', "'", "#", "\\\\", "\\n", "[", "}", " ", "hooks = []", "é",
         'event = "Stop"', "# >>> kimiaepd >>>", "# <<< kimiaepd <<<"]
    ),
    max_size=8,
).map("".join)  # fmt: skip
values = st.one_of(
    st.sampled_from(
        ["1", "true", "nan", "-0.0", "inf", "0xff", "1979-05-27", "{}", "{ a = ']' }", "[]",
         "[\n  1, # [[hooks]]\n  [2],\n]", "[ '''\n[[hooks]]\n''', \"]\" ]"]
    ),
    st.text().map(lambda text: tomlkit.string(text).as_string()),
    bait.map(lambda text: f'"""{text}"""'),
    bait.map(lambda text: f"'''{text}'''"),
    bait.map(lambda text: f"'{text}'"),
).filter(lambda value: parses(f"a = [{value}]"))  # fmt: skip
trivia = st.sampled_from(["", "  ", "# a comment", "# [[hooks]]", "\t# >>> other >>>"])
foreign_hooks = st.builds(
    "[[{hooks}]]{end}\nevent = {event!r}\ncommand = {command}{timeout}".format,
    hooks=st.sampled_from(["hooks", ' "hooks" ', "'hooks'"]),
    end=st.sampled_from(["", " # mine"]),
    event=st.sampled_from(known_to(OLD)),
    command=st.sampled_from(['"say done"', "'''\nls\n[[hooks]]\n'''", "'kimiaepd'"]),
    timeout=st.sampled_from(["", "\ntimeout = 5", "\ntimeout = 5.0\nmatcher = 'Bash'"]),
)
indents = st.sampled_from(["", "", "  "])


@st.composite
def pairs(draw: st.DrawFn, name: str) -> str:
    key = draw(st.sampled_from(["{}", "'{}'", '"{}"', "{}.hooks", '{}."[[hooks]]"'])).format(name)
    return f"{draw(indents)}{key} = {draw(values)}{draw(st.sampled_from(['', ' # c']))}"


@st.composite
def config_files(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(trivia, max_size=2))
    for number in range(draw(st.integers(0, 3))):
        lines += [draw(pairs(f"k{number}")), *draw(st.lists(trivia, max_size=2))]
    for number in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            lines.append(draw(indents) + draw(foreign_hooks))
        else:
            shape = draw(st.sampled_from(["[t{}]", "[[t{}]]", "[t{}.hooks]", "[[t{}.hooks]]"]))
            lines += [shape.format(number), draw(pairs("k"))]
        lines += draw(st.lists(trivia, max_size=2))
    text = "\n".join(lines)
    if draw(st.booleans()):
        text += "\n"
    if draw(st.booleans()):
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    return (BOM if draw(st.integers(0, 9)) == 0 else b"") + text.encode()


def split(raw: bytes) -> tuple[dict[str, object], list[object]]:
    """What others say: their tables, and their hooks in order."""
    config = read(raw)
    rest = {key: value for key, value in config.data.items() if key != "hooks"}
    return rest, [hook.values for hook in config.hooks if not hook.ours]


def ours(raw: bytes) -> list[Entry | None]:
    return [hook.entry() for hook in read(raw).hooks if hook.ours]


unhurried = settings(deadline=None, max_examples=60)

# --- properties -------------------------------------------------------------------------------


@unhurried
@given(config_files())
def test_the_statements_are_the_file_and_find_its_hooks(raw: bytes) -> None:
    start = len(BOM) if raw.startswith(BOM) else 0
    cut = list(statements(raw, start))
    position = start
    for statement in cut:
        assert raw[position : statement.start] in (b"", b"\n", b"\r\n")
        assert statement.line == raw.count(b"\n", 0, statement.start) + 1
        position = statement.end
        if statement.kind in (Kind.PAIR, Kind.HEADER):
            assert tomllib.loads(raw[statement.start : statement.end].decode())
    assert raw[position:] in (b"", b"\n", b"\r\n")
    config = read(raw)
    assert [hook.values for hook in config.hooks] == config.data.get("hooks", [])
    assert all(raw[hook.statements[0].start :].lstrip()[:2] == b"[[" for hook in config.hooks)


@unhurried
@given(config_files())
def test_install_appends_twice_is_once_and_uninstall_is_the_way_back(raw: bytes) -> None:
    plan = plan_install(raw, wanted(OLD), OLD)
    note(plan.new.decode())
    assert plan.action is Action.ADDED
    assert plan.new.startswith(raw)
    assert plan.new.endswith(b"\n") == (raw.endswith(b"\n") or raw in (b"", BOM))
    before, after = tomllib.loads(raw.removeprefix(BOM).decode()), read(plan.new).data
    for key, value in before.items():
        found = after[key]
        if key == "hooks" and isinstance(found, list):
            found = found[: len(found) - 16]
        assert repr(found) == repr(value)
    assert ours(plan.new) == list(wanted(OLD))
    again = plan_install(plan.new, wanted(OLD), OLD)
    assert (again.action, again.new) == (Action.UNCHANGED, plan.new)
    assert plan_uninstall(plan.new).new == raw


@unhurried
@given(config_files(), st.sampled_from([OLD, NEW]), st.sampled_from([OLD, NEW]))
def test_a_refreshed_block_is_the_block_that_a_first_install_makes(
    raw: bytes, first: Version, second: Version
) -> None:
    stale = plan_install(raw, wanted(first, "/old/shim.py"), first).new
    fresh = plan_install(stale, wanted(second), second)
    assert fresh.action is Action.REFRESHED
    assert fresh.new == plan_install(raw, wanted(second), second).new


@unhurried
@given(config_files(), st.lists(st.one_of(foreign_hooks, st.just("[zz]\na = 1"), trivia)))
def test_what_others_append_later_stays(raw: bytes, appended: list[str]) -> None:
    later = "\n".join(appended)
    if not parses(later):
        return
    installed = plan_install(raw, wanted(OLD), OLD).new
    join = b"" if installed.endswith(b"\n") else b"\n"
    left = plan_uninstall(installed + join + later.encode()).new
    # In a file without a final newline the one before our block parts theirs from ours.
    parting = b"" if not join else b"\r\n" if b"\r\n" in raw else b"\n"
    assert left == raw + parting + later.encode()


@unhurried
@given(config_files(), st.integers(0, 80))
def test_a_comment_anywhere_among_our_lines_stays(raw: bytes, at: int) -> None:
    block = plan_install(raw, wanted(OLD), OLD).new[len(raw) :]
    lines = block.split(b"\n")
    at = min(at, len(lines) - 1)
    mixed = raw + b"\n".join([*lines[:at], b"# a note of mine", *lines[at:]])
    left = plan_uninstall(mixed).new
    note(left.decode())
    assert left.count(b"# a note of mine") == mixed.count(b"# a note of mine")
    assert left.replace(b"# a note of mine", b"").split() == raw.split()
    assert ours(left) == []


placeholders = st.builds(
    "{indent}{key} = [{inside}]{end}".format,
    indent=indents,
    key=st.sampled_from(["hooks", "'hooks'", '"h\\u006foks"']),
    inside=st.sampled_from(["", " ", "\t"]),
    end=st.sampled_from(["", " # mine", "#", "\t# hooks = []  "]),
)


@unhurried
@given(config_files(), placeholders, trivia)
def test_a_placeholder_above_everything_comes_back_to_the_byte(
    raw: bytes, placeholder: str, below: str
) -> None:
    if "hooks" in read(raw).data:
        return
    mark = BOM if raw.startswith(BOM) else b""
    old = mark + f"{placeholder}\n{below}\n".encode() + raw.removeprefix(BOM)
    plan = plan_install(old, wanted(OLD), OLD)
    assert plan.new.replace(PREFIX, b"", 1).startswith(old)
    assert repr(split(plan.new)) == repr(split(raw))
    upgraded = plan_install(plan.new, wanted(NEW, "/b/shim.py"), NEW)
    assert plan_uninstall(upgraded.new).new == plan_uninstall(plan.new).new == old


class AnyOrder(RuleBasedStateMachine):
    """Installs, upgrades, rewrites and uninstalls, and others' edits, in any order, on any file."""

    raw = b""
    foreign = ""
    wanted: tuple[Entry, ...] = ()

    @initialize(raw=config_files())
    def start(self, raw: bytes) -> None:
        self.raw = raw
        self.foreign = read(raw).foreign()
        self.added: list[bytes] = []

    @rule(version=st.sampled_from([OLD, NEW]), shim=st.sampled_from(["/a/shim.py", "/b/shim.py"]))
    def install(self, version: Version, shim: str) -> None:
        self.wanted = wanted(version, shim)
        self.raw = plan_install(self.raw, self.wanted, version).new
        assert plan_install(self.raw, self.wanted, version).action is Action.UNCHANGED

    @rule()
    def uninstall(self) -> None:
        self.wanted = ()
        self.raw = plan_uninstall(self.raw).new
        assert plan_uninstall(self.raw).action is Action.UNCHANGED

    @rule(hook=foreign_hooks)
    def another_tool_appends_its_hook(self, hook: str) -> None:
        self.append(hook)

    @rule(number=st.integers(0, 10**6), value=values)
    def somebody_appends_a_table(self, number: int, value: str) -> None:
        self.append(f"# {number}\n[x{number}]\ny = {value}")

    def append(self, text: str) -> None:
        raw = self.raw + f"\n{text}\n".encode()
        if parses(raw.removeprefix(BOM).decode()):  # no placeholder, nor such a table
            self.raw = raw
            self.foreign = read(raw).foreign()
            self.added.append(text.encode())

    @rule(placeholder=placeholders)
    def somebody_seeds_a_placeholder(self, placeholder: str) -> None:
        mark = BOM if self.raw.startswith(BOM) else b""
        raw = mark + f"{placeholder}\n".encode() + self.raw.removeprefix(BOM)
        if parses(raw.removeprefix(BOM).decode()):
            self.raw = raw

    @rule()
    def the_vendor_rewrites(self) -> None:
        data = read(self.raw).data
        text = tomlkit.dumps(dict(data))
        # Where tomlkit itself cannot write what it is given, there is nothing to learn about us.
        if parses(text) and repr(tomllib.loads(text)) == repr(data):
            self.raw = text.encode()
            self.added = []

    @invariant()
    def one_set_of_ours_and_all_of_theirs(self) -> None:
        assert sorted(entry for entry in ours(self.raw) if entry) == sorted(self.wanted)
        assert len(ours(self.raw)) == len(self.wanted)
        assert read(self.raw).foreign() == self.foreign
        assert all(text in self.raw for text in self.added)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=8, deadline=None)
