"""Keys of JSON are matched whatever their case, counted where no name matches, and refused where an object has one twice."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from pipelines.data.sources.text import json_keys
from pipelines.data.sources.text.json_keys import Keys, Names, examine_keys, key_names, key_notes

A = StructType().add("a", "integer")
USER = StructType().add("name", "string").add("tags", ArrayType(A))
SCHEMA = (
    StructType().add("plan", "string").add("n", "integer").add("user", USER).add("counts", MapType(StringType(), A)).add("größe", "integer")
)


def names() -> Names:
    key_tree = key_names(SCHEMA)
    assert key_tree is not None
    return key_tree


def look(*records: str) -> tuple[list[str | None], list[str | None], dict[str, int], list[bool]]:
    """The problem of each record, the text to parse in its place, unknown keys, and whether it has no key."""
    columns = [pa.array(records, pa.string()), pa.nulls(len(records), pa.string()), pa.array(range(len(records)), pa.int64())]
    batch = examine_keys(names(), pa.record_batch(columns, names=["record", "problem", "line"]))
    assert batch.column("record").equals(columns[0])
    _, problems, _, texts, unknown, keyless = (column.to_pylist() for column in batch.columns)
    return problems, texts, json.loads(unknown[0] or "{}") if records else {}, keyless


def test_keys_as_in_the_schema_change_nothing() -> None:
    problems, texts, unknown, keyless = look('{"plan": "a", "n": 1}', '{ "user" : {"name":"x","tags":[{"a":1},{"a":2}]}}', '{"größe": 2}')
    assert problems == [None] * 3 and texts == [None] * 3 and unknown == {} and keyless == [False] * 3


def test_a_key_of_another_case_is_that_of_the_schema() -> None:
    problems, texts, unknown, _ = look(
        '{"Plan": "Plan", "N":2}', '{"n": 1}', '{"USER": {"Name": "Name", "tags": [{"A": 1}]}}', '{"GRÖSSE": 1}'
    )
    assert problems == [None] * 4 and unknown == {"GRÖSSE": 1}
    assert texts == ['{"plan": "Plan", "n":2}', None, '{"user": {"name": "Name", "tags": [{"a": 1}]}}', None]
    (problem,), (text,), _, _ = look(r'{"\u0050lan": "\"Plan\": 1", "x\\": {"Plan": 2}, "größe": 1}')
    assert problem is None and json.loads(str(text)) == {"plan": '"Plan": 1', "x\\": {"Plan": 2}, "größe": 1}


def test_a_key_twice_is_refused_at_any_depth() -> None:
    problems, _, _, _ = look(
        '{"n": 1, "n": 2}', '{"n": 1, "N": 1}', '{"user": {"name": "a", "NAME": "b"}}', '{"other": [{"z": 1}, {"z": 1, "z": 2}]}',
        '{"counts": {"n": {"a": 1}, "N": {"a": 2}}, "n": 1}', '{"other": {"n": 1}, "n": 1}', r'{"o\u0074her": 1, "other": 2}',
        '{"user": {"tags": [{"a": 1}, {"a": 1}]}}', '{"counts": {"x": {"a": 1, "A": 2}}}',
    )  # fmt: skip
    twice = ["n", "n", "name", "z", None, None, "other", None, "a"]
    assert problems == [name and f"key {name} occurs twice in an object" for name in twice]


def test_unknown_keys_are_counted_and_rows_without_a_known_one() -> None:
    _, _, unknown, keyless = look('{"plna": 1, "n": 2}', '{"plna": {"n": 1}}', '{"user": {"nmae": ""}}', "{}", '{"counts": {"any": {}}}')
    assert unknown == {"plna": 2, "nmae": 1} and keyless == [False, True, False, True, False]
    assert list(key_notes("t", [json.dumps(unknown), json.dumps({"plna": 1, "x": 5, "": 7})], 2, ["plan", "n", "name"])) == [
        "source.tables.t: 2 rows have no key of its schema, so that all columns there are NULL",
        "source.tables.t: keys that its schema does not name are left out: x 5 times, plna 3 times (did you mean plan?), nmae 1 time "
        "(did you mean name?), and others 7 times",
    ]


def test_what_is_no_json_disturbs_no_other_record() -> None:
    records = ['{"n": 1, "n', '"', "", '}}]{"a', '{"Plan": "}"}', "\\", '"x":', "null", '{"n": "\\\\", "n": 1}', "[]"]
    problems, texts, _, _ = look(*records)
    assert texts[4] == '{"plan": "}"}' and problems[8] == "key n occurs twice in an object"
    assert [problem for place, problem in enumerate(problems) if place != 8] == [None] * 9
    assert look('"x":', '"x":')[0] == [None, None]
    assert look() == ([], [], {}, [])


def test_only_records_of_an_unusual_shape_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(json_keys, "Keys", lambda texts: searched.extend(texts.to_pylist()) or Keys(texts))
    usual = [
        '{"plan": "a: \\"n\\": {}", "n": null}', ' { "n" :1}\t', "{}",
        '{"user": {"name": "x", "tags": [{"a": 1}, {}, null]}, "counts": null}',
        '{"user": null, "größe": 2}', '{"plan": "\\\\", "user": {"tags": []}}',
    ]  # fmt: skip
    unusual = [
        '{"n": 1, "n": 2}', '{"n": 1, "plan": "a"}', '{"N": 1}', '{"x": 1}', '{"user": {"a": 1}}', '{"user": {"tags": [{"a": 1, "a": 2}]}}',
        '{"counts": {"x": {"a": 1}}}', '{"plan": {"n": 1}}', r'{"pl\u0061n": "a"}', '[{"n": 1}]', '{"n": 1', '"n"', '{"n": 1} {"n": 2}', "",
    ]  # fmt: skip
    problems, texts, unknown, keyless = look(*usual, *unusual)
    assert searched == unusual
    assert problems[:6] == [None] * 6 and texts[:6] == [None] * 6 and keyless[:6] == [False, False, True, False, False, False]
    assert (problems[6:], texts[6:], unknown, keyless[6:]) == look(*unusual)


class Pairs(list[tuple[str, Any]]):
    """An object, which may have a key twice."""


TEXT = st.text(st.sampled_from('ab\\":{}[], né\n\u2028'), max_size=6)
KEY = st.sampled_from(["plan", "Plan", "n", "user", "User", "name", "a", "A", "zz", "größe", 'q"', "b\\", "c:"]) | TEXT
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(KEY, inner), max_size=3).map(Pairs),
    max_leaves=6,
)
RECORD = st.lists(st.tuples(KEY, VALUE), max_size=4).map(Pairs)


def write_json(value: Any, ascii_only: bool) -> str:
    if isinstance(value, Pairs):
        return (
            "{"
            + " , ".join(f"{json.dumps(key, ensure_ascii=ascii_only)} :{write_json(element, ascii_only)}" for key, element in value)
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(write_json(element, ascii_only) for element in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def parse_keys(value: Any, scope: Names | None) -> tuple[Any, bool]:
    """The value with the schema's names for keys, and whether an object has a key twice: the same in plain Python."""
    if isinstance(value, Pairs):
        pairs, twice = [], False
        for key, element in value:
            name = scope.matching(key) if scope and not scope.is_map else None
            within = None if scope is None else scope.values if scope.is_map else scope.fields[name] if name else None
            inner, is_twice = parse_keys(element, within)
            pairs.append((name or key, inner))
            twice |= is_twice
        return dict(pairs), twice or len(dict(pairs)) < len(pairs)
    if isinstance(value, list):
        results = [parse_keys(element, scope) for element in value]
        return [inner for inner, _ in results], any(twice for _, twice in results)
    return value, False


@given(st.lists(st.tuples(RECORD, st.booleans()), max_size=5))
def test_it_finds_what_a_parser_finds(records: list[tuple[Pairs, bool]]) -> None:
    texts = [write_json(value, ascii_only) for value, ascii_only in records]
    problems, renamed, _, _ = look(*texts)
    for (value, _), text, problem, new in zip(records, texts, problems, renamed, strict=True):
        expected_keys, twice = parse_keys(value, names())
        assert (problem is not None) == twice, text
        assert twice or json.loads(new or text) == expected_keys, text
