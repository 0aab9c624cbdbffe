"""What changed between versions that ETL has made, and an ETL that stops where its rows have drifted."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from stores import new_store

from pipelines import api
from pipelines.config import parse
from pipelines.config.pipeline import Config
from pipelines.data.versions.versions import versions
from pipelines.errors import QualityError
from pipelines.etl.run import run

ROWS = 4_000


def write_rows(
    folder: Path, seed: int, age_shift: float = 0.0, missing: float = 0.1, ids: range = range(ROWS), name: str = "rows.parquet"
) -> None:
    random, rows = np.random.default_rng(seed), len(ids)
    columns = {
        "id": np.array(ids),
        "age": random.normal(40 + age_shift, 10, rows),
        "income": np.where(random.random(rows) < missing, np.nan, random.lognormal(10, 1, rows)),
        "plan": random.choice(["basic", "gold"], rows),
        "left": random.random(rows) < 0.3,
    }
    pq.write_table(pa.table({column: pa.array(values, from_pandas=True) for column, values in columns.items()}), folder / name)


def pipeline(folder: Path, **source: object) -> Config:
    return parse(
        {
            "name": "churn",
            "source": {"tables": {"t": {"format": "parquet", "path": str(folder / "*.parquet")}}, **source},
            "dataset": {
                "path": str(folder / "data"),
                "key": ["id"],
                "features": {"age": "standardize", "income": {"encoder": "robust", "impute": "median"}, "plan": "vocabulary"},
                "target": {"left": "binary"},
            },
            "task": {"kind": "tabular"},
            "tracking": {"uri": new_store(folder)},
        },
        "churn",
    )


def test_an_etl_stops_where_its_rows_have_drifted_and_says_from_what(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(tmp_path, 1)
    first = run(pipeline(tmp_path, drift={}))  # the first version has none to compare with
    write_rows(tmp_path, 2, age_shift=8.0, missing=0.3)
    with pytest.raises(QualityError) as caught:
        run(pipeline(tmp_path, drift={}))
    message = str(caught.value)
    assert message.startswith(f"2 column(s) differ from version {first.version} by more than source.drift allows")
    assert "\n  age: another distribution: PSI 0." in message and "\n  income: missing 1" in message
    assert [manifest.version for _, manifest in versions(str(tmp_path / "data"))] == [first.version]
    assert not [file for file in (tmp_path / "data").rglob("*.parquet") if first.version not in str(file)]
    second = run(pipeline(tmp_path, drift={"psi": 2.0, "missing": 0.5}))  # the remedy
    assert run(pipeline(tmp_path)).version == second.version  # limits are no part of its name
    difference = api.diff(str(tmp_path / "data"), output=str(tmp_path / "page.html"))
    assert (difference.before.version, difference.now.version) == (first.version, second.version)
    assert {(finding.column, finding.kind) for finding in difference.columns.findings} == {("age", "drift"), ("income", "missing")}
    assert "another distribution" in (tmp_path / "page.html").read_text()


def test_a_bad_night_is_not_diluted_by_the_rows_before_it(spark: SparkSession, tmp_path: Path) -> None:
    """The rows that came are compared, of which there are a twentieth; missing values in the raw rows of validation and test."""
    write_rows(tmp_path, 1)
    first = run(pipeline(tmp_path, drift={}))
    write_rows(tmp_path, 2, ids=range(ROWS, ROWS + 200), name="good.parquet")
    second = run(pipeline(tmp_path, drift={}), parent_name="previous")
    assert second.parent == first.version
    for changed, text in (({"age_shift": 20.0}, "age: another distribution"), ({"missing": 0.9}, "income: missing 1")):
        write_rows(tmp_path, 3, ids=range(2 * ROWS, 2 * ROWS + 200), name="night.parquet", **changed)
        with pytest.raises(QualityError, match=rf"1 column.s. differ from version {second.version} .*(?s:.*)\n  {text}"):
            run(pipeline(tmp_path, drift={}), parent_name="previous")
    write_rows(tmp_path, 3, ids=range(2 * ROWS, 2 * ROWS + 200), name="night.parquet")
    assert run(pipeline(tmp_path, drift={}), parent_name="previous").parent == second.version
    assert len(versions(str(tmp_path / "data"))) == 3


def test_altered_rows_are_counted_by_key_and_do_not_stop_an_etl(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(tmp_path, 1)
    run(pipeline(tmp_path))
    rows = pq.read_table(tmp_path / "rows.parquet").to_pandas()
    rows.loc[100:116, "age"] += 1.0
    pq.write_table(
        pa.Table.from_pandas(rows[rows.id >= 50].sample(frac=1, random_state=0), preserve_index=False), tmp_path / "rows.parquet"
    )
    run(pipeline(tmp_path, drift={}))
    assert len(versions(str(tmp_path / "data"))) == 2
    difference = api.diff(str(tmp_path / "data"))
    assert difference.rows is not None and difference.rows.basis == "keys" and difference.columns.findings == ()
    counts = difference.rows.by_split.values()
    totals = {name: sum(getattr(split, name) for split in counts) for name in ("added", "removed", "changed", "moved")}
    assert totals == {"added": 0, "removed": 50, "changed": 17, "moved": 0}
    compared = api.diff(str(tmp_path / "data"), str(tmp_path / "rows.parquet"))  # the rows of the newest version itself
    assert compared.is_empty and compared.rows is None
