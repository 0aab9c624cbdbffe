"""Encoders of values as text: numbers that hold in every process, and classes by name."""

import subprocess
import sys
from collections import Counter
from math import nan
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fitting import fit_encoder
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import ConfigError


def test_vocabulary_numbers_the_most_frequent_first_and_equals_by_value() -> None:
    encoder = fit_encoder("vocabulary", pa.array(["b", "a", "c", "c", None, "é", "é"]))
    assert encoder.state["values"] == ["c", "é", "a", "b"]
    assert encoder.encode(pa.array(["c", "é", "a", "b", None, "unseen"])).to_pylist() == [1, 2, 3, 4, 0, 0]
    assert encoder.column("x", "feature").cardinality == 5


def test_vocabulary_leaves_out_rare_values() -> None:
    values = pa.array(["a"] * 3 + ["b"] * 2 + ["c"])
    assert fit_encoder({"encoder": "vocabulary", "min_count": 2}, values).state["values"] == ["a", "b"]
    assert fit_encoder({"encoder": "vocabulary", "max_size": 1}, values).state["values"] == ["a"]


def test_vocabulary_of_nothing_encodes_everything_as_zero() -> None:
    encoder = fit_encoder("vocabulary", pa.array([None, None], pa.string()))
    assert encoder.encode(pa.array(["a", None])).to_pylist() == [0, 0]
    assert encoder.column("x", "feature").cardinality == 1


@pytest.mark.parametrize(
    "values",
    [
        pa.array([7, 8, 7, None], pa.int16()),
        pa.array([True, False, True, None]),
        pa.array([1.5, nan, 1.5, None, -0.0, 0.0, 1.5]),
        pa.array([19_000, 1, 19_000, None], pa.date32()),
        pa.array(["x", "y", "x", None], pa.large_string()),
    ],
    ids=lambda values: str(values.type),
)
def test_vocabulary_of_other_types(values: pa.Array) -> None:
    indices = fit_encoder("vocabulary", values).encode(values).to_pylist()
    assert indices[0] == indices[2] == 1
    assert indices[3] == 0
    assert len(indices) == 4 or (indices[1], indices[4]) == (0, indices[5])  # NaN is NULL, −0 is 0


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1))
def test_vocabulary_decodes_what_it_knows(values: list[str | None]) -> None:
    encoder = fit_encoder("vocabulary", pa.array(values, pa.string()))
    numbers = encoder.encode(pa.array(values, pa.string())).to_numpy()
    assert encoder.decode(numbers).tolist() == values
    counts = Counter(value for value in values if value is not None)
    assert encoder.state["values"] == sorted(counts, key=lambda value: (-counts[value], value.encode()))


def test_hash_holds_in_another_process() -> None:
    code = (
        "import pyarrow as pa; from fitting import fit_encoder;"
        "print(fit_encoder({'encoder': 'hash', 'buckets': 1000}, pa.array(['a'])).encode(pa.array(['a', 'b', '', None])).to_pylist())"
    )
    tests = Path(__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": f"{tests}:{tests.parent}"}, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[928, 668, 756, 487]"


def test_hash_of_a_number_is_that_of_its_text_and_spreads() -> None:
    encoder = fit_encoder({"encoder": "hash", "buckets": 64}, pa.array(["a"]))
    numbers = encoder.encode(pa.array(range(6_400))).to_numpy()
    assert numbers.tolist() == encoder.encode(pa.array(map(str, range(6_400)))).to_pylist()
    shares = np.bincount(numbers, minlength=64)
    assert len(shares) == 64
    assert shares.min() > 60


def test_hash_takes_null_and_nan_for_one_value() -> None:
    encoder = fit_encoder({"encoder": "hash", "buckets": 2**31 - 1}, pa.array([1.0]))
    null, not_a_number, number = encoder.encode(pa.array([None, nan, 1.0])).to_pylist()
    assert null == not_a_number != number


@pytest.mark.parametrize(
    ("values", "numbers", "classes"),
    [
        (pa.array([True, False, None, True]), [1, 0, None, 1], ("false", "true")),
        (pa.array([1, 0, None, 1, 2]), [1, 0, None, 1, None], ("0", "1")),
        (pa.array([1.0, -0.0, nan, 1.0, 0.5]), [1, 0, None, 1, None], ("0", "1")),
    ],
)
def test_binary(values: pa.Array, numbers: list[int | None], classes: tuple[str, str]) -> None:
    encoder = fit_encoder("binary", values)
    assert encoder.encode(values).to_pylist() == numbers
    assert (encoder.classes, encoder.class_counts) == (classes, (1, 2))
    assert encoder.column("y", "target").cardinality == 2


def test_binary_decodes_to_what_the_query_gives() -> None:
    assert fit_encoder("binary", pa.array([True])).decode(np.array([0, 1], np.uint8)).tolist() == [False, True]
    assert fit_encoder("binary", pa.array([1])).decode(np.array([0, 1], np.uint8)).tolist() == [0, 1]


def test_label_sorts_whole_numbers_as_such_and_refuses_unseen_classes() -> None:
    encoder = fit_encoder("label", pa.array([10, 9, 2, 9, None]))
    assert (encoder.classes, encoder.class_counts) == (("2", "9", "10"), (1, 2, 1))
    assert encoder.encode(pa.array([2, 10, 3, None])).to_pylist() == [0, 2, None, None]
    assert encoder.column("y", "target").dtype == "int64"


def test_label_of_text_decodes_to_names() -> None:
    encoder = fit_encoder("label", pa.array(["cat", "ant", "cat", "10", "9"]))
    assert encoder.classes == ("10", "9", "ant", "cat")
    assert encoder.decode(np.array([3, 2, 2])).tolist() == ["cat", "ant", "ant"]


@pytest.mark.parametrize(
    ("encoder", "values", "message"),
    [
        ("label", pa.array([None], pa.string()), "column a is NULL in every row of the training split"),
        ("binary", pa.array([2, 3, None]), "column a is neither 0 nor 1 in any row"),
    ],
)
def test_a_target_without_classes_is_an_error(encoder: str, values: pa.Array, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit_encoder(encoder, values)
