"""Encoders of an exported script against those of ETL, on values that Hypothesis chooses and on every character."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from pipelines.config.features import ENCODERS, encoder_settings
from pipelines.config.plugins import import_class
from pipelines.data.features import raw
from pipelines.data.features.base import Encoder
from pipelines.data.features.encoding import implementation
from pipelines.data.versions.schema import TensorColumn, to_numpy
from pipelines.serving.export import script
from pipelines.serving.export.examples import json_value
from pipelines.serving.export.standalone import columns, model, tokens, words

EDGES = [-2.5, 0.0, 0.1, 3.0, 1e9]
STATES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"encoder": "standardize"}, {"impute": None, "mean": 0.3, "deviation": 1.7}),
    ({"encoder": "minmax"}, {"impute": 0.5, "minimum": -3.0, "span": 7.0}),
    ({"encoder": "log1p"}, {"impute": None}),
    ({"encoder": "identity"}, {"impute": None, "dtype": "float32"}),
    ({"encoder": "quantile"}, {"impute": None, "edges": EDGES}),
    ({"encoder": "quantile"}, {"impute": 0.1, "edges": EDGES}),
    ({"encoder": "robust"}, {"impute": None, "median": 1.5, "scale": 0.25}),
    ({"encoder": "robust", "impute": "keep"}, {"impute": None, "median": 1.5, "scale": 0.25}),
    ({"encoder": "normal_quantile"}, {"impute": None, "points": EDGES, "deviates": [-2.0, -1.0, 0.0, 0.5, 2.0]}),
    ({"encoder": "vocabulary"}, {"values": ["1", "0.1", "true", "1e+10", "2024-01-31", "a"]}),
    ({"encoder": "hash", "buckets": 1_000}, {}),
    ({"encoder": "binary"}, {"classes": ["0", "1"], "counts": [1, 1]}),
    ({"encoder": "standardize", "impute": "keep"}, {"impute": None, "mean": 0.3, "deviation": 1.7}),
    ({"encoder": "minmax", "impute": "keep"}, {"impute": None, "minimum": -3.0, "span": 7.0}),
    ({"encoder": "log1p", "impute": "keep"}, {"impute": None}),
    ({"encoder": "identity", "impute": "keep"}, {"impute": None, "dtype": "float32"}),
    ({"encoder": "normal_quantile", "impute": "keep"}, {"impute": None, "points": EDGES, "deviates": [-2.0, -1.0, 0.0, 0.5, 2.0]}),
    ({"encoder": "normal_quantile", "impute": "keep"}, {"impute": None, "points": [1.0], "deviates": [0.0]}),
]
NUMBERS = [pa.float64(), pa.float32(), pa.int64(), pa.int8(), pa.bool_(), pa.decimal128(12, 3)]
VALUES = {
    "double": st.floats(allow_nan=False) | st.sampled_from([*EDGES, 1e10, 1e-7, 123456789.5]),
    "float": st.floats(width=32, allow_nan=False),
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "int8": st.integers(-128, 127),
    "bool": st.booleans(),
    "decimal128(12, 3)": st.decimals(-999_999, 999_999, places=3),
    "string": st.text(max_size=12),
    "date32[day]": st.dates(),
    "timestamp[us]": st.datetimes(),
}


def make_encoder(settings: dict[str, Any], state: dict[str, Any]) -> Encoder:
    parsed = encoder_settings(settings)
    return implementation(parsed)(parsed, state)


def both(settings: dict[str, Any], state: dict[str, Any], kind: pa.DataType, values: list[Any]) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """What ETL's encoder gives, and the values and the refused rows of the script's, which gets the values as JSON has them."""
    encoder = make_encoder(settings, state)
    expected = encoder.encode(pa.array(values, kind))
    complete = encoder.settings.model_dump(mode="json")
    column = columns.parse_columns([{"x": json_value(value)} for value in values], {"x": str(kind)})["x"]
    encoded, refused = columns.ENCODERS[model.encoder_name(complete)](complete, state, column)
    return expected, encoded, refused


def assert_equal(settings: dict[str, Any], state: dict[str, Any], kind: pa.DataType, values: list[Any]) -> None:
    expected, encoded, refused = both(settings, state, kind, values)
    assert refused.tolist() == expected.is_null().to_pylist()
    assert str(encoded[~refused].tolist()) == str(expected.filter(expected.is_valid()).to_pylist())  # NaN is no number


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize(("settings", "state"), STATES, ids=[settings["encoder"] for settings, _ in STATES])
@limits(max_examples=20)
@given(data=st.data())
def test_numbers_and_categories(settings: dict[str, Any], state: dict[str, Any], kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[str(kind)], min_size=1, max_size=20))
    finite = [None if isinstance(value, float) and np.isinf(value) else value for value in values]  # JSON has no infinity
    assert_equal(settings, state, kind, finite)


@pytest.mark.parametrize("kind", ["string", "date32[day]", "timestamp[us]"])
@given(data=st.data())
def test_categories_of_text_and_times(kind: str, data: st.DataObject) -> None:
    types = {"string": pa.string(), "date32[day]": pa.date32(), "timestamp[us]": pa.timestamp("us")}
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=20))
    for settings, state in (case for case in STATES if case[0]["encoder"] in ("vocabulary", "hash")):
        assert_equal(settings, state, types[kind], values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@example([1e9, 1e10, 9_999_999_999.5, 1e-6, 9.99e-7, -0.0, 5e-324, 1.7976931348623157e308])
def test_numbers_are_written_as_arrow_writes_them(values: list[float]) -> None:
    for kind in (pa.float64(), pa.float32()):
        with np.errstate(over="ignore"):
            column = pa.array(np.array(values, kind.to_pandas_dtype()))
        if np.isfinite(column.to_numpy()).all():
            assert columns.texts(columns.Column(str(kind), column.to_pylist())) == raw.categories(column).to_pylist()


def known_characters() -> list[str]:
    """All that this Python's Unicode has: libraries may know newer ones."""
    import unicodedata

    return [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]


