"""Odd config files, one by one: what becomes of each, or the line and reason of the refusal."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest

from kimiaepd.setup import block, placeholder
from kimiaepd.setup.block import CLOSE, OPEN
from kimiaepd.setup.command import Entry, entries
from kimiaepd.setup.config_edit import Action, plan_install, plan_uninstall
from kimiaepd.setup.config_text import BOM, EditRefusedError, read
from kimiaepd.setup.events import Version, known_to

OLD, NEW = Version(0, 28, 0), Version(2, 1, 0)


def wanted(version: Version = OLD, shim: str = "/data/shim.py") -> tuple[Entry, ...]:
    return entries(
        socket="/state/hook.sock", shim=shim, python="/usr/bin/python3", events=known_to(version)
    )


WANTED = wanted()


def installed(old: bytes, ours: tuple[Entry, ...] = WANTED, version: Version = OLD) -> bytes:
    return plan_install(old, ours, version).new


def uninstalled(old: bytes) -> bytes:
    return plan_uninstall(old).new


def ours(text: bytes) -> list[Entry]:
    entries = [hook.entry() for hook in read(text).hooks if hook.ours]
    assert None not in entries
    return sorted(entry for entry in entries if entry)


FOREIGN_HOOK = b'[[hooks]]\nevent = "Stop"\ncommand = "say done"\n'


# --- files that are extended ------------------------------------------------------------------

EXTENDED = {
    "nothing": b"",
    "a blank line": b"\n",
    "white space": b" \t",
    "a comment": b"# mine",
    "a comment and a newline": b"# mine\n",
    "plain": b'default_model = "mock"\n',
    "no final newline": b'default_model = "mock"',
    "blank lines at the end": b"a = 1\n\n\n\n",
    "a table last": b"[a]\nb = 1\n[c]\n",
    "a table without newline": b"[a]\nb = 1\n[c]",
    "windows": b"a = 1\r\n[b]\r\nc = 2\r\n",
    "windows without final newline": b"a = 1\r\n[b]\r\nc = 2",
    "windows, one blank line": b"\r\n",
    "mixed newlines": b"a = 1\r\nb = 2\n",
    "byte-order mark alone": BOM,
    "byte-order mark": BOM + b"a = 1\n",
    "another tool's hook": FOREIGN_HOOK,
    "another tool's hook with a comment": b"# keep\n" + FOREIGN_HOOK + b"# keep too\n",
    "tables after hooks": FOREIGN_HOOK + b"[loop_control]\nmax = 1 # c\n",
    "hooks in another table": b"[a]\nhooks = []\n",
    "hooks of another table": b"[[a.hooks]]\nevent = 'x'\n",
    "hooks quoted": b'[["hooks"]]\nevent = "Stop"\ncommand = "true"\n',
    "hooks in a string": b'a = """\n[[hooks]]\nevent = "Nonsense"\nhooks = []\n"""\n',
    "hooks in a comment": b"# [[hooks]]\n# hooks = []\n",
    "a table with a comment": b"[a] # hooks = []\nb = 1\n",
    "dotted keys": b'a.b.c = 1\na."hooks".d = []\n',
    "odd values": b"a = nan\nb = -0.0\nc = 1979-05-27T07:32:00Z\nd = inf\ne = 0xff\n",
    "unicode": '名 = "é"\n'.replace("名", '"名"').encode(),
    "a marker in a string": b"a = '''\n# >>> kimiaepd >>>\n'''\n",
}


@pytest.mark.parametrize("old", EXTENDED.values(), ids=EXTENDED)
def test_an_install_only_appends_and_an_uninstall_gives_the_bytes_back(old: bytes) -> None:
    plan = plan_install(old, WANTED, OLD)
    assert plan.action is Action.ADDED
    assert plan.new.startswith(old)
    assert ours(plan.new) == sorted(WANTED)
    assert plan_install(plan.new, WANTED, OLD).action is Action.UNCHANGED
    assert uninstalled(plan.new) == old


@pytest.mark.parametrize("old", EXTENDED.values(), ids=EXTENDED)
def test_an_upgrade_in_place_can_be_undone_too(old: bytes) -> None:
    plan = plan_install(installed(old), wanted(NEW, "/elsewhere/shim.py"), NEW)
    assert plan.action is Action.REFRESHED
    assert len(ours(plan.new)) == 20
    assert uninstalled(plan.new) == old


def test_an_uninstall_of_what_was_never_installed_changes_nothing() -> None:
    for old in EXTENDED.values():
        assert plan_uninstall(old).action is Action.UNCHANGED


def test_the_block_uses_the_files_own_newline_and_its_own_end() -> None:
    block = installed(b"a = 1\r\nb = 2").removeprefix(b"a = 1\r\nb = 2")
    assert block.count(b"\n") == block.count(b"\r\n") > 16
    assert not block.endswith(b"\n")


def test_the_whole_block_of_one_entry_reads_like_this() -> None:
    assert installed(b"a = 1\n", WANTED[:1]).decode() == (
        "a = 1\n"
        "\n"
        "# >>> kimiaepd >>> kept by `kimiaepd setup`, which also removes it\n"
        "[[hooks]]\n"
        'event = "SessionStart"\n'
        "command = \"trap '' TERM; [ -S '/state/hook.sock' ] && [ -f '/data/shim.py' ]"
        " && [ -r '/data/shim.py' ] && [ -x '/usr/bin/python3' ] || exit 0;"
        " exec '/usr/bin/python3' -I -S '/data/shim.py' '/state/hook.sock' 0.25\"\n"
        "timeout = 10\n"
        "# <<< kimiaepd <<< new keys go above this block, or kimi takes them for its last hook's\n"
    )


# --- files with something of ours -------------------------------------------------------------


def test_what_came_after_the_block_stays_as_it_is() -> None:
    for after in (b"[b]\nc = 1\n", b"\n[b]\n\n# end", FOREIGN_HOOK, b"# just a comment\n"):
        assert uninstalled(installed(b"a = 1\n") + after) == b"a = 1\n" + after


def test_a_stale_block_is_refreshed_where_it_stands() -> None:
    text = installed(b"a = 1\n", wanted(shim="/old/shim.py")) + b"[b]\nc = 1\n"
    assert installed(text) == installed(b"a = 1\n") + b"[b]\nc = 1\n"


def test_a_second_block_goes() -> None:
    one = installed(b"a = 1\n") + b"[b]\nc = 1\n"
    two = one + installed(b"", wanted(shim="/old/shim.py"))
    assert len(ours(two)) == 32
    assert installed(two) == one
    assert uninstalled(two) == b"a = 1\n[b]\nc = 1\n"


def test_an_entry_too_few_or_too_many_makes_a_block_stale() -> None:
    for partial in (WANTED[1:], (*WANTED, WANTED[0])):
        plan = plan_install(installed(b"", partial[:16]) + b"", WANTED[:15], OLD)
        assert plan.action is Action.REFRESHED
        assert ours(plan.new) == sorted(WANTED[:15])


def test_the_vendors_rewriting_leaves_nothing_to_do() -> None:
    # No comments, another spelling, other tables around: as 0.28.0 writes the file.
    rewritten = b"\n\n".join(
        [b"a = 1"]
        + [
            f"[[hooks]]\ntimeout = {entry.timeout}\nevent = '{entry.event}'\n"
            f'command = """{entry.command}"""'.encode()
            for entry in reversed(WANTED)
        ]
        + [b"[loop_control]\nmax = 1\n"]
    )
    assert plan_install(rewritten, WANTED, OLD).action is Action.UNCHANGED
    refreshed = installed(rewritten, wanted(NEW), NEW)
    assert len(ours(refreshed)) == 20
    assert uninstalled(rewritten) == uninstalled(refreshed) == b"a = 1\n\n[loop_control]\nmax = 1\n"


def test_a_persons_comment_and_a_neighbours_hook_among_ours_stay() -> None:
    lines = installed(b"a = 1\n").splitlines(keepends=True)
    at = lines.index(b"[[hooks]]\n", 8)
    mixed = b"".join([*lines[:at], b"# a note of mine\n", FOREIGN_HOOK, *lines[at:]])
    assert uninstalled(mixed) == b"a = 1\n\n# a note of mine\n" + FOREIGN_HOOK
    refreshed = installed(mixed, wanted(shim="/new/shim.py"))
    assert b"# a note of mine\n" + FOREIGN_HOOK in refreshed
    assert ours(refreshed) == sorted(wanted(shim="/new/shim.py"))


def test_a_comment_inside_one_of_our_tables_stays() -> None:
    text = installed(b"").replace(b'event = "Stop"\n', b'# why?\nevent = "Stop"\n')
    assert uninstalled(text) == b"# why?\n"


def test_a_comment_at_the_end_of_one_of_our_lines_stays_on_a_line_of_its_own() -> None:
    end = b"\ntimeout = 10"
    noted = (
        installed(b"a = 1\n").replace(b"]]\n", b"]] # one\n", 1).replace(end, end + b" # two ", 1)
    )
    assert uninstalled(noted) == b"a = 1\n\n# one\n# two \n"
    assert uninstalled(noted[:-1]) == b"a = 1\n\n# one\n# two "
    assert uninstalled(noted.replace(b"\n", b"\r\n")) == b"a = 1\r\n\r\n# one\r\n# two \r\n"
    assert uninstalled(noted + b"[t]\n") == b"a = 1\n\n# one\n# two \n[t]\n"
    assert plan_install(noted, WANTED, OLD).action is Action.UNCHANGED
    refreshed = installed(noted, wanted(NEW), NEW)
    assert refreshed == installed(b"a = 1\n", wanted(NEW), NEW) + b"# one\n# two \n"
    assert uninstalled(refreshed) == b"a = 1\n# one\n# two \n"


def test_a_marker_that_stands_alone_goes_and_the_block_goes_to_the_end() -> None:
    for marker in (OPEN, CLOSE):
        old = marker + b"\na = 1\n[b]\n"
        assert installed(old) == installed(b"a = 1\n[b]\n")
        assert uninstalled(old) == b"a = 1\n[b]\n"


def test_a_changed_timeout_is_put_right() -> None:
    for other in (b"timeout = 30", b"timeout = 10.0", b""):
        text = installed(b"").replace(b"timeout = 10", other, 1)
        assert installed(text) == installed(b"")


# --- a placeholder ----------------------------------------------------------------------------

PLACEHOLDERS = {
    "alone": b"hooks = []",
    "alone with a newline": b"hooks = []\n",
    "among keys": b"a = 1\nhooks=[]\nb = 2\n\n[t]\nhooks = [1]\n",
    "with a comment": b"# a\n\thooks = [ ]  # mine, # too \t\n# b\n",
    "windows": b"a = 1\r\nhooks = [] # mine\r\n[t]\r\n",
    "quoted": b"a = 1\n'hooks' = []",
    "escaped": b'"\\u0068ooks" = []\nb = 1\n',
    "byte-order mark": BOM + b"hooks = []\n",
    "a string before it": b'a = """\nhooks = []\n"""\nhooks = []\n',
}


@pytest.mark.parametrize("old", PLACEHOLDERS.values(), ids=PLACEHOLDERS)
def test_an_empty_array_is_set_aside_and_comes_back_to_the_byte(old: bytes) -> None:
    plan = plan_install(old, WANTED, OLD)
    assert plan.action is Action.ADDED
    assert plan.new.replace(placeholder.PREFIX, b"").startswith(old)
    assert ours(plan.new) == sorted(WANTED)
    assert plan_install(plan.new, WANTED, OLD).action is Action.UNCHANGED
    assert uninstalled(plan.new) == old
    refreshed = installed(plan.new, wanted(NEW, "/elsewhere/shim.py"), NEW)
    assert uninstalled(refreshed) == old


def test_an_empty_array_reads_like_this_while_it_is_set_aside() -> None:
    assert installed(b"hooks = []  # none yet\nb = 1\n").startswith(
        b"# kimiaepd set aside until its hooks are removed: hooks = []  # none yet\nb = 1\n\n"
    )


ASIDE = placeholder.PREFIX + b"hooks = []"


@pytest.mark.parametrize(
    ("old", "left"),
    [
        # Another tool's hooks came: no such line can stand above them.
        (ASIDE + b"\na = 1\n" + FOREIGN_HOOK, b"a = 1\n" + FOREIGN_HOOK),
        (ASIDE + b" # mine\n" + FOREIGN_HOOK, b"# mine\n" + FOREIGN_HOOK),
        # A table came above it, so it would be a key of that.
        (b"[t]\n" + ASIDE + b"#x\nb = 1\n", b"[t]\n#x\nb = 1\n"),
        # It is there already, or twice.
        (b"hooks = []\n" + ASIDE + b"\n", b"hooks = []\n"),
        (ASIDE + b"\n" + ASIDE + b" # b\n", b"hooks = []\n# b\n"),
        (b"hooks = [{}]\n" + ASIDE, b"hooks = [{}]\n"),
        # Our block was cut out by hand.
        (b"a = 1\n" + ASIDE + b"\n[t]\n", b"a = 1\nhooks = []\n[t]\n"),
        # Somebody wrote something else there.
        (ASIDE + b"1\n", ASIDE + b"1\n"),
        (b'a = """\n' + ASIDE + b'\n"""\n', b'a = """\n' + ASIDE + b'\n"""\n'),
    ],
)
def test_an_empty_array_comes_back_only_where_it_fits(old: bytes, left: bytes) -> None:
    assert uninstalled(old) == left
    if b"{}" not in old:
        assert uninstalled(installed(old)) == left


def test_an_empty_array_that_the_vendor_forgot_does_not_come_back() -> None:
    rewritten = installed(b"hooks = []\na = 1\n").replace(ASIDE + b"\n", b"")
    assert uninstalled(rewritten) == b"a = 1\n"


# --- refusals ---------------------------------------------------------------------------------

REFUSED = {
    "does not parse": (b"a = 1\nb = \n", 2, "not TOML"),
    "a key twice": (b"a = 1\na = 2\n", 2, "not TOML"),
    "not UTF-8": (b"a = 1\n\nb = '\xe9'\n", 3, "not UTF-8"),
    "the end is missing": (b"a = 1\nb = [\n", 3, "not TOML"),
    "an empty array over lines": (b"a = 1\nb = 2\nhooks = [\n]\n", 3, "an empty array"),
    "an inline array": (b"hooks = [{event = 'Stop', command = 'x'}]", 1, "an inline array"),
    "a table": (b"a = 1\n[hooks]\nb = 1\n", 2, "no array of tables"),
    "a dotted key": (b"[t]\nhooks = 1\n[hooks.x]\nb = 1\n", 3, "no array of tables"),
    "a string": (b"hooks = 'none'\n", 1, "no array of tables"),
    "an array of other things": (b"hooks = [1, 2]\n", 1, "no array of tables"),
    "another's unknown key": (b"a=1\n" + FOREIGN_HOOK + b"yolo = true\n", 2, "no key 'yolo'"),
    "another's sub-table": (FOREIGN_HOOK + b"[hooks.env]\nA = '1'\n", 1, "no key 'env'"),
    "another's unknown event": (b"[[hooks]]\nevent='X'\ncommand='y'\n", 1, "no event 'X'"),
    "an event of a later release": (
        FOREIGN_HOOK + b'[[hooks]]\nevent = "TurnStarted"\ncommand = "x"\n',
        4,
        "kimi 0.28.0 knows no event 'TurnStarted'",
    ),
    "another's empty command": (b"[[hooks]]\nevent='Stop'\ncommand=''\n", 1, "no command"),
    "another's timeout": (FOREIGN_HOOK + b"timeout = 0\n", 1, "timeout"),
    "another's empty table": (b"a = 1\n\n[[hooks]]\n", 3, "no event"),
}


@pytest.mark.parametrize(("old", "line", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_extended_is_refused_with_its_line(
    old: bytes, line: int, reason: str
) -> None:
    with pytest.raises(EditRefusedError, match=reason) as caught:
        plan_install(old, WANTED, OLD)
    assert caught.value.line == line
    assert caught.value.remedy


REMEDIES = {
    "an empty array over lines": (
        b"a = 1\nb = 2\nhooks = [\n # c\n]\n[t]\n",
        "delete lines 3 to 5, then run this again; the daemon itself can run meanwhile: kimiaepd",
        b"a = 1\nb = 2\n[t]\n",
    ),
    "an inline array": (
        b'hooks = [{event = "Stop", command = "say done"}]\nb = 2\n[t]',
        "delete line 1, write each of its hooks as a [[hooks]] table at the file's end, then",
        b"b = 2\n[t]\n" + FOREIGN_HOOK,
    ),
    "a string": (b"a = 1\nhooks = 'none'\n", "delete line 2, ", b"a = 1\n"),
    "a table": (b"[hooks]\na = 1\n[t]\n", "delete the table at line 1, ", b"[t]\n"),
}


@pytest.mark.parametrize(("old", "said", "mended"), REMEDIES.values(), ids=REMEDIES)
def test_who_does_what_a_refusal_says_can_install(old: bytes, said: str, mended: bytes) -> None:
    with pytest.raises(EditRefusedError) as caught:
        plan_install(old, WANTED, OLD)
    assert caught.value.remedy.startswith(said)
    assert plan_install(mended, WANTED, OLD).action is Action.ADDED


def test_deep_nesting_and_endless_numbers_are_refused_not_crashed_on() -> None:
    for old in (b"a = " + b"[" * 100_000 + b"]" * 100_000, b"a = " + b"1" * 5000):
        with pytest.raises(EditRefusedError):
            plan_install(old, WANTED, OLD)


@pytest.mark.parametrize(
    "below", [b"yolo = true\n", b"\n# mine\nyolo = true\n[b]\n", b"yolo.b=1\n"]
)
def test_a_key_below_our_block_is_refused_with_its_line(below: bytes) -> None:
    text = installed(b"a = 1\n") + below
    for change in (installed, uninstalled):
        with pytest.raises(EditRefusedError, match="`yolo` stands inside our last") as caught:
            change(text)
        assert text.split(b"\n")[(caught.value.line or 0) - 1].startswith(b"yolo")


@pytest.mark.parametrize(
    ("below", "said", "mended"),
    [
        (b"yolo = true\n", "move it above the first table", (b"yolo = true\n", b"")),
        (b"yolo = true\n[t]\n", "move it above the first table", (b"", b"[t]\nyolo = true\n")),
        (b"hooks = []\n[t]\n", "delete it, ", (b"", b"[t]\n")),
        (b"[hooks.env]\nA = 1\n[t]\n", "delete that table, ", (b"", b"[t]\n")),
        (b'matcher = "Bash"\n', "remove it, ", (b"", b"")),
    ],
)
def test_who_does_what_is_said_of_a_key_below_our_block_can_go_on(
    below: bytes, said: str, mended: tuple[bytes, bytes]
) -> None:
    text = installed(b"a = 1\n")
    with pytest.raises(EditRefusedError) as caught:
        plan_install(text + below, WANTED, OLD)
    assert caught.value.remedy.startswith(said)
    first, last = mended
    assert plan_install(first + text + last, WANTED, OLD).action is Action.UNCHANGED
    assert uninstalled(first + text + last) == first + b"a = 1\n" + last


def test_a_key_in_the_midst_of_ours_is_not_said_to_be_in_the_last() -> None:
    bad = installed(b"").replace(b"[[hooks]]\n", b"[[hooks]]\nyolo = true\n", 1)
    with pytest.raises(
        EditRefusedError, match=r"line 3: `yolo` stands inside a \[\[hooks\]\] table"
    ):
        plan_install(bad, WANTED, OLD)


def test_a_table_of_our_hook_is_refused_also_where_it_comes_later() -> None:
    text = installed(b"") + b"[other]\nb = 1\n[hooks.env]\nc = 1\n"
    with pytest.raises(EditRefusedError, match="`env`") as caught:
        plan_uninstall(text)
    assert text.split(b"\n")[(caught.value.line or 0) - 1] == b"[hooks.env]"


def test_a_matcher_on_our_hook_is_refused_by_install_and_goes_with_uninstall() -> None:
    text = installed(b"").replace(b"timeout = 10\n", b'timeout = 10\nmatcher = "Bash"\n', 1)
    with pytest.raises(EditRefusedError, match="`matcher` was added") as caught:
        plan_install(text, WANTED, OLD)
    assert caught.value.line == 6
    assert uninstalled(text) == b""


def test_uninstall_minds_nothing_that_others_wrote() -> None:
    bad = b"[[hooks]]\nevent = 'Nonsense'\nyolo = 1\n\n"
    assert uninstalled(bad + installed(b"")) == bad[:-1]
    for old, _, reason in REFUSED.values():
        if not reason.startswith("not "):
            assert plan_uninstall(old).action is Action.UNCHANGED


def test_ours_in_an_inline_array_are_not_cut_out() -> None:
    old = f"hooks = [{{event = 'Stop', command = {WANTED[0].command!r}}}]\n".encode()
    assert tomllib.loads(old.decode())
    with pytest.raises(EditRefusedError, match="an inline array"):
        plan_uninstall(old)


def test_an_event_that_the_release_does_not_know_is_never_written() -> None:
    for version in (OLD, None):
        with pytest.raises(EditRefusedError, match="schema"):
            plan_install(b"", wanted(NEW), version)


def lose_the_comments(raw: bytes) -> bytes:
    return raw.replace(b"# mine\n", b"")


def lose_a_key(raw: bytes) -> bytes:
    return raw.replace(b"a = 1\n", b"")


def change_a_value(raw: bytes) -> bytes:
    return raw.replace(b"a = 1", b"a = 2")


def swap_two_hooks(raw: bytes) -> bytes:
    one, two = FOREIGN_HOOK, FOREIGN_HOOK.replace(b"Stop", b"Interrupt")
    return raw.replace(one + two, two + one)


def leave_an_entry_out(raw: bytes) -> bytes:
    return raw.replace(b'event = "Interrupt"\ncommand = "trap', b'event = "Stop"\ncommand = "trap')


def break_it(raw: bytes) -> bytes:
    return raw + b"\n="


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lose_the_comments, "something that is not ours would change"),
        (lose_a_key, "something that is not ours would change"),
        (change_a_value, "something that is not ours would change"),
        (swap_two_hooks, "something that is not ours would change"),
        (leave_an_entry_out, "our hooks would not be the intended ones"),
        (break_it, "it does not parse"),
    ],
)
def test_an_edit_that_went_wrong_is_found_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes], said: str
) -> None:
    old = b"# mine\na = 1\n" + FOREIGN_HOOK + FOREIGN_HOOK.replace(b"Stop", b"Interrupt")
    new = plan_install(old, WANTED, OLD).new
    assert damage(new) != new
    monkeypatch.setattr(block, "put", lambda *_: damage(new))
    with pytest.raises(EditRefusedError, match=f"the edited file would be wrong: {said}"):
        plan_install(old, WANTED, OLD)


# --- warnings ---------------------------------------------------------------------------------


def test_a_byte_order_mark_is_kept_and_warned_about() -> None:
    plan = plan_install(BOM + b"a = 1\n", WANTED, OLD)
    assert plan.new.startswith(BOM + b"a = 1\n")
    assert "byte-order mark" in plan.warnings[0]


def test_a_number_that_javascript_cannot_hold_is_warned_about_with_its_line() -> None:
    for great in (b"9007199254740992", b"[{ b = -9007199254740992 }]"):
        (warning,) = plan_install(b"[t]\na = " + great, WANTED, OLD).warnings
        assert warning.startswith("line 2: kimi refuses to read")
    assert plan_install(b"a = 9007199254740991", WANTED, OLD).warnings == ()


def test_an_event_that_nobody_here_has_heard_of_is_warned_about_with_its_line() -> None:
    old = FOREIGN_HOOK + b'[[hooks]]\nevent = "TurnStarted"\ncommand = "x"\n'
    assert plan_install(old, wanted(NEW), NEW).warnings == ()
    (warning,) = plan_install(old, WANTED, None).warnings
    assert warning.startswith("line 4: ")
    assert "TurnStarted" in warning
