"""Words of texts and elements of arrays as numbers of a fixed length."""

import numpy as np
import pyarrow as pa
import pytest
from fitting import fit, fit_encoder

from pipelines.data.features import Encoders
from pipelines.data.features.base import Encoder
from pipelines.data.features.raw import words
from pipelines.data.versions.schema import to_numpy
from pipelines.errors import ConfigError


def encode(encoder: Encoder, values: pa.Array) -> list[list[int]]:
    return to_numpy(encoder.column("x", "feature"), encoder.encode(values)).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it's naïve, isn't it?", ["it", "'s", "naïve", ",", "isn", "'t", "it", "?"]),
        ("it 's  already cut .", ["it", "'s", "already", "cut", "."]),
        ("", []),
        (" \t ", []),
        ("a\u00a0b…c", ["a", "b", "…", "c"]),
        ("3.5 km_h", ["3", ".", "5", "km_h"]),
        (None, None),
    ],
)
def test_a_text_s_words(text: str | None, expected: list[str] | None) -> None:
    assert words(pa.array([text, "next"], pa.string())).to_pylist() == [expected, ["next"]]


def test_words_are_numbered_by_frequency_and_shorter_texts_are_filled() -> None:
    texts = pa.array(["b a A", "c b a", "", "zz yy xx ww vv"])
    encoder = fit_encoder({"encoder": "sequence", "length": 4}, texts)
    assert encoder.state["words"][:2] == ["a", "b"]
    assert encoder.column("x", "feature").cardinality == 2 + 8
    assert encode(encoder, pa.array(["A b nowhere", "", "a a a a b"])) == [[2, 3, 1, 0], [0, 0, 0, 0], [2, 2, 2, 2]]
    assert encoder.decode(np.array([2, 3, 1, 0])).tolist() == ["a", "b", None, None]


def test_rare_words_are_unknown_and_case_may_matter() -> None:
    settings = {"encoder": "sequence", "length": 2, "min_count": 2, "lowercase": False}
    encoder = fit_encoder(settings, pa.array(["a A", "a b", "b"]))
    assert encoder.state["words"] == ["a", "b"]
    assert encode(encoder, pa.array(["A a"])) == [[1, 2]]


def test_the_last_of_a_history_stay_at_its_end() -> None:
    histories = pa.array([[5, 6], [6], [], [7, 8, 6]], pa.list_(pa.int64()))
    encoder = fit_encoder({"encoder": "sequence", "length": 2, "keep": "last"}, histories)
    assert encoder.state["words"] == ["6", "5", "7", "8"]
    assert encode(encoder, histories) == [[3, 2], [0, 2], [0, 0], [5, 2]]
    assert encode(encoder, histories.slice(1)) == [[0, 2], [0, 0], [5, 2]], "slices encode alike"
    assert encode(encoder, pa.array([[None, 9]], pa.list_(pa.int64()))) == [[1, 1]]


def test_null_is_refused_and_nothing_is_not() -> None:
    encoder = fit_encoder({"encoder": "sequence", "length": 2}, pa.array(["a"]))
    assert encoder.encode(pa.array([None, "", "a"], pa.string())).is_null().to_pylist() == [True, False, False]


def test_two_columns_share_their_numbers() -> None:
    raw = pa.table({"history": [["a", "b"], ["a"]], "next": [["c"], ["b"]]})
    shared = {"encoder": "sequence", "length": 2, "vocabulary_of": ["history", "next"]}
    encoders = fit({"history": shared}, {"next": shared}, raw)
    assert encoders["history"].state == encoders["next"].state == {"words": ["a", "b", "c"]}
    assert encoders["history"].inputs == ("history",), "a served model is not asked for the other column"
    assert Encoders({"history": encoders["history"]}).encode(raw.select(["history"]))[0].num_rows == 2


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({"n": {"encoder": "sequence", "length": 2}}, "sequence cannot encode column n, which is int64: it takes text, or arrays"),
        ({"t": {"encoder": "sequence", "length": 2}, "whole": {"encoder": "vocabulary", "column": "t"}}, "t AS t_whole in the query"),
        ({"t": {"encoder": "sequence", "length": 2, "vocabulary_of": ["u"]}}, "the query gives no column u"),
    ],
)
def test_what_cannot_be_encoded_is_said(features: dict, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        fit(features, {"y": "identity"}, pa.table({"t": ["a"], "n": [1], "y": [1.0]}))
    assert says in str(error.value)


def test_the_elements_of_an_array_are_taken_as_they_are() -> None:
    ids = pa.array([["aB", "Ab", "aB"], ["AB"]])
    encoder = fit_encoder({"encoder": "sequence", "length": 3}, ids)
    assert encoder.state["words"] == ["aB", "AB", "Ab"]
    assert encode(encoder, ids) == [[2, 4, 2], [3, 0, 0]]


def test_a_text_has_the_same_words_whatever_lies_behind_it_in_memory() -> None:
    """Texts of many lengths: Arrow's buffers end with a text if its bytes, with spaces between words, are a multiple of 64."""
    for letters in range(40, 72):
        texts = pa.array([f"{'x' * letters} last"])
        assert {tuple(words(texts)[0].as_py()) for _ in range(8)} == {("x" * letters, "last")}
