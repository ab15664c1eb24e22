"""The judge of every event that a test sees emitted: ours, the schemas, and the standard's models.

`judge` raises AssertionError, with one line for each thing that is wrong, unless three judges that
share no code agree: our LogChecker, the JSON Schemas by the `jsonschema` library, and `aep_sdk`,
the standard's own pydantic models and state projection.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import jsonschema
import pydantic
from aep_sdk.gen.aep_types import PAYLOAD_MODELS, AepEvent
from aep_sdk.projection import StateProjection

from kimiaepd.mapping.json_value import JSONObject, dump
from kimiaepd.standard import envelope_schema, payload_schema
from kimiaepd.validate import LogChecker, in_order, read_lines


def judge(events: Iterable[JSONObject]) -> None:
    """Raise AssertionError unless the events are, in this order, a log that every judge accepts."""
    events = list(events)
    lines = [dump(event) + b"\n" for event in events]
    _raise([*_ours(lines), *_theirs(events)], lines)


def judge_log(*paths: Path) -> None:
    """The same for a log file, or for the parts of one; lines are judged as they stand there."""
    lines = [line for path in in_order(paths) for line in read_lines(path)]
    faults = list(_ours(lines))
    if not faults:
        faults = list(_theirs([json.loads(line) for line in lines]))
    _raise(faults, lines)


def _raise(faults: list[str], lines: list[bytes]) -> None:
    if faults:
        log = "".join(f"\n  {number}: {_cut(line)}" for number, line in enumerate(lines, 1))
        raise AssertionError("\n".join(faults) + f"\nthe log:{log}")


def _cut(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip()
    return text if len(text) <= 400 else text[:400] + "..."


def _ours(lines: list[bytes]) -> Iterator[str]:
    for finding in LogChecker().check_lines(lines):
        yield f"line {finding.line}: {finding.rule}: {finding.message}"


def _theirs(events: list[JSONObject]) -> Iterator[str]:
    for number, event in enumerate(events, 1):
        yield from (f"line {number}: schema: {what}" for what in _schema_errors(event))
        yield from (f"line {number}: aep_sdk: {what}" for what in _model_errors(event))
    yield from (f"aep_sdk projection: {what}" for what in _projection_violations(events))


def _schema_errors(event: JSONObject) -> Iterator[str]:
    yield from (error.message for error in _validator(None).iter_errors(event))
    name = str(event.get("type"))
    if "data" in event and payload_schema(name) is not None:
        yield from (error.message for error in _validator(name).iter_errors(event["data"]))


@functools.cache
def _validator(event_type: str | None) -> jsonschema.Draft202012Validator:
    schema = envelope_schema() if event_type is None else payload_schema(event_type)
    assert schema is not None
    return jsonschema.Draft202012Validator(schema)


def _model_errors(event: JSONObject) -> Iterator[str]:
    try:
        AepEvent.model_validate(event, strict=True)
        model = PAYLOAD_MODELS.get(str(event["type"]))
        if model is not None and "data" in event:
            model.model_validate(event["data"], strict=True)
    except pydantic.ValidationError as error:
        yield str(error)


def _projection_violations(events: list[JSONObject]) -> Iterator[str]:
    # project_state folds with this same class, but sorts the events first and so forgives their
    # order; a log has to be right as it stands.
    projection = StateProjection()
    for event in events:
        projection.apply(event)
    yield from map(str, projection.state()["violations"])
