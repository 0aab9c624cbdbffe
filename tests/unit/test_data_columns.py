"""What the page about the data shows of columns with extreme values."""

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from filed import CONFIG, manifest_of, raw_rows

from pipelines.config import parse
from pipelines.report.survey.columns import described_columns
from pipelines.report.survey.histograms import histogram


def chart(name: str, values: pa.Array) -> dict[str, Any]:
    """That of a column with these values, in turn."""
    raw = raw_rows()
    values = pa.concat_arrays([values] * len(raw)).slice(0, len(raw))
    raw = raw.set_column(raw.column_names.index(name), name, values)
    found = described_columns(manifest_of(parse(CONFIG, "test").dataset, raw), {"train": raw.select([name])}, ())
    return next(column["chart"] for column in found if column["name"] == name)


@pytest.mark.parametrize(
    ("days", "ends"),
    [
        ([date(2020, 1, 1), date(9999, 12, 31)], ["2020-01-01", "9999-12-31"]),
        ([date(1, 1, 1)], ["0001-01-01", "0001-01-02"]),
        ([date(1969, 12, 31), date(1970, 1, 1)], ["1969-12-31", "1970-01-01"]),
    ],
)
def test_dates_that_stand_for_never_are_drawn(days: list[date], ends: list[str]) -> None:
    found = chart("born", pa.array(days))
    assert found["ends"] == ends and "<rect" in histogram(found, "born")


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [1.7e308], [5e-324, 0.0], [2.0**60, -(2.0**60), 0.5]])
def test_the_largest_and_smallest_numbers_are_drawn(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        found = chart("x", pa.array(values, pa.float64()))
    assert sum(found["shares"]["train"]) == pytest.approx(1, abs=1e-3) and "<rect" in histogram(found, "x")
