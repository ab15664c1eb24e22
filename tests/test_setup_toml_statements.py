"""Where TOML statements begin and end: the strings, arrays and comments that could mislead."""

from __future__ import annotations

import pytest

from kimiaepd.setup.toml_statements import Header, Kind, comments, header, statements

TRICKY = (
    b'text = """\n[[hooks]]\n# no comment \\""" still\n"""" # a quote before the end\r\n'
    b"raw = '''\n[[hooks]]\n'''''\n"
    b"list = [ # ] \" '\n  [\"]\"], # [[hooks]]\n  '}',\n]\n"
    b"inline = { a = '{', b = [\"#\"] }\n"
    b"\t\r\n"
    b'  "" = ""\n'
    b"'a#b' = ''\n"
    b'empty = """"""\n'
    b'"[[hooks]]" = 1\n'
    b'[ "a]b" . c ] # [x]\n'
    b"  [[hooks]]\r\n"
    b"# the end, without a newline"
)


def cut(text: bytes, start: int = 0) -> list[tuple[Kind, int, bytes]]:
    return [(s.kind, s.line, text[s.start : s.end]) for s in statements(text, start)]


def test_tricky_statements_are_cut_where_they_end() -> None:
    assert cut(TRICKY) == [
        (Kind.PAIR, 1, TRICKY[: TRICKY.index(b"\r")]),
        (Kind.PAIR, 5, b"raw = '''\n[[hooks]]\n'''''"),
        (Kind.PAIR, 8, b"list = [ # ] \" '\n  [\"]\"], # [[hooks]]\n  '}',\n]"),
        (Kind.PAIR, 12, b"inline = { a = '{', b = [\"#\"] }"),
        (Kind.BLANK, 13, b"\t"),
        (Kind.PAIR, 14, b'  "" = ""'),
        (Kind.PAIR, 15, b"'a#b' = ''"),
        (Kind.PAIR, 16, b'empty = """"""'),
        (Kind.PAIR, 17, b'"[[hooks]]" = 1'),
        (Kind.HEADER, 18, b'[ "a]b" . c ] # [x]'),
        (Kind.HEADER, 19, b"  [[hooks]]"),
        (Kind.COMMENT, 20, b"# the end, without a newline"),
    ]


def test_every_byte_belongs_to_a_statement_or_the_newline_after_one() -> None:
    position = 0
    for statement in statements(TRICKY):
        assert TRICKY[position : statement.start] in (b"", b"\n", b"\r\n")
        position = statement.end
    assert position == len(TRICKY)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"a = 1", []),
        (b"a = '#' # b # c ", [b"# b # c "]),
        (b'[ "#" ] # d', [b"# d"]),
        (b'a = """\n# x\n"""', []),
        (b"a = [ # e\r\n '#', # f\n]", [b"# e", b"# f"]),
    ],
)
def test_the_comments_of_a_statement_are_found(raw: bytes, found: list[bytes]) -> None:
    (statement,) = statements(raw)
    assert [raw[part.start : part.end] for part in comments(raw, statement)] == found


def test_nothing_has_no_statements_and_a_newline_is_one_blank_line() -> None:
    assert cut(b"") == []
    assert cut(b"\n") == [(Kind.BLANK, 1, b"")]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert cut(b"\xef\xbb\xbf[[hooks]]\n", 3) == [(Kind.HEADER, 1, b"[[hooks]]")]


@pytest.mark.parametrize(
    ("raw", "path", "is_array"),
    [
        (b"[hooks]", ("hooks",), False),
        (b"[[hooks]]", ("hooks",), True),
        (b"\t[[ 'hooks' ]] # c", ("hooks",), True),
        (b"[[hooks.sub]]", ("hooks", "sub"), True),
        (b'[hooks."a.b"]', ("hooks", "a.b"), False),
        (b'[""]', ("",), False),
    ],
)
def test_a_header_names_its_path(raw: bytes, path: tuple[str, ...], *, is_array: bool) -> None:
    assert header(raw) == Header(path, is_array)


def test_a_megabyte_of_quotes_is_cut_in_one_pass() -> None:
    text = b'a = """' + b'""\\"' * 250_000 + b'"""\nb = 1\n'
    assert [kind for kind, _, _ in cut(text)] == [Kind.PAIR, Kind.PAIR]
