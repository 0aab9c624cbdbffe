"""Values of categories on the page about the data: counted in all rows of all splits, and never more than a few."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from filed import CONFIG, fit_manifest, raw_rows

from pipelines.config import parse
from pipelines.data.features.statistics import Statistics
from pipelines.data.versions.data_profile import Survey, ValueCounts
from pipelines.data.versions.manifest import SplitSummary
from pipelines.etl.statistics import row_sample
from pipelines.etl.statistics.value_counts import MOST_VALUES, ValueCounter, combine_counts, value_counts
from pipelines.report.data_profile import profile_files

RANDOM = np.random.default_rng(2)
ROWS = 6_000
COLUMNS = {
    "rich": pa.array(RANDOM.random(ROWS) < 0.2),
    "city": pa.array([["Ulm", "Bonn", "", None][place] for place in RANDOM.integers(0, 4, ROWS)]),
    "stars": pa.array(RANDOM.integers(-2, 4, ROWS), mask=RANDOM.random(ROWS) < 0.1),
    "age": pa.array(RANDOM.integers(0, 99, ROWS)),
    "name": pa.array([f"row {number}" for number in range(ROWS)]),
    "size": pa.array(RANDOM.random(ROWS)),
    "bytes": pa.array([b"x"] * ROWS),
}
SPLIT_OF = RANDOM.choice(3, ROWS, p=[0.7, 0.1, 0.2])


def combined_counts(*bounds: int, elsewhere: tuple[str, ...] = ()) -> dict[str, Any]:
    """The counts of batches between these bounds, each its own partition."""
    summaries = []
    for start, stop in pairwise(bounds):
        part = ValueCounter(COLUMNS, elsewhere)
        for first in range(start, stop, 500):
            rows = slice(first, min(first + 500, stop))
            part.add({name: values[rows] for name, values in COLUMNS.items()}, SPLIT_OF[rows])
        summaries.append(json.loads(json.dumps(part.summary())))
    combined = summaries[0]
    for summary in summaries[1:]:
        combined = combine_counts(combined, summary)
    return combined


def test_every_row_is_counted_whatever_the_partitions_are() -> None:
    summary = combined_counts(0, ROWS)
    assert combined_counts(0, 700, 2_100, ROWS) == summary
    counts_by_column = value_counts(summary, {})
    assert counts_by_column.keys() == {"rich", "city", "stars"}, "of columns with many values there is only the sample"
    for name, counts in counts_by_column.items():
        values = ["true" if value is True else "false" if value is False else value for value in COLUMNS[name].to_pylist()]
        for place in range(3):
            split_values = [value for value, split in zip(values, SPLIT_OF, strict=True) if split == place]
            assert dict(zip(counts.values, counts.rows[:, place].tolist(), strict=True)) == {
                value: split_values.count(value if name != "stars" else int(value)) for value in counts.values
            }
            assert counts.missing[place] == split_values.count(None)


def test_values_of_train_that_the_encoders_count_are_not_counted_twice() -> None:
    train = COLUMNS["city"].filter(pa.array(SPLIT_OF == 0))
    values = train.drop_null().value_counts()
    counts = pa.table({"value": values.field("values"), "count": values.field("counts")})
    statistics = Statistics(len(train), train.null_count, counts=counts)
    reused = value_counts(combined_counts(0, ROWS, elsewhere=("city",)), {"city": statistics})["city"]
    recounted = value_counts(combined_counts(0, ROWS), {})["city"]
    assert reused.values == recounted.values and (reused.rows == recounted.rows).all() and (reused.missing == recounted.missing).all()
    many = pa.table({"value": [str(number) for number in range(MOST_VALUES + 1)], "count": [1] * (MOST_VALUES + 1)})
    assert value_counts({"city": {}}, {"city": Statistics(1, 0, counts=many)}) == {}


def survey(sampled: int, counts: dict[str, ValueCounts]) -> Survey:
    """Of a table whose sample shows a target share that the table does not have."""
    raw = raw_rows()
    config = parse({**CONFIG, "source": {"tables": {"t": {"format": "parquet", "path": "t"}}}}, "test")
    rows = {"train": 40_000, "test": 10_000}
    splits = {name: SplitSummary(rows=count, parts=1, row_groups=1, bytes=1, decoded_bytes=1) for name, count in rows.items()}
    manifest = fit_manifest(config.dataset, raw).model_copy(update={"splits": splits})
    table = pa.table(
        {name: row_sample.abridge(values.combine_chunks()) for name, values in zip(raw.column_names, raw.columns, strict=True)}
    )
    drifted = table.set_column(table.column_names.index("rich"), "rich", pa.array(np.arange(len(raw)) % 4 == 0))
    samples = {"train": table.slice(0, sampled), "test": drifted.slice(0, sampled)}
    return Survey(config, manifest, {}, samples, np.zeros((0, 3), np.int64), {}, {"fit": 1.0}, counts=counts)


def test_a_drift_that_only_the_sample_shows_is_none_and_shares_are_those_of_all_rows() -> None:
    sampled = json.loads(profile_files(survey(500, {}))["data.json"])
    assert ("drift", ["rich"]) in [(finding["kind"], finding["columns"]) for finding in sampled["findings"]]
    counts = ValueCounts(("false", "true"), np.array([[24_000, 0, 6_002], [16_000, 0, 3_998]]), np.zeros(3, np.int64))
    files = profile_files(survey(500, {"rich": counts}))
    described = json.loads(files["data.json"])
    assert ("drift", ["rich"]) not in [(finding["kind"], finding["columns"]) for finding in described["findings"]]
    target = described["columns"][0]
    assert target["name"] == "rich" and target["chart"]["shares"] == {"train": [0.6, 0.4], "test": [0.6002, 0.3998]}
    assert "<title>test 39.98%</title>" in files["data.html"] and "true: 40.00% of train, 39.98% of test" in files["data.html"]


@pytest.mark.parametrize(("sampled", "has_interval"), [(500, True), (0, False)])
def test_what_is_sampled_has_an_interval_and_values_beyond_the_axis_a_mark(sampled: int, has_interval: bool) -> None:
    data = survey(sampled, {}) if sampled else survey(500, {})
    if not sampled:  # the sample is all that there is
        splits = {name: split_summary.model_copy(update={"rows": 500}) for name, split_summary in data.manifest.splits.items()}
        data = Survey(data.config, data.manifest.model_copy(update={"splits": splits}), {}, data.samples, data.contents, {}, {"fit": 1.0})
    files = profile_files(data)
    described = {column["name"]: column for column in json.loads(files["data.json"])["columns"]}
    missing = described["rooms"]["missing"]["test"]
    assert ("interval" in missing) == has_interval and bool(described["price"]["chart"]["sampled"]) == has_interval
    if has_interval:
        low, high = missing["interval"]
        assert low < missing["share"] < high
    assert ("chart of a sample: each share is right within 4.4 percentage points at most" in files["data.html"]) == has_interval
    below, above = described["price"]["chart"]["beyond"]["train"]
    assert 0 < above < 0.02 and f"beyond the ends of the axis: of train {below:.1%} below and {above:.1%} above" in files["data.html"]
    assert "values beyond this end are in the outer bar" in files["data.html"] and ">≥ " in files["data.html"]
