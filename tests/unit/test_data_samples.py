"""Rows on the page about the data."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from pipelines.data.versions.schema import schema_to_text
from pipelines.report.data_profile.samples import describe_samples


def test_rows_show_values_and_no_marks_of_nested_ones() -> None:
    raw = pa.schema({"image": pa.list_(pa.list_(pa.uint8())), "flag": pa.bool_(), "sound": pa.binary(), "words": pa.list_(pa.string())})
    sampled = pa.table({"image": [True, True], "flag": [True, False], "sound": [True, None], "words": [3, 5], "__order": [1, 2]})
    manifest = SimpleNamespace(raw_schema=schema_to_text(raw), encoders={})
    survey: Any = SimpleNamespace(
        config=SimpleNamespace(tracking=SimpleNamespace(data_samples=5)), samples={"train": sampled}, manifest=manifest
    )
    assert describe_samples(survey) == {"columns": ["flag", "words"], "rows": [["True", "3"], ["False", "5"]], "pictures": []}