def test_words_of_every_character_are_those_of_arrow() -> None:
    import pyarrow.compute as pc

    texts = [f"a{character}b '{character}" for character in known_characters()]
    assert [words.split_words(text) for text in texts] == raw.words(pa.array(texts)).to_pylist()
    every = pa.array(known_characters())
    assert [words.lower_case(character) for character in known_characters()] == pc.utf8_lower(every).to_pylist()


@given(st.text(st.sampled_from(" \t\n'sreltvmda1é数_.…"), max_size=40))
def test_words_of_texts(text: str) -> None:
    assert words.split_words(text) == raw.words(pa.array([text]))[0].as_py()


BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)


def byte_level(text: str) -> list[str]:
    letters = tokens.byte_letters()
    return ["".join(letters[byte] for byte in word.encode()) for word in tokens.gpt2_words(text)]


@given(st.text(st.sampled_from(" \t\n\r\x1c\xa0'sreltvmdRE1²éǅ数_.…"), max_size=40))
def test_words_for_byte_pairs_are_those_of_tokenizers(text: str) -> None:
    assert byte_level(text) == [word for word, _ in BYTE_LEVEL.pre_tokenize_str(text)]


def test_words_for_byte_pairs_of_every_character() -> None:
    text = "".join(f"a{character} {character}1" for character in known_characters())
    assert byte_level(text) == [word for word, _ in BYTE_LEVEL.pre_tokenize_str(text)]


MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ã ©"]


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"encoder": "bytes", "length": 4}, {}),
        ({"encoder": "characters", "length": 4}, {"characters": " dehlorwé"}),
        ({"encoder": "bpe", "length": 4, "vocabulary": 300}, {"merges": MERGES}),
        ({"encoder": "words", "length": 4, "lowercase": True}, {"words": ["he", "\n", "or", "é"]}),
    ],
    ids=lambda value: value.get("encoder", ""),
)
@given(text=st.text(max_size=30) | st.text(st.sampled_from("helo wrdéHÉ\n\r\x1c"), max_size=30))
def test_tokens_and_windows(settings: dict[str, Any], state: dict[str, Any], text: str) -> None:
    encoder = make_encoder(settings, state)
    expected, encoded, refused = both(settings, state, pa.string(), [text, None])
    assert refused.tolist() == expected.is_null().to_pylist()
    if not refused[0]:
        assert encoded[0].tolist() == expected[0].as_py()
        column = encoder.column("x", "feature")
        windows = model.windows(encoded[0], 4, column.dtype)
        assert windows.tolist() == encoder.windows([expected[0].values.to_numpy()]).tolist()


