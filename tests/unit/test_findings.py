"""Warnings of the page about the data: each fault is planted in literal data, beside data without it."""

from datetime import date
from decimal import Decimal
from itertools import pairwise
from math import nan

import numpy as np
import pyarrow as pa
import pytest

from pipelines.data.versions.data_profile import TEXT_LENGTH, SparkStage
from pipelines.etl.statistics import leakage as alike
from pipelines.etl.statistics import row_sample
from pipelines.report.data_profile.description import share_by_chance
from pipelines.report.data_profile.findings import Finding, constants, drifts, explainer, leaks, overlaps, skews, stability

ROWS = 2_000
RANDOM = np.random.default_rng(1)


def table(**columns: object) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def labels(findings: object) -> list[tuple[str, ...]]:
    return [(finding.kind, *finding.columns) for finding in findings]  # type: ignore[attr-defined]


def classes() -> pa.Table:
    """A class that one column repeats, two determine, one tells only half of, and none of the others knows."""
    y = RANDOM.random(ROWS) < 0.3
    noise = RANDOM.random(ROWS)
    return table(
        y=y,
        copy=y,
        score=np.where(y, 0.7, 0.2) + 0.2 * noise,
        paid=[f"on day {place}" if is_paid else None for place, is_paid in zip(RANDOM.integers(0, 9, ROWS), y, strict=True)],
        half=np.where(RANDOM.random(ROWS) < 0.5, y, RANDOM.random(ROWS) < 0.3),
        noise=noise,
        name=[f"row {number}" for number in range(ROWS)],
        city=RANDOM.choice(["Ulm", "Bonn", "Jena"], ROWS),
    )


def test_a_column_that_equals_or_determines_a_class_is_a_leak() -> None:
    findings = leaks(classes(), ["copy", "score", "paid", "half", "noise", "name", "city", "absent"], "y")
    assert labels(findings) == [("leak", "copy"), ("leak", "score"), ("leak", "paid")]


def test_a_column_that_determines_a_number_is_a_leak() -> None:
    y = RANDOM.lognormal(10, 2, ROWS)
    rows = table(y=y, cents=-100 * y, log=np.log(y) + RANDOM.normal(0, 0.02, ROWS), related=np.log(y) + RANDOM.normal(0, 2, ROWS))
    assert labels(leaks(rows, ["cents", "log", "related", "y"], "y")) == [("leak", "cents"), ("leak", "log"), ("leak", "y")]


@pytest.mark.parametrize("y", [[True] * 500, [None] * 500, [True, False] * 20], ids=["one class", "no class", "few rows"])
def test_of_a_target_that_cannot_be_tested_nothing_is_said(y: list[bool | None]) -> None:
    assert labels(leaks(table(y=y, x=y), ["x"], "y")) == []


def test_what_explains_a_rare_class_is_measured_on_its_rows() -> None:
    y = np.arange(ROWS) % 100 == 7
    assert explainer(pa.chunked_array([pa.array(y)]))(pa.chunked_array([pa.array(RANDOM.random(ROWS))])) < 0.5


def test_a_constant_is_told_from_the_whole_split_where_it_is_known() -> None:
    profile = {
        "one": {"rows": 900, "nulls": 0, "minimum": 5.0, "maximum": 5.0},
        "none": {"rows": 900, "nulls": 900},
        "rare": {"rows": 900, "nulls": 899, "minimum": 5.0, "maximum": 5.0},
        "word": {"rows": 900, "nulls": 0, "distinct": 1},
        "words": {"rows": 900, "nulls": 0, "distinct": 2},
        "hashed": {"rows": 900, "nulls": 0},
        "image": {"rows": 900, "nulls": 0},
    }
    sample = table(hashed=["a"] * 200, image=[True] * 200, words=["a"] * 200)
    assert labels(constants(profile, sample, profile)) == [("constant", name) for name in ("one", "none", "word", "hashed")]


def samples(shift: float, rows: int = ROWS) -> dict[str, pa.Table]:
    def normal_rows(moved: float, count: int) -> pa.Table:
        return table(
            x=RANDOM.normal(moved, 1, count),
            city=RANDOM.choice(["Ulm", "Bonn", "Jena"], count, p=[0.2 + 0.3 * moved, 0.5 - 0.3 * moved, 0.3]),
            gap=np.where(RANDOM.random(count) < 0.05 + 0.3 * moved, np.nan, 1.0),
            same=RANDOM.random(count),
        )

    return {"train": normal_rows(0, rows), "validation": normal_rows(shift, rows), "test": normal_rows(0, rows)}


def test_a_split_with_other_values_other_categories_or_more_gaps_drifts() -> None:
    drifting = labels(drifts(samples(1.0), ["x", "city", "gap", "same"]))
    assert sorted(drifting) == [("drift", "city"), ("drift", "gap"), ("drift", "x")]


@pytest.mark.parametrize("rows", [20, 60, 200, ROWS])
def test_chance_is_no_drift_however_few_rows_there_are(rows: int) -> None:
    for _ in range(20):
        assert labels(drifts(samples(0.0, rows), ["x", "city", "gap", "same"])) == []


