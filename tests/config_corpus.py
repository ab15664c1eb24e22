r"""Config files as people, tools and the vendor leave them, and what becomes of each.

Every sample says what it expects: that our hooks can be installed and taken out again, leaving
`without` (the file itself, unless it holds something of ours already), or that an install is
refused, with how the line begins that it names and the reason.

The generated ones come from a fixed seed, so they are the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from attrs import frozen

BOM = b"\xef\xbb\xbf"


@frozen
class Sample:
    """One config file.

    Attributes:
        name: what is odd about it.
        raw: its bytes.
        without: what an uninstall must leave of it.
        refused: how the line begins that a refused install names, and a part of the reason; None
            where the file is handled.
        keeps_ours: whether an uninstall is refused for the same reason.
    """

    name: str
    raw: bytes
    without: bytes
    refused: tuple[bytes, str] | None = None
    keeps_ours: bool = False


def samples() -> list[Sample]:
    """All of them."""
    return [*_handled(), *_with_ours(), *_refused()]


# --- what others write ------------------------------------------------------------------------

HOOK = """\
[[hooks]]
event = "Stop"
command = "say done"
"""

KIMI = """\
# ~/.kimi-code/config.toml
default_model = "kimi-k2"   # the cheap one
default_thinking = true
telemetry = false

[providers.moonshot]
type = "kimi"
base_url = "https://api.moonshot.example/v1"
api_key = "sk-not-a-key"
[providers.moonshot.custom_headers]
"X-Team" = 'a "quoted" team'

[models.kimi-k2]
provider = "moonshot"
model = "kimi-k2-0905-preview"
max_context_size = 262_144
capabilities = [ "thinking", # both
  "image_in",
]

[loop_control]
max_steps_per_turn = 100
max_retries_per_step = 3 # enough

[services.moonshot_search]
base_url = "https://search.moonshot.example"
api_key = ""

[mcp.client]
tool_call_timeout_ms = 60_000
"""

PEON = """\
# >>> peon-ping >>>
[[hooks]]
event = "SessionStart"
command = "bash '/home/ann/.peon/hook.sh' # start"

