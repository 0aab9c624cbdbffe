"""Rows as the vectors of a linear model: numbers as they are, indices one-hot, sequences counted."""

import numpy as np

from pipelines.data.versions.schema import TensorColumn
from pipelines.launch.spark_baseline import _vectors

COLUMNS = [
    TensorColumn(name="age", dtype="float32"),
    TensorColumn(name="job", dtype="int32", cardinality=3),
    TensorColumn(name="place", dtype="float32", shape=(2,)),
    TensorColumn(name="words", dtype="int32", shape=(4,), cardinality=5),
]


def test_a_row_s_vector() -> None:
    values = {
        "age": np.array([0.5, 2.0], np.float32),
        "job": np.array([2, 0], np.int32),
        "place": np.array([[3, 4], [0, 6]], np.float32),
        "words": np.array([[1, 4, 1, 0], [0, 0, 0, 0]], np.int32),
    }
    first, second = _vectors(COLUMNS, values).to_pylist()
    assert dense(first) == [0.5, 0, 0, 1, 3, 4, 1, 2, 0, 0, 1]
    assert dense(second) == [2, 1, 0, 0, 0, 6, 4, 0, 0, 0, 0]
    assert first["indices"] == sorted(set(first["indices"])), "as Spark has them"


def dense(vector: dict) -> list[float]:
    values = np.zeros(vector["size"])
    values[vector["indices"]] = vector["values"]
    return values.tolist()


def test_a_wide_row_of_one_group_stays_apart_from_the_next() -> None:
    columns = [TensorColumn(name="n", dtype="float32", shape=(1_000,))]
    values = np.arange(3_000, dtype=np.float32).reshape(3, 1_000)
    assert [dense(row) for row in _vectors(columns, {"n": values}).to_pylist()] == values.tolist()
