r"""What a secret looks like in text, and which names announce one: AEP-0003 section 9.4 (a).

Four ways to know one, each a finder that yields the spans of the secrets alone:
- by its issuer's mark (`ghp_...`, `AKIA...`, a JWT): the table `_ISSUED`;
- by the name before it (`password: x`, `"api_key": "x"`, `--token x`): the table `_NAMES`;
- by where it stands (`scheme://user:x@`, `Bearer x`, `curl -u user:x`): the table `_PLACED`;
- by its frame (`-----BEGIN ...-----`), also where a cut took one end of it.

Rules:
- Every pattern reads its input in linear time: what may repeat without bound is possessive, and
  what was read and found harmless is consumed, so that no later start reads it again.
- A finder runs only where a word that it cannot do without is in the text. Most texts have none.
- Names are compared in lower case, on a copy whose characters stand where the original's do.
- In doubt a value after such a name is a secret. Not in doubt: literals, types, and references to
  a variable (`_HARMLESS`); nobody is helped by a redacted `${DB_PASSWORD}`.

Out of reach: encoded secrets (base64, hex), names in another alphabet, and names in prose
("the password is x").
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterator
from typing import TypeAlias

from kimiaepd.mapping.json_value import JSON

Span: TypeAlias = tuple[int, int]

# --- By the issuer's mark. A pattern whose group `secret` took no part met a harmless look-alike.

_ISSUED: tuple[tuple[str, str], ...] = (
    ("AKIA", r"(?P<secret>AKIA[A-Z0-9]{16,}+)"),  # AWS access key id, lasting
    ("ASIA", r"(?P<secret>ASIA[A-Z0-9]{16,}+)"),  # AWS access key id, temporary
    ("eyJ", r"(?P<secret>eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)*+)|eyJ[\w-]*+"),  # JWT, JWE
    ("gh", r"(?P<secret>gh[oprsu]_[A-Za-z0-9]{16,}+)"),  # GitHub
    ("github_pat_", r"(?P<secret>github_pat_\w{16,}+)"),
    ("gl", r"(?P<secret>gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat|sa)[-_][\w.-]{16,}+)"),
    ("xox", r"(?P<secret>xox[a-z]-[\w-]{8,}+)"),  # Slack
    ("xapp-", r"(?P<secret>xapp-[\w-]{16,}+)"),
    ("hooks.slack.com/", r"hooks\.slack\.com/(?P<secret>[\w/-]{16,}+)"),
    # OpenAI, Anthropic, Moonshot, OpenRouter; a digit tells a key from `sk-loading-spinner`.
    ("sk-", r"(?<![A-Za-z0-9])(?:(?P<secret>sk-(?=[A-Za-z_-]*+\d)[\w-]{16,}+)|sk-[\w-]*+)"),
    ("AIza", r"(?P<secret>AIza[\w-]{30,}+)"),  # Google
    ("ya29.", r"(?P<secret>ya29\.[\w.-]{16,}+)"),
    ("GOCSPX-", r"(?P<secret>GOCSPX-[\w-]{16,}+)"),
    ("_live_", r"(?P<secret>(?:sk|rk|pk)_live_[A-Za-z0-9]{8,}+)"),  # Stripe
    ("_test_", r"(?P<secret>(?:sk|rk)_test_[A-Za-z0-9]{8,}+)"),
    ("whsec_", r"(?P<secret>whsec_[A-Za-z0-9+/=]{16,}+)"),
    ("npm_", r"(?P<secret>npm_[A-Za-z0-9]{30,}+)"),
    ("pypi-", r"(?P<secret>pypi-AgE[\w-]{16,}+)"),
    ("hf_", r"(?P<secret>hf_[A-Za-z0-9]{30,}+)"),
    ("dckr_pat_", r"(?P<secret>dckr_pat_[\w-]{16,}+)"),
    ("_v1_", r"(?P<secret>do[oprt]_v1_[0-9a-f]{32,}+)"),  # DigitalOcean
    ("hvs.", r"(?P<secret>hvs\.[\w-]{20,}+)"),  # HashiCorp Vault
    ("SG.", r"(?P<secret>SG\.[\w-]{16,}+\.[\w-]{16,}+)"),  # SendGrid
    ("shp", r"(?P<secret>shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}+)"),  # Shopify
    ("dapi", r"(?P<secret>dapi[0-9a-f]{32,}+)"),  # Databricks
    ("AGE-SECRET-KEY-", r"(?P<secret>AGE-SECRET-KEY-1[A-Z0-9]{16,}+)"),
    (":AA", r"(?P<secret>(?<!\d)\d{8,10}:AA[\w-]{30,}+)"),  # Telegram
)

# --- By the name before it.

_KEYS = (
    "access account anthropic api app auth client consumer deploy encryption hmac license master "
    "moonshot openai private secret service session shared signing ssh storage subscription webhook"
)
_PASSES = "admin auth db ftp http key login mail mysql pg redis root smtp ssh sudo user"


def _after(owners: str, word: str) -> str:
    """A lookbehind from the end of the word: is it `api_key`, `api-key` or `apikey`?"""
    return "|".join(rf"(?<={owner}{word})|(?<={owner}[_. -]{word})" for owner in owners.split())


_ALONE = r"(?<![a-z_]pass)(?=[\"']?\s?[=:]\s?[\"'`])"  # {pass: "x"}, but no count of passes
_NAMES: tuple[tuple[str, str], ...] = (
    # a word that every such name has, and how the name goes on from there to its end
    ("pass", rf"pass(?:(?:word|wd|code|phrase)s?|{_after(_PASSES, 'pass')}|{_ALONE})"),
    ("pwd", r"pwd(?<!oldpwd)(?![\"']?\s?[=:]\s?[\"']?[/~])"),  # PWD=/srv is a directory
    ("secret", r"secret(?<!redacted:secret)s?"),  # the marker names none
    ("token", r"token"),  # not `tokens`: those are counted
    ("key", rf"key(?:{_after(_KEYS, 'key')})s?"),
    ("authorization", r"authorization"),
    ("credential", r"credentials?"),
    ("jwt", r"jwt"),
    ("_auth", r"_auth(?<!\w_auth)"),
    ("connection", r"connection[_ -]?string"),
)
_QUALIFIER = (
    r"(?:[_-]?(?:base|default|dev|hash|live|new|old|plain|primary|prod|production|raw|secondary|"
    r"staging|string|test|text|value|\d{1,3}))?"
)

_QUOTE = r"\\{0,3}(?:\"\"\"|'''|[\"'`])"
_TYPE = r"(?:str|string|bytes|any|optional\[str\]|secretstr)(?:[ \t]*+[|?][ \t]*+\w{0,9})?"
_ASSIGNED = "|".join(
    (
        rf":[ \t]*+{_TYPE}[ \t]*+=",  # password: str = "x"
        rf"=(?:={{1,2}}|>)(?=[ \t]*+{_QUOTE})",  # password == "x", :password => "x"
        r"=(?![=>])",
        r"[:\uff1a](?:=|(?![:/]))",
        r">(?=[^<>\n]{1,200}</)",  # <password>x</password>
        rf"(?:(?<=word)|(?<=phrase))\((?={_QUOTE})",  # withPassword("x")
        r",?\s{0,40}\\{0,3}[\"']?value\\{0,3}[\"']?[ \t]*+[=:]",  # name: PASSWORD, value: x
    )
)
# On the next line stands a value that a "=" awaits, or that a ":" does: quoted, alone on its line,
# or with a digit. What else follows a ":" there is a mapping, a block of code, or a list.
_NEXT_LINE = (
    rf"\r?\n[ \t]*+(?:(?<==\n)|(?![\w.-]{{1,60}}:(?:\s|\Z))"
    rf"(?={_QUOTE}|\S{{0,40}}\d|[^\s()]++[ \t]*+(?:[\r\n]|\Z)))"
)
_BETWEEN = (
    rf"{_QUALIFIER}\\{{0,3}}[\"'`]?\]?(?:\*\*)?[ \t]*+(?>{_ASSIGNED})(?:\*\*)?[ \t]*+"
    r"(?:[|>][+-]?[ \t]*+(?=\r?\n))?"  # a YAML block
    rf"(?:{_NEXT_LINE})?(?:\[(?!redacted:)[ ]?)?"
)
# Inside a bare value a separator is a character like any other, unless what follows says that the
# value has ended: nothing, another separator, or the next pair.
_BARE = (
    r"(?!\{(?:[\s\"'\\}]|\Z))"
    r"(?:\[redacted:\w{1,9}\]|[^\s\\\"'`,;&)\]}<]|\\(?![\"'`])"
    r"|[\"'`,;&)\]}<](?![\s\"'`\\,;:&)\]}</]|\Z|\[redacted:|[\w.-]{1,40}[=:]))++"
)
# In `"?token=" + x` the quote closes; in `token="x"` and `"token":"x"` it opens.
_OPENS = r"(?:(?<![=:][\"'`])|(?<=[\"'`][=:][\"'`])|(?![\s,;)\]}+]))"
_VALUE = (
    r"(?:(?:apikey|basic|bearer|bot|digest|negotiate|token)[ \t]++)?"
    rf"(?:[a-z@$]{{0,2}}(?P<quote>{_QUOTE}){_OPENS}(?P<quoted>(?:(?!(?<!\\)(?P=quote))[^\n])++)"
    rf"|(?P<bare>{_BARE}))"
)
_HARMLESS = re.compile(
    r"(?:(?i:apikey|basic|bearer|token)[ ]+)?(?:"
    r"(?i:any|bool|boolean|bytes|false|int|nil|none|null|number|optional(?:\[str)?|read|required"
    r"|return|secretstr|str|string|true|undefined|write)\]?"
    r"|\$[A-Z_][A-Z0-9_]*|\$\{[A-Za-z_]\w*\}|\$\([\w ]*\)?|%[A-Z_]*[%s]|<[\w -]*>|\W{1,3}|\*+"
    r"|\$?\{\{(?:[ ][\w.]*[ ]\}\})?|\{[A-Za-z_]\w*(?:![ars])?\}?|process\.env\.\w*|os\.environ\S*"
    r"|(?:[A-Za-z_]+\.)+[A-Za-z_]*(?i:password|token|secret|key)"  # self.password
    r")[?;.]?"
)
_FLAG = re.compile(
    r"(?<![\w.-])--(?P<name>[\w.-]++)(?:[ \t]++|[\"'],[ \t]*+)(?![-<>|&;(])" + _VALUE, re.ASCII
)

# --- By where it stands.

_IN_URL = r"(?:[^\s\"'`<>@:]|:(?!//))*+"
_USER_INFO = (
    r"://[^\s/?#\"'`<>@:\[\]]*+:(?!\d{1,5}[/?#])"  # a port is no password
    rf"(?P<secret>{_IN_URL}(?:@{_IN_URL}(?=@))*+)@"
)
_PLACED: tuple[tuple[str, str], ...] = (
    ("://", _USER_INFO),
    ("sig", r"[?&](?:sig|signature|x-amz-signature|x-goog-signature)=(?P<secret>[^&\s\"'<>]++)"),
    ("-u", r"(?<![\w-])-u[ ]?[\"']?(?!\d+:\d)[^\s:\"'/]{1,64}+:(?P<secret>[^\s\"'/][^\s\"']*+)"),
    ("--", r"--(?:proxy-)?user[ =][\"']?[^\s:\"'/]{1,64}+:(?P<secret>[^\s\"'/][^\s\"']*+)"),
    ("cookie", r"cookie2?[\"']?:[ ]*+[\"']?(?P<secret>[\w.$-]++=[^\r\n\"']++)"),
)
_BEARER = re.compile(r"bearer[\s:=\"']{1,4}+(?P<secret>[a-z0-9._~+/=-]{8,}+)")
_TOKEN_LIKE = re.compile(r"\d|[a-z][A-Z]|[A-Za-z]{24}")
"""What a token has and an English word has not: "the bearer certificate" is prose."""

# --- By its frame.

_PEM_EDGE = re.compile(r"-{4,5} ?(BEGIN|END) [A-Z0-9 ]{1,64}?-{4,5}")
_PEM_BODY = string.ascii_letters + string.digits + string.whitespace + "+/=\\:,-\"'>|#*"
"""What the lines of a block are made of, with what quotes, comments and diffs put before them."""


Pattern: TypeAlias = tuple[str, "re.Pattern[str]"]
"""A word without which there is no match, and the pattern."""


def _compiled(table: tuple[tuple[str, str], ...], ending: str = "") -> tuple[Pattern, ...]:
    return tuple((word, re.compile(f"(?:{body}){ending}", re.ASCII)) for word, body in table)


_ISSUED_PATTERNS = _compiled(_ISSUED)
_PLACED_PATTERNS = _compiled(_PLACED)
_NAME_PATTERNS = _compiled(_NAMES, _BETWEEN + _VALUE)
_NAME = re.compile(
    "(?:" + "|".join(body for _, body in _NAMES) + rf"|cookies?){_QUALIFIER}\Z", re.ASCII
)
_PASSWORD = re.compile(rf"(?:pass(?:word|wd|code|phrase)|pwd|secret){_QUALIFIER}\Z", re.ASCII)
_LONGEST_NAME = 80


def named_like(names: frozenset[str]) -> tuple[Pattern, ...]:
    """Patterns for the operator's own names of secrets, to give to `spans`."""
    lowered = sorted(lower(name) for name in names if name)
    return _compiled(tuple((name, re.escape(name)) for name in lowered), _BETWEEN + _VALUE)


