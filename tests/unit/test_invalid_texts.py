"""Texts that are not UTF-8 have a reason for their refusal, whatever encodes them."""

import numpy as np
import pyarrow as pa
import pytest
from fitting import fit

from pipelines.data.features import Encoders, refusal_kind
from pipelines.data.features.raw import find_invalid, null_invalid, python_value
from pipelines.etl.splits.split_assignment import ALIKE, ROW, SPLIT
from pipelines.etl.statistics.partition import summarize_partition
from pipelines.etl.statistics.row_sample import abridge

REASON = "__reason"
CONTENTS = [b"a house", b"\xff\xfe house", None, "größer".encode(), b"it's \xc3"]
INVALID = [False, True, False, False, True]


def texts(contents: list[bytes | None]) -> pa.Array:
    """As Spark gives them: Arrow does not look at the bytes."""
    raw = pa.array(contents, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def arrays() -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 2, None, 3, 3, 5], pa.int32()), texts(CONTENTS))


def test_invalid_texts_and_arrays_of_them_are_found_also_in_a_slice() -> None:
    values = texts(CONTENTS)
    assert np.array_equal(find_invalid(values), INVALID) and np.array_equal(find_invalid(values.slice(2)), INVALID[2:])
    assert null_invalid(values).to_pylist() == ["a house", None, None, "größer", None]
    assert np.array_equal(find_invalid(values.cast(pa.large_string(), safe=False)), INVALID)
    assert np.array_equal(find_invalid(arrays()), [True, False, False, False, True])
    assert find_invalid(values.take(pa.array([0, 2, 3]))) is None and find_invalid(pa.array([b"\xff"])) is None


@pytest.mark.parametrize(
    "settings",
    [
        *({"encoder": encoder, "length": 4} for encoder in ("bytes", "characters", "words", "sequence")),
        {"encoder": "terms", "length": 4, "min_count": 1},
        {"encoder": "words", "length": 4, "lowercase": True},
        {"encoder": "sequence", "length": 4, "lowercase": True},
        {"encoder": "bpe", "length": 4, "vocabulary": 300},
        {"encoder": "vocabulary"},
        {"encoder": "label"},
        {"encoder": "hash", "buckets": 8},
    ],
    ids=str,
)
def test_an_encoder_refuses_only_the_rows_whose_text_is_not_utf8(settings: dict) -> None:
    raw = texts(CONTENTS)
    target = {} if settings["encoder"] in ("bytes", "characters", "words", "bpe") else {"y": "identity"}
    table = pa.table({"text": null_invalid(raw), "y": pa.array(range(len(raw)))})
    fitted = fit({"text": settings}, target, table)
    encoded, reasons = Encoders(fitted).encode(table.set_column(0, "text", raw))
    assert len(encoded) == reasons.null_count and 2 <= len(encoded) <= 3
    name = settings["encoder"]
    assert [reasons[row].as_py() for row in (1, 4)] == [
        f"text: {name} cannot encode 8 bytes: it is no Unicode text",
        f"text: {name} cannot encode 6 bytes: it is no Unicode text",
    ]
    assert refusal_kind(reasons[1].as_py()) == f"text: {name} cannot encode a value: it is no Unicode text"


def test_statistics_take_a_text_that_is_not_utf8_for_null() -> None:
    raw = texts(CONTENTS)
    zeros = pa.array([0] * len(raw), pa.int64())
    fixed = {
        SPLIT: zeros.cast(pa.int32()),
        ROW: pa.array(range(len(raw)), pa.int64()),
        REASON: pa.nulls(len(raw), pa.string()),
        ALIKE: zeros,
    }
    for needed in ("words", "characters", "line_words", "byte_words", "counts"):
        results = [
            [
                result.to_pylist()
                for result in summarize_partition(
                    {"text": frozenset({needed})}, ["text"], [], False, iter([pa.RecordBatch.from_pydict({**fixed, "text": values})])
                )
            ]
            for values in (raw, null_invalid(raw))
        ]
        assert results[0] == results[1]


def test_a_text_that_is_not_utf8_is_shown_with_its_bytes_escaped() -> None:
    assert python_value(texts(CONTENTS)[1]) == "\\xff\\xfe house"
    assert python_value(arrays()[0]) == ["a house", "\\xff\\xfe house"]
    assert python_value(pa.StructArray.from_arrays([texts(CONTENTS)], ["t"])[4]) == {"t": "it's \\xc3"}
    assert abridge(texts(CONTENTS)).to_pylist() == ["a house", "\\xff\\xfe house", None, "größer", "it's \\xc3"]
