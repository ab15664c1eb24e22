"""`kimiaepd validate`: checks logs against the standard, and says the line and the rule."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from kimiaepd.errors import EXIT_NO
from kimiaepd.validate import Finding, LogChecker, in_order, read_lines

STDIN = Path("-")


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print each finding as a line of JSON.")
def validate(files: tuple[Path, ...], *, as_json: bool) -> None:
    """Check AEP logs (JSONL) against the standard's rules.

    The parts of a log are read as one, the oldest first, in whatever order they are named. A FILE
    of - is standard input.

    Findings go to standard output and a summary to standard error. The exit status is 0 where
    nothing is wrong, 1 where something is, 64 where a file cannot be read.
    """
    checker = LogChecker()
    findings = 0
    for file in in_order(files):
        name = click.format_filename(file)
        for finding in checker.check_lines(_lines(file)):
            findings += 1
            click.echo(_as_json(name, finding) if as_json else _as_text(name, finding))
    click.echo(f"{_count(checker.events, 'event')}, {_count(findings, 'finding')}", err=True)
    if findings:
        sys.exit(EXIT_NO)


def _lines(file: Path) -> Iterable[bytes]:
    return sys.stdin.buffer if file == STDIN else read_lines(file)


def _as_text(name: str, finding: Finding) -> str:
    return f"{name}:{finding.line}: {finding.rule}: {finding.message}"


def _as_json(name: str, finding: Finding) -> str:
    told = {
        "file": name,
        "line": finding.line,
        "rule": finding.rule,
        "message": finding.message,
    }
    return json.dumps(told, ensure_ascii=False)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