def lower(text: str) -> str:
    """The text in lower case, each character in its place: only U+0130 would become two."""
    return text.replace("\u0130", "I").lower()


def hides(name: str, value: JSON) -> bool:
    """Whether a member of this name keeps its value to itself.

    Strings and containers are hidden. A number is one only under a name of a password, which is
    never a count, as a `token` may be. True, false and null say no more than whether there is one.
    """
    if value is None or isinstance(value, bool):
        return False
    ending = lower(name[-_LONGEST_NAME:])
    if isinstance(value, int | float):
        return _PASSWORD.search(ending) is not None
    return _announces(ending) or (ending == "pass" and isinstance(value, str))


@functools.lru_cache(maxsize=1024)
def _announces(ending: str) -> bool:
    return _NAME.search(ending) is not None


def is_flag(text: str) -> bool:
    """Whether the text is a command-line option whose value is the next argument, a secret one."""
    return text.startswith("--") and "=" not in text and _announces(lower(text[-_LONGEST_NAME:]))


def spans(text: str, own: tuple[Pattern, ...] = ()) -> list[Span]:
    """Where the secrets are: `(start, end)` each, in no order, overlapping where finders agree."""
    lowered = lower(text)
    found = _marked(_ISSUED_PATTERNS, text, text)
    found += _marked(_PLACED_PATTERNS, text, lowered)
    for word, pattern in (*_NAME_PATTERNS, *own):
        if word in lowered:
            found += [_value(match) for match in pattern.finditer(lowered) if _tells(text, match)]
    if "--" in lowered:
        found += [
            _value(match)
            for match in _FLAG.finditer(lowered)
            if _announces(match["name"][-_LONGEST_NAME:]) and _tells(text, match)
        ]
    if "bearer" in lowered:
        found += [
            match.span("secret")
            for match in _BEARER.finditer(lowered)
            if _TOKEN_LIKE.search(text, *match.span("secret"))
        ]
    if "----" in text:
        found += _framed(text)
    return found


