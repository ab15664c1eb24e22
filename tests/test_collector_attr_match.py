"""attr-match lets through what was asked for, refuses what it cannot read, and costs little."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.collector import attr_match
from kimiaepd.collector.attr_match import FilterError, FilterTooLargeError, compile_filter
from kimiaepd.mapping.event import SEVERITIES
from kimiaepd.mapping.json_value import JSON, JSONObject

DEFAULTS: JSONObject = {"severity": "info", "capture": "metadata", "epoch": 0}
TYPES = ("tool.completed", "tool.completed.late", "tool", "toolbox.opened", "x.acme.foo.bar", "x.y")
SCALARS = st.sampled_from(("a", "b", "1", "", "debug", "error", *TYPES, 0, 1, True, False))
PATTERNS = st.sampled_from(("tool.*", "tool.completed.*", "x.acme.*", "x.*", "tool.completed", "a"))
NAMES = st.sampled_from(("agent", "session", "epoch", "capture", "severity", "step", "acmeregion"))
LEVELS = st.sampled_from(SEVERITIES)
BANDS = st.fixed_dictionaries({}, optional={"gte": LEVELS, "lte": LEVELS}).filter(bool)
FILTERS = st.builds(
    lambda plain, special: plain | special,
    st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, min_size=1, max_size=4), max_size=3),
    st.fixed_dictionaries(
        {},
        optional={"type": PATTERNS | st.lists(PATTERNS, min_size=1, max_size=4), "severity": BANDS},
    ),
)
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={"severity": LEVELS}
    | dict.fromkeys(("agent", "session", "epoch", "capture", "step", "acmeregion"), SCALARS),
)
KEYS = NAMES | st.just("type") | st.text()
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | SCALARS | PATTERNS,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(KEYS | st.sampled_from(("gte", "lte")), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
ANY_OBJECT = st.dictionaries(KEYS, ANY_JSON, max_size=5)


def wants(filter_: JSONObject, event: JSONObject) -> bool:
    """The rules of AEP-0003 section 6.2, one after the other and without any hurry."""
    return all(_meets(name, predicate, event) for name, predicate in filter_.items())


def _meets(name: str, predicate: JSON, event: JSONObject) -> bool:
    if name not in event and name not in DEFAULTS:
        return False
    value = event.get(name, DEFAULTS.get(name))
    if isinstance(predicate, dict):
        least, most = predicate.get("gte", "debug"), predicate.get("lte", "critical")
        order = list[JSON](SEVERITIES)
        return order.index(least) <= order.index(value) <= order.index(most)
    alternatives = predicate if isinstance(predicate, list) else [predicate]
    return any(_is(name, alternative, value) for alternative in alternatives)


def _is(name: str, alternative: JSON, value: JSON) -> bool:
    if name == "type" and isinstance(alternative, str) and alternative.endswith(".*"):
        return str(value).startswith(alternative[:-1])
    return json.dumps(alternative) == json.dumps(value)


@pytest.mark.shared
def test_the_standards_corpus_is_matched_and_refused_as_it_says(shared: Path) -> None:
    corpus = json.loads((shared / "aep/fixtures/attr-match.json").read_bytes())
    assert corpus["match"]
    assert corpus["invalid"]
    for case in corpus["match"]:
        assert compile_filter(case["filter"]).matches(case["event"]) is case["match"], case["name"]
    for case in corpus["invalid"]:
        with pytest.raises(FilterError):
            compile_filter(case["filter"])


@given(FILTERS, EVENTS)
def test_a_compiled_filter_says_what_the_rules_say(filter_: JSONObject, event: JSONObject) -> None:
    assert compile_filter(filter_).matches(event) is wants(filter_, event)


@given(ANY_JSON | ANY_OBJECT, ANY_OBJECT)
def test_any_json_is_a_filter_or_refused_in_one_printable_line(
    value: JSON, event: JSONObject
) -> None:
    told = ""
    try:
        compiled = compile_filter(value)
    except FilterError as error:
        told = str(error)
    else:
        assert compiled.matches(event) in (True, False)
    assert told.isprintable()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "a filter is a JSON object"),
        ([], "a filter is a JSON object"),
        ({"data": {"a": 1}}, "no filter can ask for data"),
        ({"": "a"}, "'' is no attribute"),
        ({"acme_region": "a"}, "no name for an extension"),
        ({"a" * 21: "a"}, "no name for an extension"),
        ({"session\n": "a"}, "'session\\n' is no attribute"),
        ({"session": None}, "must be text, an integer or a boolean, not None"),
        ({"session": ["a", ["b"]]}, "must be text, an integer or a boolean, not ['b']"),
        ({"session": {"gte": "a"}}, "must be text"),
        ({"epoch": 1.5}, "must be text, an integer"),
        ({"session": []}, "a list of no values"),
        ({"type": ".*"}, "is no pattern"),
        ({"type": "tool*"}, "is no pattern"),
        ({"type": "*.completed"}, "is no pattern"),
        ({"type": "tool.*.*"}, "is no pattern"),
        ({"type": ["tool.*", "*"]}, "'*' is no pattern"),
        ({"acmeregion": "eu.*"}, "is no pattern"),
        ({"severity": {}}, "a band has gte, lte or both"),
        ({"severity": {"gte": "info", "lt": "error"}}, "a band has gte, lte or both"),
        ({"severity": {"gte": "loud"}}, "must be one of debug, info"),
        ({"severity": {"gte": 1}}, "must be one of debug, info"),
        ({"severity": [{"gte": "info"}]}, "must be text"),
    ],
)
def test_what_is_no_filter_is_refused_with_the_reason(value: JSON, words: str) -> None:
    with pytest.raises(FilterError) as refused:
        compile_filter(value)
    assert words in str(refused.value)
    assert not isinstance(refused.value, FilterTooLargeError)


@pytest.mark.parametrize(
    ("filter_", "event", "match"),
    [
        ({"type": "tool.*"}, {"type": "tool"}, False),
        ({"epoch": 1}, {"epoch": True}, False),
        ({"acmeflag": True}, {"acmeflag": 1}, False),
        ({"acmeflag": [1, True]}, {"acmeflag": True}, True),
        ({"epoch": 1.0}, {"epoch": 1}, True),
        ({"epoch": "1"}, {"epoch": 1}, False),
        ({"epoch": 0}, {"epoch": None}, False),
        ({"capture": "metadata"}, {}, True),
        ({"severity": ["info", "error"]}, {}, True),
        ({"severity": {"gte": "error", "lte": "info"}}, {"severity": "notice"}, False),
        ({"severity": {"lte": "critical"}}, {"severity": "fatal"}, False),
        ({"session": "a"}, {"session": ["a"]}, False),
    ],
)
def test_values_are_compared_as_json_compares_them(
    filter_: JSONObject, event: JSONObject, match: bool
) -> None:
    assert compile_filter(filter_).matches(event) is match


def test_a_filter_may_be_as_large_as_its_limits_and_no_larger() -> None:
    texts: list[JSON] = [f"{n:0{attr_match.LONGEST}}" for n in range(attr_match.MOST_ALTERNATIVES)]
    members: JSONObject = {f"a{n}": "x" for n in range(attr_match.MOST_MEMBERS - 1)}
    compiled = compile_filter(members | {"session": texts})
    assert compiled.matches(members | {"session": texts[-1]})
    larger_ones: list[JSONObject] = [
        members | {"session": "s", "run": "r"},
        {"session": texts[1:], "run": ["a", "b"]},
        {"session": "x" * (attr_match.LONGEST + 1)},
    ]
    for larger in larger_ones:
        with pytest.raises(FilterTooLargeError, match="at most"):
            compile_filter(larger)


def test_a_match_costs_less_than_twenty_microseconds() -> None:
    many: list[JSON] = [f"x.v{n}.*" for n in range(250)]
    compiled = compile_filter(
        {"type": [*many, "tool.*"], "session": [str(n) for n in range(250)], "epoch": 0}
    )
    event: JSONObject = {"type": "tool.completed", "session": "249", "agent": "kimi-code"}
    start = time.process_time()
    for _ in range(5_000):
        assert compiled.matches(event)
    assert time.process_time() - start < 5_000 * 20e-6