[[hooks]]
event = "Stop"
matcher = ""
command = '''
bash /home/ann/.peon/hook.sh
'''
timeout = 5
# <<< peon-ping <<<
"""

SPELT: dict[str, str] = {
    "nothing": "",
    "one newline": "\n",
    "only blanks": " \t\n\n  ",
    "only comments": "# one\n\n  # two\n#\n",
    "a comment without newline": "# one",
    "one key": "a = 1\n",
    "one key without newline": "a = 1",
    "trailing blanks": "a = 1   \n[t]\t\nb = 2 \t\n   \n\n\n",
    "comments everywhere": "#\n#a\na = 1 #b\n\n[t] # d [[hooks]]\n# e\nb = [ # f\n1, # g\n] # h\n",
    "dotted keys": 'a.b.c = 1\na."hooks".d = []\na . x = 2\n',
    "quoted keys": "\"a b\" = 1\n'c\"d' = 2\n\"\" = 3\n\"[[hooks]]\" = 4\n\"# x\" = 5\n",
    "unicode": '"schlüssel" = "€ 名前 😀"\n"\\u0061" = "\\U0001F600"\n# ünï\n',
    "unicode line ends in text": 'a = "x\x85y\u2028z\u2029"\n# a\x85b\u2028c\u2029d\n[t]\nb = 1\n',
    "a tab and a delete in an escape": 'a = "\\t\t\\u007f\\u0000\\b\\f\\r"\n',
    "hooks in a basic string": 'a = """\n[[hooks]]\nevent = "Nonsense"\nhooks = []\n"""\nb = 1\n',
    "hooks in a literal string": "a = '''\n[[hooks]]\n[hooks]\nhooks = 1\n'''\n",
    "markers in strings": (
        'a = """\n# >>> kimiaepd >>>\n[[hooks]]\n# <<< kimiaepd <<<"""\n'
        "b = '''\n# <<< kimiaepd <<<\n'''\n"
    ),
    "quotes in strings": "a = '''''x'''''\nb = \"\"\"\"\"y\\\"\"\"\"\"\"\nc = '\"'\nd = \"'\"\n",
    "a folded string": 'a = """one \\\n\n   two \\\\\n[[hooks]]"""\n',
    "an array over lines": "a = [\n  # [[hooks]]\n  [ 1,\n\n  2 ], # ]\n  '#]', \"]\",\n]\n",
    "inline tables": "a = { b = { c = ']}' }, 'd' = [ { e = 1 } ] } # }\n",
    "odd numbers": "a = nan\nb = -inf\nc = -0.0\nd = 0xDEAD_beef\ne = 1e400\nf = 5e-324\n",
    "dates": "a = 1979-05-27T07:32:00.5Z\nb = 1979-05-27 07:32:00+01:30\nc = 07:32:00\n",
    "hooks in a table": '[t]\nhooks = []\n[u.hooks]\nevent = "x"\n',
    "hooks of another table": '[[t.hooks]]\nevent = "x"\n[t.hooks.env]\nA = "1"\n',
    "names like hooks": "[Hooks]\na = 1\n[hooks2]\nb = 1\n[[hook]]\nc = 1\n['hooks ']\nd = 1\n",
    "a table out of order": "[a.b]\nc = 1\n[d]\n[a]\ne = 1\n",
    "arrays of tables": "[[a]]\nb = 1\n[[a.c]]\nd = 1\n[[a.c]]\n[[a]]\n",
    "an indented file": "  a = 1\n\n  [t]\n\tb = 2\n    [t.u]\n    c = [\n    ]\n",
    "another's hook": HOOK,
    "another's hook without newline": HOOK.rstrip(),
    "another's hook quoted": "[[ \"hooks\" ]]\nevent = 'Stop'\n'command' = \"\"\"say\"\"\"\n",
    "another's hook escaped": '[["\\u0068ooks"]]\n"\\u0065vent" = "Stop"\ncommand = "x"\n',
    "another's hook with comments": (
        "# a\n[[hooks]] # b\n# c\nevent = 'Stop' # d\ncommand = 'x' # e\n# f"
    ),
    "hooks and tables in turn": HOOK + "[t]\na = 1\n\n" + HOOK + "\n[u] # end\n" + HOOK + "# end\n",
    "tables after hooks": HOOK + "\n[loop_control]\nmax_steps_per_turn = 10\n",
    "a markers line in a hook": HOOK + "timeout = 5\n# kimiaepd set aside until: never\n",
    "another's markers": PEON,
    "a hook that only looks like ours": (
        "[[hooks]]\nevent = 'Stop'\ncommand = \"kimiaepd hook --socket /run/x/hook.sock\"\n"
        "[[hooks]]\nevent = 'Stop'\ncommand = \"trap '' TERM; [ -S '/s' ] && true || exit 0\"\n"
    ),
    "kimi's own": KIMI,
    "kimi's own with others' hooks": KIMI + "\n" + PEON,
    "others' hooks before kimi's own": "theme = 'dark'\n" + PEON + KIMI.partition("false\n")[2],
    "a very long line": 'a = "' + "[[hooks]] # " * 1000 + '"\nb = [' + "1, " * 300 + "]\n",
    "many blank lines": "a = 1\n" + "\n" * 500 + "[t]\n" + "\n" * 500,
    "a placeholder": "a = 1\nhooks = []\nb = 2\n[t]\n",
    "a placeholder alone without newline": "hooks = []",
    "a placeholder with a comment": "# a\n  hooks = [ ]\t# mine, # too  \n\n[t] # hooks = []\n",
    "a placeholder quoted": "'hooks' = []\n",
    "a placeholder escaped": '"\\u0068ooks" =[ ] # [[hooks]]\n',
    "a placeholder in kimi's own": KIMI.replace("telemetry", "hooks = []\ntelemetry"),
    "a placeholder below its likeness": 'a = """\nhooks = []\n"""\nhooks = []\n[t]\nhooks = []\n',
}  # fmt: skip
"""Files that hold nothing of ours and are handled."""

