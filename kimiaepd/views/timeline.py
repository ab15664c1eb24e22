"""What stories look like: the list of sessions, and one session's timeline; for people and as JSON.

Rules:
- Text from a story is made harmless here, and nowhere else is it printed from.
- What is open is said to go on only where its session may still say more.

Pure but for this machine's time zone. What a story is: `story.py`; widths and colours: `paper.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from attrs import asdict
from rich.table import Table
from rich.text import Text

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.views.paper import line
from kimiaepd.views.story import State, Story
from kimiaepd.views.story_parts import Ask, Call, Note, Row, Run
from kimiaepd.views.words import VIA, duration, harmless, local, short

_STATES: dict[State, str] = {
    "running": "green",
    "awaiting approval": "bold yellow",
    "idle": "",
    "stale": "dim",
    "ended": "dim",
}
_NOTES = {"gap": "red", "error": "red", "gate": "yellow", "daemon": "dim", "session": "blue"}
_TOOL_WIDTH, _OUTCOME_WIDTH = 14, 16


def overview(stories: Sequence[Story], now: datetime) -> Table:
    """The sessions, one a line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("session", "state", "last seen"):
        table.add_column(name, no_wrap=True)
    for name in ("runs", "calls", "asks"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("model", no_wrap=True, overflow="ellipsis")
    counts = Counter(short(story.session) for story in stories)
    for story in stories:
        name, state = short(story.session), story.state(now)
        table.add_row(
            Text(name if counts[name] == 1 else harmless(story.session), "green"),
            Text(state, _STATES[state]),
            Text(ago(story.seen, now)),
            *map(str, (len(story.runs), story.calls_made, len(story.asks))),
            Text(harmless(story.model)),
        )
    return table


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago a moment is."""
    if moment is None:
        return "never"
    return f"{duration((now - moment) / timedelta(milliseconds=1))} ago"


def timeline(story: Story, now: datetime) -> Iterator[Text]:
    """One session's story, a line each."""
    state = story.state(now)
    yield line((harmless(story.session), "bold"))
    about = [story.agent, story.model, story.client, f"last seen {ago(story.seen, now)}"]
    yield line(
        (state, _STATES[state]), ("  ", ""), (", ".join(map(harmless, filter(None, about))), "")
    )
    numbers = {name: number for number, name in enumerate(story.runs, 1)}
    day: date | None = None
    for row in story.rows:
        at = _moment(row)
        if at is not None and local(at).date() != day:
            day = local(at).date()
            yield line((f"{day:%A}, {day.isoformat()}", "dim"))
        clock = "--:--:--" if at is None else f"{local(at):%H:%M:%S}"
        yield line((f"{clock}  ", "dim"), *_parts(story, row, numbers, now))


def _moment(row: Row) -> datetime | None:
    return row.at if isinstance(row, Note) else row.began or row.ended


def _parts(story: Story, row: Row, numbers: dict[str, int], now: datetime) -> list[tuple[str, str]]:
    match row:
        case Run():
            told = _run(row, goes=story.goes_on(row, now))
            return [(f"run {numbers[row.id]}  ", "bold cyan"), *told]
        case Call():
            told = _call(row, goes=story.goes_on(row, now))
            return [(f"  {harmless(row.tool):<{_TOOL_WIDTH}}  ", ""), *told]
        case Ask():
            told = _ask(row, now, waits=story.goes_on(row, now))
            return [(f"  {'asked':<{_TOOL_WIDTH}}  ", "yellow"), *told]
        case Note():
            count = "" if row.count is None else f"{row.count} "
            indent = "  " if row.run else ""
            return [(f"{indent}{count}{harmless(row.text)}", _NOTES.get(row.kind, ""))]


def _run(run: Run, *, goes: bool) -> list[tuple[str, str]]:
    if run.outcome == "open":
        how, style = ("goes on", "green") if goes else ("no end was seen", "dim")
    else:
        how, style = f"{run.outcome}{_after(run.ms)}", "red" if run.outcome == "failed" else ""
    return [(how, style), (_rest(run.why, run.prompt), "")]


def _call(call: Call, *, goes: bool) -> list[tuple[str, str]]:
    if call.outcome == "open":
        how, style = ("goes on", "green") if goes else ("no end was seen", "dim")
    elif call.outcome == "completed":
        how, style = "done" if call.ms is None else duration(call.ms), ""
    else:
        how, style = f"{call.outcome}{_after(call.ms)}", "red"
    why = f"by {call.why}" if call.outcome == "denied" and call.why else call.why
    return [(f"{how:<{_OUTCOME_WIDTH}}", style), (_rest(why, call.what), "")]


def _ask(ask: Ask, now: datetime, *, waits: bool) -> list[tuple[str, str]]:
    who = f"by {ask.by}" if ask.by else VIA.get(ask.via, "")
    match ask.outcome:
        case "open" if waits:
            left = (
                ask.expires
                and f"waits, {duration((ask.expires - now) / timedelta(milliseconds=1))} left"
            )
            how = left or "waits at the terminal"
        case "open":
            how = "no end was seen"
        case "answered":
            how = " ".join(filter(None, [ask.option or "answered", who]))
        case "timed out":
            how = "nobody answered"
        case "auto":
            how = "decided by a rule"
        case _:
            how = ask.outcome
    style = "bold yellow" if waits else ""
    return [(f"{harmless(how)}{_after(ask.ms)}", style), (_rest(ask.text, ask.prompt), "")]


def _after(ms: float | None) -> str:
    return "" if ms is None else f" after {duration(ms)}"


def _rest(*texts: str) -> str:
    return "".join(f"  {harmless(text)}" for text in texts if text)


# --- for programs --------------------------------------------------------------------------------


def session_object(story: Story, now: datetime) -> JSONObject:
    """A session as one JSON object, without its rows."""
    return {
        "session": story.session,
        "state": story.state(now),
        "agent": story.agent,
        "model": story.model,
        "client": story.client,
        "began": _iso(story.began),
        "last_seen": _iso(story.seen),
        "events": story.events,
        "runs": len(story.runs),
        "calls": story.calls_made,
        "asks": len(story.asks),
        "open_asks": sum(ask.waits(now) for ask in story.asks.values()),
    }


def timeline_object(story: Story, now: datetime) -> JSONObject:
    """A session as one JSON object, with its rows in the order of their coming."""
    rows: list[JSON] = [_row(row) for row in story.rows]
    return {**session_object(story, now), "rows": rows}


def _row(row: Row) -> JSONObject:
    told: JSONObject = {"row": type(row).__name__.lower()}
    for name, value in asdict(row).items():
        told[name] = _iso(value) if isinstance(value, datetime) else value
    return told


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
