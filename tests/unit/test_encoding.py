"""All encoders together: fitted from settings, kept as JSON, and applied to whole tables, slices and single rows alike."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fitting import fit
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config.dataset.dataset import Dataset
from pipelines.data.features import Encoders, needs
from pipelines.data.features.encoding import check_columns
from pipelines.data.versions.manifest import FittedEncoder, tensor_columns
from pipelines.data.versions.schema import arrow_schema
from pipelines.errors import ConfigError, SourceError

FEATURES: dict[str, Any] = {
    "x": "standardize",
    "scaled": {"encoder": "minmax", "column": "x", "impute": "median"},
    "logged": {"encoder": "log1p", "column": "x", "impute": 0},
    "binned": {"encoder": "quantile", "column": "x", "bins": 3},
    "bell": {"encoder": "normal_quantile", "column": "x", "impute": "mean", "quantiles": 5},
    "waves": {"encoder": "fourier", "columns": ["x", "y"], "frequencies": 3},
    "y": "identity",
    "word": "vocabulary",
    "hashed": {"encoder": "hash", "column": "word", "buckets": 7},
    "yes": "binary",
    "pair": {"encoder": "identity", "shape": [2]},
    "image": {"encoder": "image", "shape": [1, 1, 2], "column": "pixels"},
}
TARGET = {"class": {"encoder": "label", "column": "word"}}


def raw_table(values: list[tuple]) -> pa.Table:
    kinds = {
        "x": pa.float64(),
        "y": pa.int32(),
        "word": pa.string(),
        "yes": pa.bool_(),
        "pair": pa.list_(pa.float32()),
        "pixels": pa.binary(),
    }
    columns = list(zip(*values, strict=True)) or [()] * len(kinds)
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)})


TRAINING = raw_table([(float(n), n * n, "abc"[n % 3], n % 2 == 0, [n, -n], bytes([n, 255 - n])) for n in range(20)])
ENCODERS = fit(FEATURES, TARGET, TRAINING)
ROW = st.tuples(
    st.one_of(st.none(), st.floats(-30, 30), st.sampled_from([float("nan"), float("inf")])),
    st.one_of(st.none(), st.integers(-9, 9)),
    st.one_of(st.none(), st.sampled_from("abcd")),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=2)),
    st.one_of(st.none(), st.binary(min_size=1, max_size=2)),
)
GOOD = st.tuples(
    st.floats(-30, 30), st.integers(-9, 9), st.sampled_from("abc"), st.booleans(), st.just([1.0, 2.0]), st.binary(min_size=2, max_size=2)
)


def test_every_encoder_accepts_its_training_rows() -> None:
    table, reasons = Encoders(ENCODERS).encode(TRAINING)
    assert reasons.null_count == table.num_rows == 20
    assert table.schema.equals(arrow_schema(tensor_columns(ENCODERS)), check_metadata=True)
    assert [name for name, fitted in ENCODERS.items() if fitted.column.role == "target"] == ["class"]


@settings(max_examples=60)
@given(st.lists(st.one_of(ROW, GOOD), max_size=12), st.data())
def test_p7_slices_chunks_and_single_rows_encode_as_the_whole(values: list[tuple], data: st.DataObject) -> None:
    raw = raw_table(values)
    complete, reasons = Encoders(ENCODERS).encode(raw)
    cut = data.draw(st.integers(0, len(raw)))
    chunked, chunked_reasons = Encoders(ENCODERS).encode(pa.concat_tables([raw.slice(0, cut), raw.slice(cut)]))
    assert chunked.equals(complete)
    assert chunked_reasons.equals(reasons)
    encoders = Encoders(ENCODERS)
    singly = [encoders.encode(raw.slice(row, 1)) for row in range(len(raw))]
    assert pa.concat_tables([encoders.schema.empty_table(), *(table for table, _ in singly)]).equals(complete)
    assert [reason[0].as_py() for _, reason in singly] == reasons.to_pylist()
    assert complete.num_rows == reasons.null_count
    assert not any(column.null_count for column in complete.columns)


def test_p7_encoders_survive_json() -> None:
    loaded = {name: FittedEncoder.model_validate(json.loads(fitted.model_dump_json())) for name, fitted in ENCODERS.items()}
    assert loaded == ENCODERS
    assert Encoders(loaded).encode(TRAINING)[0].equals(Encoders(ENCODERS).encode(TRAINING)[0])


def test_refused_rows_say_why() -> None:
    good = (1.0, 1, "a", True, [1.0, 2.0], b"ab")
    bad = [
        good,
        (None, *good[1:]),
        (*good[:2], "z" * 99, *good[3:]),
        (*good[:4], [1.0], b"xxx"),
        (*good[:5], b"xxx"),
        (1.0, None, *good[2:]),
    ]
    table, reasons = Encoders(ENCODERS).encode(raw_table(bad))
    assert table.num_rows == 1
    assert reasons.to_pylist() == [
        None,
        "x: standardize cannot encode NULL",
        f"class: label cannot encode {'z' * 40}…",
        "pair: identity cannot encode [1.0]",
        "image: image cannot encode 3 bytes: it is of an unknown kind (first bytes 120, 120, 120), not PNG or JPEG or 2 bytes of pixels",
        "waves: fourier cannot encode x 1.0, y NULL",
    ]


def test_serving_needs_no_target() -> None:
    features = {name: fitted for name, fitted in ENCODERS.items() if fitted.column.role == "feature"}
    assert Encoders(features).encode(TRAINING)[0].equals(Encoders(ENCODERS).encode(TRAINING)[0].drop_columns("class"))


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(SourceError, match="x is encoded from x; the rows have only y, word"):
        Encoders(ENCODERS).encode(TRAINING.drop_columns("x"))


def test_dictionary_columns_encode_as_plain_ones() -> None:
    encoded = TRAINING.set_column(2, "word", TRAINING.column("word").dictionary_encode())
    assert Encoders(ENCODERS).encode(encoded)[0].equals(Encoders(ENCODERS).encode(TRAINING)[0])


def test_needs_are_the_union_over_a_columns_encoders() -> None:
    dataset = Dataset.model_validate({"path": "data", "features": FEATURES, "target": TARGET})
    assert needs(dataset) == {
        "x": {"moments", "sample"},
        "y": {"moments"},
        "word": {"counts"},
        "yes": {"counts"},
        "pair": frozenset(),
        "pixels": frozenset(),
    }


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"word": "standardize"}, r"dataset.features.word: standardize cannot encode column word, which is string: it takes numbers; CAST"),
        (
            {"f": {"encoder": "minmax", "column": "wrod"}},
            r"features.f: the query gives no column wrod; did you mean word\? \(it gives x, y, word, yes",
        ),
        ({"pair": "vocabulary"}, r"vocabulary cannot encode column pair, which is list<\w+: float>: it takes text"),
        ({"x": {"encoder": "image", "shape": [1, 2, 2]}}, r"image cannot encode column x, which is double: it takes bytes, or arrays"),
        ({"word": "binary"}, r"binary cannot encode column word, which is string: it takes true and false, or 1 and 0; write a condition"),
        ({"waves": {"encoder": "fourier", "columns": ["x", "word"]}}, r"fourier cannot encode column word"),
    ],
)
def test_columns_that_do_not_fit_are_named_before_a_row_is_read(feature: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(feature, TARGET, TRAINING)


def test_a_passthrough_column_is_named_by_its_key() -> None:
    sections = {"features": {"x": "standardize"}, "target": TARGET, "passthrough": {"again": {"encoder": "identity", "column": "word"}}}
    with pytest.raises(ConfigError, match=r"^dataset.passthrough.again: identity cannot encode column word, which is string"):
        check_columns(Dataset.model_validate({"path": "data", **sections}), TRAINING.schema)


def test_every_fault_has_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        fit({"word": "standardize", "nothing": "minmax"}, {"target": "label"}, TRAINING)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "dataset.features.word",
        "dataset.features.nothing",
        "dataset.target.target",
    ]


def test_arrow_buffers_are_canonical_whatever_was_sliced_off() -> None:
    """Rows that a filter or slice left behind must not show in what is written and digested."""
    sliced = Encoders(ENCODERS).encode(TRAINING.slice(5, 5))[0]
    rows = {name: TRAINING.column(name).to_pylist()[5:10] for name in TRAINING.column_names}
    direct = Encoders(ENCODERS).encode(pa.table(rows, TRAINING.schema))[0]
    assert sliced.equals(direct)
    assert np.array_equal(sliced["x"].to_numpy(), direct["x"].to_numpy())