BYTES: dict[str, bytes] = {
    "only a byte-order mark": BOM,
    "a byte-order mark": BOM + KIMI.encode(),
    "a byte-order mark and a placeholder": BOM + b"hooks = []",
    "windows": KIMI.replace("\n", "\r\n").encode(),
    "windows without a final newline": b"a = 1\r\n[t]\r\nb = 2",
    "windows, blank lines last": b"a = 1\r\n\r\n\r\n",
    "windows with others' hooks": PEON.replace("\n", "\r\n").encode(),
    "windows with a placeholder": b"hooks = [] # mine\r\n[t]\r\n",
    "mixed newlines": b"a = 1\r\nb = '''\nx\r\n'''\r\n# c\n[t]\r\n" + HOOK.encode(),
    "mixed newlines, windows last": HOOK.encode() + b"[t]\r\n",
    "a byte-order mark and windows": BOM + b"\r\n# a\r\n",
}


def _handled() -> Iterator[Sample]:
    texts = {name: text.encode() for name, text in SPELT.items()}
    for name, raw in (texts | BYTES | _generated(30)).items():
        yield Sample(name, raw, without=raw)


def _generated(count: int) -> dict[str, bytes]:
    """Files put together from pieces of the others, in an order that only chance knows."""
    dice = random.Random(20260101)
    keys = [
        "k{} = '''\n[[hooks]]\n'''", 'k{} = "#"', "k{} = [ # c\n]", "k{}.hooks = {{ a = 1 }}",
        "  'k {}' = 1 # c", "# c{}", "", "\t",
    ]  # fmt: skip
    tables = [
        "[t{}]\na = 1", "[[t{}]]", "[t{}.hooks] # c\nb = []", HOOK.rstrip(), HOOK + "timeout = 5.0",
        PEON.rstrip(), "# c{}", "", "[[ 'hooks' ]]\nevent = 'Interrupt'\ncommand = '{{}}'",
    ]  # fmt: skip
    made = {}
    for number in range(count):
        pieces = dice.choices(keys, k=dice.randrange(5)) + dice.choices(tables, k=dice.randrange(6))
        text = "\n".join(
            piece.format(at) if "hooks]]" not in piece or "{}" in piece else piece
            for at, piece in enumerate(pieces)
        )
        newline = dice.choice(["\n", "\n", "\r\n"])
        text += dice.choice(["", "\n", "\n\n"])
        made[f"generated {number}"] = text.replace("\n", newline).encode()
    return made


# --- what is ours already ---------------------------------------------------------------------

COMMAND = (
    "trap '' TERM; [ -S '/state/hook.sock' ] && [ -f 'SHIM' ] && [ -r 'SHIM' ]"
    " && [ -x '/usr/bin/python3' ] || exit 0;"
    " exec '/usr/bin/python3' -I -S 'SHIM' '/state/hook.sock' 0.25"
)


def entry(event: str = "Stop", shim: str = "/an/old place/shim.py", rest: str = "") -> str:
    """One table of ours."""
    command = COMMAND.replace("SHIM", shim)
    return f'[[hooks]]\nevent = "{event}"\ncommand = "{command}"\ntimeout = 10\n{rest}'


def block(*events: str) -> str:
    """A block of ours, with its markers."""
    tables = "\n".join(entry(event) for event in events or ("Stop", "Interrupt"))
    return f"# >>> kimiaepd >>> kept\n{tables}# <<< kimiaepd <<< end\n"


BARE = entry().replace('"', "'''") + "\n" + entry("Interrupt")