def test_an_encoder_that_says_why_it_refuses_a_row_says_so_in_a_script_too() -> None:
    implementations = {
        settings.model_fields["encoder"].default: import_class(settings.implementation, Encoder, "an encoder")
        for settings in ENCODERS.by_name.values()
    }
    say_why = {name for name, encoder in implementations.items() if encoder.fault is not Encoder.fault}
    assert columns.FAULTS.keys() == say_why & columns.ENCODERS.keys() == {"image", "log_mel", "series", "words"}
    encoder = make_encoder({"encoder": "words", "length": 4}, {"words": ["a"]})
    for text in (None, "", " \t"):
        assert columns.FAULTS["words"]({}, text) == encoder.fault(text)


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("length", [1, 3])
def test_sequences(keep: str, length: int) -> None:
    settings, state = {"encoder": "sequence", "length": length, "keep": keep}, {"words": ["the", "cat", "i̇", "'s", "7"]}
    texts = ["The cat's here", "", None, "İ CAT", "the cat the cat"]
    encoded = [
        both(settings, state, kind, values) for kind, values in [(pa.string(), texts), (pa.list_(pa.int64()), [[7, None, 3], [], None])]
    ]
    for expected, values, refused in encoded:
        assert refused.tolist() == expected.is_null().to_pylist()
        column = TensorColumn(name="x", dtype="int32", shape=(length,))
        assert values[~refused].tolist() == to_numpy(column, expected.drop_null()).tolist()


NESTED = [[[1.5, 2.5], [3.5, -0.0]], [[1.0, 2.0]], None, [[1.0, None], [0.0, 0.0]], [[1e39, 0.0], [0.0, 0.0]]]
FLAT = [[1.0, 2.0, 255.0, 3.0], [1.0], [256.0, 0.0, 0.0, 0.5], None, [0.0] * 4]


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"encoder": "identity", "shape": [2, 2]}, {"impute": None, "dtype": "float32"}),
        ({"encoder": "scale", "shape": [2, 2], "mean": [0.1, 0.2], "deviation": [1.5, 2.5]}, {}),
        ({"encoder": "image", "shape": [1, 2, 2]}, {}),
    ],
    ids=lambda value: value.get("encoder", ""),
)
def test_arrays(settings: dict[str, Any], state: dict[str, Any]) -> None:
    cases: list[tuple[pa.DataType, list[Any]]] = [(pa.list_(pa.float64()), FLAT)]
    cases += [(pa.list_(pa.list_(pa.float64())), NESTED)] if settings["encoder"] != "image" else [(pa.binary(), [b"abcd", b"abc", None])]
    column = make_encoder(settings, state).column("x", "feature")
    for kind, values in cases:
        expected, encoded, refused = both(settings, state, kind, values)
        assert refused.tolist() == expected.is_null().to_pylist()
        assert encoded[~refused].tobytes() == to_numpy(column, expected.drop_null()).tobytes()


def test_the_files_of_a_script_define_different_names() -> None:
    names = list[str]()
    for file in [*Path(str(script.__file__)).parent.glob("standalone/[a-z]*.py"), Path(str(script.spectrogram.__file__))]:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.append(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                names += [ast.unparse(target) for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})


def test_rows_are_counted_from_the_first_of_a_file_and_are_objects() -> None:
    kinds, rows = {"x": "int64"}, [{"x": 1}, {"x": "two"}]
    with pytest.raises(ValueError, match="row 1: column x takes int64"):
        columns.parse_columns(rows, kinds)
    with pytest.raises(ValueError, match=r"row 1025: column x takes int64, and this is 'two'"):
        columns.parse_columns(rows, kinds, 1_024)
    with pytest.raises(ValueError, match="row 1024 has no column x"):
        columns.parse_columns([{}], kinds, 1_024)
    for row in (5, None, "x", ["x"]):
        with pytest.raises(ValueError, match=r"row 7 is .*, and a row is a JSON object"):
            columns.parse_columns([row], kinds, 7)  # type: ignore[list-item]