def test_the_index_is_the_one_of_the_textbook() -> None:
    train = pa.chunked_array([pa.array(["a"] * 600 + ["b"] * 400)])
    other = pa.chunked_array([pa.array(["a"] * 400 + ["b"] * 600)])
    index, _ = stability(train, other)
    assert index == pytest.approx(0.2 * 2 * np.log(1.5), rel=0.01)


def test_a_split_that_has_rows_of_train_is_told_with_their_share() -> None:
    contents = np.array([[1, 0, 0]] * 800 + [[1, 1, 0]] * 10 + [[0, 1, 0]] * 90 + [[0, 0, 1]] * 100)
    (finding,) = overlaps(contents)
    assert finding.kind == "shared" and "10.0% of validation's rows" in finding.text
    assert list(overlaps(contents[:0])) == []


def people(rows: int, twins_of: pa.Table | None = None) -> pa.Table:
    """Rows of three columns with few values and, with `twins_of`, one in ten that is a row of that table."""
    plan, age = RANDOM.choice(["basic", "plus", "pro"], rows), RANDOM.integers(18, 91, rows)
    days = [int(RANDOM.integers(0, 61)) if RANDOM.random() < 0.4 else None for _ in range(rows)]
    rows_by_chance = table(plan=plan, age=age, days=days, size=np.round(RANDOM.random(rows), 9))
    if twins_of is None:
        return rows_by_chance
    copies = twins_of.take(pa.array(RANDOM.integers(0, len(twins_of), rows // 10)))
    return pa.concat_tables([copies, rows_by_chance.slice(0, rows - rows // 10)])


def count_contents(train: pa.Table, test: pa.Table, columns: list[str]) -> np.ndarray:
    counts: dict[tuple[object, ...], list[int]] = {}
    for place, rows in ((0, train), (2, test)):
        for row in rows.select(columns).to_pylist():
            counts.setdefault(tuple(row.values()), [0, 0, 0])[place] += 1
    return np.array(list(counts.values()))


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ((3_200, 800), ["plan", "age", "days"]),
        ((400, 100), ["plan"]),
        ((1_800, 200), ["plan", "age"]),
        ((3_200, 800), ["plan", "age", "days", "size"]),
    ],
    ids=["two thirds are shared", "all are shared", "nearly all", "none"],
)
def test_rows_that_are_alike_by_chance_are_no_warning_and_planted_ones_are(rows: tuple[int, int], columns: list[str]) -> None:
    train, test = people(rows[0]), people(rows[1])

    def find_overlaps(test: pa.Table, columns: list[str]) -> list[Finding]:
        sample = train.slice(0, ROWS)
        contents = count_contents(train, test, columns)
        return list(overlaps(contents, lambda split: share_by_chance(sample, test.slice(0, ROWS), columns, len(train))))

    assert find_overlaps(test, columns) == []
    (planted,) = find_overlaps(people(rows[1], twins_of=train), ["plan", "age", "days", "size"])
    assert "10.0% of test's rows have the same features as a row of train, after" in planted.text


def test_the_share_that_chance_gives_is_said_beside_a_higher_one() -> None:
    """Of texts and numbers as they are compared: case and float32 do not matter."""
    train = table(plan=["A b", "c"] * 500, size=np.tile([0.1, 0.2, 0.3, 0.4], 250))
    other = table(plan=["a-B", "C"] * 100, size=np.float32(np.tile([0.1, 0.5], 100)).astype(float))
    share = share_by_chance(train, other, ["plan", "size"], 3)
    assert share == pytest.approx((1 - (1 - 0.5 * 0.25) ** 3 + 1 - (1 - 0.5 * 0.0005) ** 3) / 2, abs=1e-9)
    contents = np.array([[1, 0, 1]] * 900 + [[0, 0, 1]] * 100)
    (finding,) = overlaps(contents, lambda split: 0.4)
    assert "about 90.0% of test's rows" in finding.text and "chance would give about 40.0% for columns with so few values" in finding.text
    assert list(overlaps(contents, lambda split: 0.88)) == []


def test_the_sketch_of_contents_does_not_depend_on_partitions() -> None:
    hashes, split = RANDOM.integers(0, 2**64, 30_000, np.uint64), RANDOM.integers(0, 3, 60_000)
    hashes = np.concatenate([hashes, hashes])

    def sketch(*bounds: int) -> np.ndarray:
        summaries = []
        for start, stop in pairwise(bounds):
            part = alike.ContentSample()
            for batch in range(start, stop, 1_000):
                part.add(hashes[batch : batch + 1_000], split[batch : batch + 1_000])
            summaries.append(part.summary())
        combined = summaries[0]
        for summary in summaries[1:]:
            combined = alike.combine_contents(combined, summary)
        return alike.content_rows(combined)

    contents = sketch(0, 60_000)
    assert len(contents) == alike.CONTENTS and (contents.sum(axis=1) == 2).all()
    assert (sketch(0, 7_000, 41_000, 60_000) == contents).all()


def test_the_sample_of_keyed_rows_does_not_depend_on_partitions_and_keeps_what_can_be_shown() -> None:
    count = 9_000
    order, split = RANDOM.integers(0, 2**64, count, np.uint64), (np.arange(count) % 3 > 0).astype(np.int32)
    columns = {
        "x": pa.array(np.arange(count)),
        "text": pa.array(["ü" * 300] * count),
        "list": pa.array([[1, 2, 3], None] * (count // 2)),
        "bytes": pa.array([b"x", None] * (count // 2)),
    }

    def sample(*bounds: int) -> dict[str, pa.Table]:
        summary = ""
        for start, stop in pairwise(bounds):
            part = row_sample.RowSample(has_key=True)
            part.add({name: values.slice(start, stop - start) for name, values in columns.items()}, split[start:stop], order[start:stop])
            summary = row_sample.merge_samples(summary, part.summary())
        return row_sample.rows_by_split(summary)

    rows_by_split = sample(0, count)
    assert {name: len(rows) for name, rows in rows_by_split.items()} == {"train": row_sample.ROWS, "validation": row_sample.ROWS}
    assert sample(0, 10, 10, 5_000, count) == rows_by_split
    first = rows_by_split["train"].slice(0, 2).to_pylist()[0]
    assert first["text"] == "ü" * TEXT_LENGTH and first["list"] in (3, None) and first["bytes"] in (True, None)


def test_equal_rows_without_a_key_are_sampled_like_others() -> None:
    part = row_sample.RowSample(has_key=False)
    value = np.repeat([0, 1], [9_000, 1_000])
    hashes = np.array([2**63, 5], np.uint64)[value]
    part.add({"x": pa.array(value)}, np.zeros(len(value), np.int32), hashes)
    share = np.mean(row_sample.rows_by_split(part.summary())["train"]["x"].to_numpy())
    assert 0.07 < share < 0.13


def test_a_stage_that_waits_for_one_task_is_skewed() -> None:
    def stage(median: float, longest: float, tasks: int = 8, rows: int = 50_000) -> SparkStage:
        return SparkStage("write", 7, "mapInArrow", tasks, longest, 8 * median, median, longest, rows, 0, 0)

    assert labels(skews([stage(3.0, 19.0)])) == [("skew",)]
    assert labels(skews([stage(5.0, 13.0), stage(0.01, 0.9), stage(0.2, 3.0), stage(19.0, 19.0, tasks=1), stage(3.0, 19.0, rows=18)])) == []


@pytest.mark.parametrize(
    ("values", "other"),
    [
        (pa.array(["A, b", None, "Straße 1"]), pa.array(["a b!", None, "straße–1"])),
        (pa.array([0.0, None, 1 + 1e-9]), pa.array([-0.0, nan, 1.0])),
        (pa.array([2**53 + 1, None]), pa.array([2**53 + 1, None])),
        (pa.array([Decimal("1.10"), None]), pa.array([Decimal("1.10"), None])),
        (pa.array([date(2020, 1, 1), None]), pa.array([date(2020, 1, 1), None])),
        (pa.array([True, False, None]), pa.array([True, False, None])),
    ],
    ids=["text", "float", "int", "decimal", "date", "bool"],
)
def test_rows_that_are_written_otherwise_have_the_same_hash_and_others_do_not(values: pa.Array, other: pa.Array) -> None:
    base = np.zeros(len(values), np.uint64)
    hashes = alike.likeness(base, [values])
    assert hashes.tolist() == alike.likeness(base, [other]).tolist()
    assert len(set(hashes.tolist())) == len(values), "different values, and NULL, have different hashes"
    assert alike.likeness(base, [values, pa.array(range(len(values)))]).tolist() != hashes.tolist()


def test_columns_of_text_are_hashed_each_in_its_place() -> None:
    base, (x, y) = np.zeros(1, np.uint64), (pa.array(["x"]), pa.array(["y"]))
    assert len({int(alike.likeness(base, columns)[0]) for columns in ([x, y], [y, x], [x, x], [x], [y])}) == 5


def test_a_text_that_is_not_utf8_is_hashed_by_its_bytes() -> None:
    def text(content: bytes) -> pa.Array:
        return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, len(content)], np.int32)), pa.py_buffer(content)])

    first, same, other = (alike.likeness(np.zeros(1, np.uint64), [text(content)])[0] for content in (b"\xff\xfe", b"\xff\xfe", b"\xff"))
    assert first == same != other


def test_a_sample_of_thousands_of_columns_has_fewer_rows_in_one_partition_and_in_two() -> None:
    assert [row_sample.rows_per_split(columns) for columns in (1, 500, 2_000, 100_000)] == [2_000, 2_000, 500, 200]
    columns = {f"c{number}": pa.array(range(600)) for number in range(2_000)}
    split, summaries = np.zeros(600, np.int64), []
    for seed in (0, 1):
        part = row_sample.RowSample(True, row_sample.rows_per_split(len(columns)))
        part.add(columns, split, np.random.default_rng(seed).integers(0, 2**64, 600, np.uint64))
        summaries.append(part.summary())
    for summary in (summaries[0], row_sample.merge_samples(*summaries)):
        assert row_sample.rows_by_split(summary)["train"].shape == (500, 2_000)