OURS: dict[str, tuple[str, str]] = {
    "our block alone": (block(), ""),
    "our block in the middle": (f"a = 1\n\n{block()}\n[t]\nb = 1\n", "a = 1\n\n[t]\nb = 1\n"),
    "our block first": (f"{block()}\n[t]\nb = 1\n", "\n[t]\nb = 1\n"),
    "our block between hooks": (HOOK + "\n" + block() + PEON, HOOK + PEON),
    "two blocks of ours": (
        f"a = 1\n\n{block()}[t]\nb = 1\n\n{block('PreToolUse')}", "a = 1\n[t]\nb = 1\n",
    ),
    "two blocks together": ("a = 1\n\n" + block() + "\n" + block("Notification"), "a = 1\n"),
    "a block within a block": (
        block().replace("\n[[hooks]]", "\n" + block("Notification") + "\n[[hooks]]", 1), "",
    ),
    "a block without its end": (
        f"a = 1\n\n{block().rpartition('# <<<')[0]}\n[t]\n", "a = 1\n\n[t]\n",
    ),
    "a block without its beginning": (
        f"a = 1\n{block().partition('kept')[2]}# mine\n", "a = 1\n# mine\n",
    ),
    "markers without entries": (
        "a = 1\n# >>> kimiaepd >>> kept\n# <<< kimiaepd <<< end\n[t]\n", "a = 1\n[t]\n",
    ),
    "an end before its beginning": ("# <<< kimiaepd <<<\n# mine\n# >>> kimiaepd >>>\n", "# mine\n"),
    "entries without markers": (f"a = 1\n\n{BARE}\n[t]\n", "a = 1\n\n[t]\n"),
    "entries scattered": (
        f"{entry()}# one\n{HOOK}\n{entry('Interrupt')}\n[t]\n{entry()}# end",
        f"# one\n{HOOK}\n[t]\n# end",
    ),
    "entries without a final newline": ("a = 1\n\n\n" + BARE.rstrip(), "a = 1\n"),
    "a note among our lines": (
        block().replace("command", "# a note\ncommand", 1), "# a note\n",
    ),
    "notes at the ends of our lines": (
        f"a = 1\n{entry().replace(']]', ']] # one')}{entry(rest='# two')}".replace("10", "10\t# 3"),
        "a = 1\n# one\n# 3\n# 3\n# two",
    ),
    "an entry too many and one spoilt": (
        entry() + entry() + entry("Nonsense").replace("timeout = 10", "timeout = 0"), "",
    ),
    "what the vendor made of it": (
        f'a = 1\n\n[t]\nb = "c"\n\n{HOOK}\n{BARE}\n[u]\nc = 1\n',
        f'a = 1\n\n[t]\nb = "c"\n\n{HOOK}\n[u]\nc = 1\n',
    ),
    "a placeholder set aside": (
        f"# kimiaepd set aside until its hooks are removed: hooks = [] # mine\n\n{block()}",
        "hooks = [] # mine\n",
    ),
    "a placeholder set aside, other hooks since": (
        f"# kimiaepd set aside until its hooks are removed: hooks=[] # mine\n{HOOK}\n{block()}",
        f"# mine\n{HOOK}",
    ),
}  # fmt: skip
"""Files that hold something of ours, and what an uninstall leaves of each."""


def _with_ours() -> Iterator[Sample]:
    for name, (text, without) in OURS.items():
        yield Sample(name, text.encode(), without.encode())
        raw, left = (part.replace("\n", "\r\n").encode() for part in (text, without))
        yield Sample(f"{name}, windows", raw, left)


# --- what is refused --------------------------------------------------------------------------

TABLES, INLINE = "no array of tables", "an inline array"