def _marked(patterns: tuple[Pattern, ...], text: str, searched: str) -> list[Span]:
    return [
        match.span("secret")
        for word, pattern in patterns
        if word in searched
        for match in pattern.finditer(searched)
        if match["secret"] and not _HARMLESS.fullmatch(text, *match.span("secret"))
    ]


def _value(match: re.Match[str]) -> Span:
    return match.span("quoted" if match["quoted"] else "bare")


def _tells(text: str, match: re.Match[str]) -> bool:
    return _HARMLESS.fullmatch(text, *_value(match)) is None


def _framed(text: str) -> Iterator[Span]:
    """The PEM blocks. Where one end is missing, what may be its body goes with the other end."""
    begun: re.Match[str] | None = None
    seen = 0
    for edge in _PEM_EDGE.finditer(text):
        if edge[1] == "BEGIN":
            if begun:
                yield _endless(text, begun, edge.start())
            begun = edge
        elif begun:
            yield begun.start(), edge.end()
            begun = None
        else:
            yield seen + len(text[seen : edge.start()].rstrip(_PEM_BODY)), edge.end()
        seen = edge.end()
    if begun:
        yield _endless(text, begun, len(text))


def _endless(text: str, begun: re.Match[str], limit: int) -> Span:
    rest = text[begun.end() : limit]
    return begun.start(), limit - len(rest.lstrip(_PEM_BODY))
