"""Charts of columns with extreme values, and the page about thousands of columns."""

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from filed import CONFIG, fit_manifest, raw_rows
from page_parts import render_text

from pipelines.config import parse
from pipelines.data.versions.data_profile import Survey
from pipelines.data.versions.manifest import SplitSummary
from pipelines.report.data_profile.columns import describe_columns
from pipelines.report.data_profile.page import MOST_FINDINGS, data_page

CHART = "{{ distribution(chart, name) }}"


def survey_of_column(raw: pa.Table, name: str) -> Survey:
    """Survey of an ETL of these rows, with a sample of one column."""
    config = parse(CONFIG, "test")
    train = SplitSummary(rows=len(raw), parts=1, row_groups=1, bytes=1, decoded_bytes=1)
    manifest = fit_manifest(config.dataset, raw).model_copy(update={"splits": {"train": train}})
    return Survey(config, manifest, {}, {"train": raw.select([name])}, np.empty((0, 3), np.int64), {}, {})


def chart(name: str, values: pa.Array) -> dict[str, Any]:
    """Chart of a column with these values, in turn."""
    raw = raw_rows()
    values = pa.concat_arrays([values] * len(raw)).slice(0, len(raw))
    raw = raw.set_column(raw.column_names.index(name), name, values)
    columns = describe_columns(survey_of_column(raw, name))
    return next(column["chart"] for column in columns if column["name"] == name)


@pytest.mark.parametrize(
    ("days", "ends"),
    [
        ([date(2020, 1, 1), date(9999, 12, 31)], ["2020-01-01", "9999-12-31"]),
        ([date(1, 1, 1)], ["0001-01-01", "0001-01-02"]),
        ([date(1969, 12, 31), date(1970, 1, 1)], ["1969-12-31", "1970-01-01"]),
    ],
)
def test_dates_that_stand_for_never_are_drawn(days: list[date], ends: list[str]) -> None:
    column_chart = chart("born", pa.array(days))
    assert column_chart["ends"] == ends and "<rect" in render_text(CHART, chart=column_chart, name="born")


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [1.7e308], [5e-324, 0.0], [2.0**60, -(2.0**60), 0.5]])
def test_the_largest_and_smallest_numbers_are_drawn(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        column_chart = chart("x", pa.array(values, pa.float64()))
    assert sum(column_chart["shares"]["train"]) == pytest.approx(1, abs=1e-3)
    assert "<rect" in render_text(CHART, chart=column_chart, name="x")


def test_a_page_of_thousands_of_columns_says_how_many_it_shows() -> None:
    raw = raw_rows()
    columns = describe_columns(survey_of_column(raw, "word"))
    described = {
        "findings": [{"kind": "drift", "text": f"column {number} drifts", "columns": []} for number in range(1_000)],
        "columns": columns, "raw_columns": 5_000, "sampled": {"train": len(raw)}, "rows": {"train": len(raw)}, "bytes": {"train": 1},
        "warnings": [], "refused": [], "seconds": {}, "spark": [], "sources": [], "key": [], "split": {}, "expect": {}, "versions": {},
        "balance": None, "event_log": "", "run_id": "", "query": "", "path": "data", "digest": "0" * 64, "version": "0" * 12,
        "created": "2026-11-25T00:00:00", "pipeline": "wide",
    }  # fmt: skip
    page = data_page(described)
    assert f"The first {len(columns)} of 5,000 columns" in page and "<b>5,000</b>" in page
    assert page.count(" drifts<") == MOST_FINDINGS and "950 more are in data.json" in page