REFUSED: dict[str, tuple[str, str, str]] = {
    "half a file": ("a = 1\n[t\n", "[t", "not TOML"),
    "half a string": ('a = 1\nb = """\n[[hooks]]\n', "", "not TOML"),
    "a key twice": ("a = 1\n[t]\nb = 1\nb = 2\n", "b = 2", "not TOML"),
    "a placeholder that is followed": (f"hooks = []\n\n{HOOK}", "[[hooks]]", "not TOML"),
    "a form feed": ("a = 1\n# \f\n", "# \f", "not TOML"),
    "a NUL": ("a = 1\n\0\n", "\0", "not TOML"),
    "an old Mac's newlines": ("a = 1\rb = 2\r", "a = 1\rb", "not TOML"),
    "a stray carriage return": ("[t]\na = 1 # b\rc\n", "a = 1 # b\rc", "not TOML"),
    "a placeholder over lines": ("a = 1\nhooks = [\n  # soon\n]\n[t]\n", "hooks", "over several"),
    "an inline array": ("hooks = [ { event = 'Stop', command = 'x' } ]\n", "hooks", INLINE),
    "an inline array over lines": (
        "a = '''\nhooks\n'''\n'hooks' = [ # c\n  { event = 'Stop', command = 'x' },\n]\n",
        "'hooks'", INLINE,
    ),
    "an array of numbers": ("hooks = [1]\n", "hooks", TABLES),
    "a string": ('"hooks" = "none"\n', '"hooks"', TABLES),
    "an empty inline table": ("a = 1\nhooks = {}\n", "hooks", TABLES),
    "a dotted key": ("a = 1\nhooks.x = 1\nhooks.y = 1\n", "hooks.x", TABLES),
    "a table": ("[t]\nhooks = 1\n[hooks] # c\nx = 1\n", "[hooks]", TABLES),
    "a table within": ("[t]\na = 1\n[ 'hooks' . x ]\n", "[ 'hooks'", TABLES),
    "an array of tables within": ("[[hooks.x]]\na = 1\n", "[[hooks.x]]", TABLES),
    "another's key too many": (f"a = 1\n{HOOK}async = true\n", "[[hooks]]", "no key 'async'"),
    "another's sub-table": (f"{HOOK}[hooks.env]\nA = 'b'\n[t]\n", "[[hooks]]", "no key 'env'"),
    "another's sub-array": (f"{HOOK}[[hooks.env]]\nA = 'b'\n", "[[hooks]]", "no key 'env'"),
    "another's key below its hook": (f"{PEON}yolo = true\n", "[[hooks]]", "no key 'yolo'"),
    "another's event": ("[[hooks]]\nevent = 'OnStop'\ncommand = 'x'\n", "[[hooks]]", "'OnStop'"),
    "another's half timeout": (f"{HOOK}timeout = 2.5\n", "[[hooks]]", "timeout"),
    "another's true timeout": (f"{HOOK}timeout = true\n", "[[hooks]]", "timeout"),
    "another's empty entry": (f"{HOOK}\n[[hooks]] # empty\n", "[[hooks]] # empty", "no event"),
    "another's command as a list": ("[[hooks]]\nevent = 'Stop'\ncommand = []\n", "[[h", "string"),
}  # fmt: skip
"""Files without ours: how the line begins that is named, and the reason. An uninstall finds
nothing to do in those that parse."""

REFUSED_WITH_OURS: dict[str, tuple[str, str, str]] = {
    "a key below our block": (block() + "yolo = true\n", "yolo", "`yolo` stands inside"),
    "a dotted key below our block": (block() + "\n# c\na.b = 1\n[t]\n", "a.b", "`a` stands"),
    "a placeholder below our block": (block() + "hooks = []\n", "hooks", "`hooks` stands"),
    "a table of our hook": (block() + "[t]\n[hooks.env]\nA = 'b'\n", "[hooks.env]", "`env`"),
    "ours in an inline array": (
        f"hooks = [ {{ event = 'Stop', command = \"{COMMAND}\" }} ]\n", "hooks", INLINE,
    ),
}  # fmt: skip


def _refused() -> Iterator[Sample]:
    for name, (text, line, reason) in (REFUSED | REFUSED_WITH_OURS).items():
        keeps_ours = name in REFUSED_WITH_OURS or reason == "not TOML"
        raw = text.encode()
        yield Sample(name, raw, raw, (line.encode(), reason), keeps_ours)
    yield Sample("latin 1", b"a = 1\nb = '\xe9'\n", b"", (b"b = '", "not UTF-8"), keeps_ours=True)
    yield Sample("utf-16", "a = 1\n".encode("utf-16"), b"", (b"\xff", "not UTF-8"), keeps_ours=True)
