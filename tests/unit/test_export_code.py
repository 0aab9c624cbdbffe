"""The code of exported folders: the very encoders, made from plain JSON, in a process without pydantic, torch or MLflow."""

import json
import subprocess
import sys
from base64 import b64decode
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pytest
from exporting import ABSENT
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipelines.applications.huggingface.encoders import _PLACEHOLDER
from pipelines.config.features import ENCODERS, encoder_settings
from pipelines.data.features import Encoders
from pipelines.data.features.encoding import implementation
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import schema_to_text
from pipelines.errors import ExportError
from pipelines.serving.export.export_folder import describe_answer, encoder_in_json
from pipelines.serving.export.predict_program import rows_from_json, rows_to_json
from pipelines.serving.export.predict_script import PROGRAM, find_modules
from pipelines.serving.model.logged_model import write_zip

ALONE = f"""{ABSENT}
import json
sys.path.insert(0, sys.argv[1])
import pyarrow as pa
from pipelines.data.features.row_encoders import RowEncoders
from pipelines.data.versions.schema import schema_from_text
from pipelines.serving.export.predict_program import rows_from_json
from pipelines.serving.export.predict_program import restore_row_encoder
from base64 import b64encode
answers = []
for description, schema, rows in json.load(sys.stdin):
    raw = rows_from_json(rows, schema_from_text(schema))
    encoded, reasons = RowEncoders({{"x": restore_row_encoder(description)}}).encode(raw)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, encoded.schema) as stream:
        stream.write_table(encoded)
    answers.append([b64encode(sink.getvalue().to_pybytes()).decode(), reasons.to_pylist()])
assert all(module.__file__.startswith(sys.argv[1]) for name, module in sys.modules.items() if name.partition(".")[0] == "pipelines")
json.dump(answers, sys.stdout)
"""
"""Encodes rows where only the archive has code of Lockstep's."""


class Case(NamedTuple):
    settings: dict[str, Any]
    state: dict[str, Any]
    rows: pa.Table


def png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


NUMBERS = pa.table({"a": pa.array([None, 0.1, -2.5, 1e9, 3.0, 1e300], pa.float64())})
TWO_NUMBERS = NUMBERS.append_column("b", NUMBERS["a"])
TEXTS = pa.table({"a": pa.array([None, "", "It's a film, a good film.", "İ CAT hello\nworld é", " \t"], pa.string())})
EDGES = [-2.5, 0.0, 0.1, 3.0, 1e9]
PICTURE = png(np.arange(48, dtype=np.uint8).reshape(8, 6))
FLOATS: dict[str, Any] = {"impute": None}
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w"]
CASES = [
    Case({"encoder": "standardize"}, {**FLOATS, "mean": 0.3, "deviation": 1.7}, NUMBERS),
    Case({"encoder": "standardize", "impute": "keep"}, {**FLOATS, "mean": 0.3, "deviation": 1.7}, NUMBERS),
    Case({"encoder": "minmax", "impute": "median"}, {"impute": 0.5, "minimum": -3.0, "span": 7.0}, NUMBERS),
    Case({"encoder": "log1p"}, FLOATS, NUMBERS),
    Case({"encoder": "identity"}, {**FLOATS, "dtype": "int64"}, pa.table({"a": pa.array([2**60 + 1, None], pa.int64())})),
    Case({"encoder": "quantile"}, {**FLOATS, "edges": EDGES}, NUMBERS),
    Case({"encoder": "normal_quantile"}, {**FLOATS, "points": EDGES, "deviates": [-2.0, -1.0, 0.0, 0.5, 2.0]}, NUMBERS),
    Case({"encoder": "robust"}, {**FLOATS, "median": 1.5, "scale": 0.25}, NUMBERS),
    Case(
        {"encoder": "fourier", "columns": ["a", "b"], "frequencies": 2},
        {"impute": [None, None], "mean": [0.0, 1.0], "deviation": [1.0, 2.0], "frequencies": [[0.5, 1.5], [2.5, 0.1]]},
        TWO_NUMBERS,
    ),
    Case({"encoder": "vocabulary"}, {"values": ["0.1", "1e+09"]}, NUMBERS),
    Case({"encoder": "vocabulary"}, {"values": ["2024-01-31"]}, pa.table({"a": pa.array([date(2024, 1, 31), None], pa.date32())})),
    Case({"encoder": "hash", "buckets": 1_000}, {}, TEXTS),
    Case({"encoder": "binary"}, {"classes": ["false", "true"], "counts": [1, 1]}, pa.table({"a": [True, False, None]})),
    Case({"encoder": "label", "order": ["low", "top"]}, {"classes": ["low", "top"], "counts": [1, 1]}, pa.table({"a": ["top", "mid"]})),
    Case({"encoder": "labels"}, {"classes": ["a", "b"]}, pa.table({"a": [["b"], ["a", "c"], None]})),
    Case({"encoder": "count"}, {"mean": 2.0}, NUMBERS),
    Case({"encoder": "weight"}, {"mean": 2.0}, NUMBERS),
    Case(
        {"encoder": "vector", "columns": ["a", "b"]},
        {"mean": [0.0, 1.0], "deviation": [1.0, 2.0]},
        TWO_NUMBERS,
    ),
    Case({"encoder": "identity", "shape": [2, 2]}, {"dtype": "float32"}, pa.table({"a": [[[1.5, 2.5], [3.5, -0.0]], [[1.0, 2.0]], None]})),
    Case({"encoder": "scale", "shape": [2], "mean": [0.1, 0.2], "deviation": [1.5, 2.5]}, {}, pa.table({"a": [[1.0, 2.0], [1.0], None]})),
    Case({"encoder": "image", "shape": [1, 8, 6]}, {}, pa.table({"a": [PICTURE, PICTURE[:40], bytes(48), b"GIF8", None]})),
    Case({"encoder": "sequence", "length": 3, "keep": "last"}, {"words": ["film", "'s", "cat"]}, TEXTS),
    Case({"encoder": "terms", "words": [1, 2], "length": 4}, {"terms": ["film", "a film"], "documents": [1, 1], "texts": 1}, TEXTS),
    Case({"encoder": "bytes", "length": 4}, {}, TEXTS),
    Case({"encoder": "characters", "length": 4}, {"characters": " dehlo"}, TEXTS),
    Case({"encoder": "bpe", "length": 4, "vocabulary": 300}, {"merges": MERGES}, TEXTS),
    Case({"encoder": "words", "length": 4}, {"words": ["film.", "\n"], "unknown": 0, "total": 1}, TEXTS),
    Case({"encoder": "tokenizer", "length": 4, "digest": "0" * 64}, {"tokenizer": _PLACEHOLDER}, TEXTS),
    Case({"encoder": "series", "steps": 4}, {}, pa.table({"a": [[1.0, None, 3.0], [], [1e300], None]})),
    Case({"encoder": "log_mel", "sample_rate": 8_000, "seconds": 0.5}, {}, pa.table({"a": [b"RIFF", None]})),
    Case({"encoder": "mask", "shape": [8, 6], "classes": [f"c{n}" for n in range(48)]}, {}, pa.table({"a": [PICTURE, b"x", None]})),
    Case({"encoder": "boxes", "shape": [8, 6], "classes": ["a"], "most": 2}, {}, pa.table({"a": ["<annotation/>", "none", None]})),
    Case({"encoder": "volume", "shape": [4, 4, 4]}, {}, pa.table({"a": [b"no volume", None]})),
]


def fit_case(case: Case) -> FittedEncoder:
    settings = encoder_settings(case.settings)
    column = implementation(settings)(settings, case.state).column("x", "feature")
    feature = settings.model_dump(mode="json", exclude=set(settings.excluded_from_identity))
    return FittedEncoder(feature=feature, inputs=tuple(case.rows.column_names), state=case.state, column=column)


def test_every_encoder_gives_in_a_folder_what_it_gives_in_etl(tmp_path: Path) -> None:
    assert {case.settings["encoder"] for case in CASES} == set(ENCODERS.by_name) - {"auto"}
    fitted = [fit_case(case) for case in CASES]
    described = [encoder_in_json(encoder) for encoder in fitted]
    modules = find_modules([PROGRAM, *dict.fromkeys(description["implementation"].partition(":")[0] for description in described)])
    write_zip(modules.files, archive := tmp_path / "code.zip")
    questions = [
        [description, schema_to_text(case.rows.schema), rows_to_json(case.rows)] for description, case in zip(described, CASES, strict=True)
    ]
    command = [sys.executable, "-I", "-c", ALONE, str(archive)]
    ended = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    for case, encoder, (content, reasons) in zip(CASES, fitted, json.loads(ended.stdout), strict=True):
        expected, expected_reasons = Encoders({"x": encoder}).encode(case.rows)
        with pa.ipc.open_stream(b64decode(content)) as stream:
            encoded = stream.read_all()
        assert str(encoded.to_pydict()) == str(expected.to_pydict()), case.settings  # NaN is no number
        assert (encoded.schema, reasons) == (expected.schema, expected_reasons.to_pylist()), case.settings


@pytest.mark.parametrize(
    ("encoder", "needs"),
    [
        ("data.features.numbers", set()),
        ("data.features.arrays", set()),
        ("applications.language.encoders", set()),
        ("applications.language.byte_pairs", {"tokenizers"}),
        ("applications.segmentation.encoders", {"PIL"}),
    ],
)
def test_an_archive_has_what_an_encoder_imports_and_no_more(encoder: str, needs: set[str]) -> None:
    modules = find_modules([f"pipelines.{encoder}"])
    assert modules.needs == {"numpy", "pyarrow", *needs}
    assert f"pipelines/{encoder.replace('.', '/')}.py" in modules.files
    assert not any("settings" in name or "task" in name or "statistics" in name for name in modules.files)
    assert modules.files["pipelines/__init__.py"] == modules.files["pipelines/data/features/__init__.py"] == b""


def test_equal_code_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("first.zip", "second.zip"):
        write_zip(find_modules([PROGRAM]).files, tmp_path / name)
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    with ZipFile(tmp_path / "first.zip") as archive:
        assert archive.namelist() == sorted(archive.namelist())


def test_modules_of_a_user_s_own_come_along_and_heavy_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "own_waves"
    package.mkdir()
    (package / "__init__.py").write_text("LIMIT = 3\n")
    (package / "encoder.py").write_text(
        "from typing import TYPE_CHECKING\nimport own_tables\nfrom . import LIMIT\nfrom .clip import clip\n"
        "if TYPE_CHECKING:\n    import pydantic\n\ndef later():\n    import scipy.fft\n"
    )
    (package / "clip.py").write_text("import numpy as np\nfrom pipelines.data.features.raw import numbers\nclip = np.clip\n")
    (tmp_path / "own_tables.py").write_text("import zoneinfo\n")
    (package / "heavy.py").write_text("from own_waves import clip\nfrom pipelines.config import EncoderSettings\n")
    monkeypatch.syspath_prepend(tmp_path)
    modules = find_modules(["own_waves.encoder"])
    files = {name for name in modules.files if not name.startswith("pipelines/")}
    assert files == {"own_waves/__init__.py", "own_waves/encoder.py", "own_waves/clip.py", "own_tables.py"}
    assert modules.files["own_waves/__init__.py"] == b"LIMIT = 3\n" and modules.needs == {"numpy", "pyarrow"}
    with pytest.raises(ExportError, match=r"^own_waves\.heavy imports pipelines\.config imports .* imports pydantic, .*TYPE_CHECKING"):
        find_modules(["own_waves.heavy"])


KINDS = {
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint8(): st.integers(0, 255),
    pa.bool_(): st.booleans(),
    pa.decimal128(12, 3): st.decimals(-999_999, 999_999, places=3),
    pa.string(): st.text(max_size=12),
    pa.binary(): st.binary(max_size=12),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.list_(pa.list_(pa.float64())): st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9).map(float))),
    pa.struct([("a", pa.int8())]): st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9)}),
}


@given(data=st.data())
def test_rows_survive_json(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    rows = pa.table({"x": pa.array(data.draw(st.lists(st.none() | KINDS[kind], min_size=1, max_size=9)), kind)})
    assert rows_from_json(json.loads(json.dumps(rows_to_json(rows))), rows.schema).equals(rows)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), 2**40), (pa.int32(), True), (pa.int32(), 1.5), (pa.int32(), "3"), (pa.uint8(), -1), (pa.float64(), "1"),
        (pa.float64(), True), (pa.bool_(), 1), (pa.string(), 3), (pa.binary(), "!"), (pa.date32(), "x"), (pa.timestamp("us"), "2020-13-01"),
        (pa.decimal128(4, 1), "999999"), (pa.decimal128(4, 1), "abc"), (pa.list_(pa.int8()), 3),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_named(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^row 8: column x takes .*, and this is "):
        rows_from_json([{"x": None}, {"x": value}], pa.schema([("x", kind)]), 7)


def test_other_forms_of_values_are_read() -> None:
    schema = pa.schema([("i", pa.int64()), ("d", pa.decimal128(9, 2)), ("t", pa.timestamp("s", "UTC")), ("f", pa.float64())])
    rows = rows_from_json([{"i": 5.0, "d": 1.255, "t": "2001-02-03T04:05:06Z", "f": float("nan"), "more": 1}], schema)
    (row,) = rows.to_pylist()
    assert (row["i"], row["d"], row["f"]) == (5, Decimal("1.25"), None)
    assert row["t"].replace(tzinfo=None) == datetime(2001, 2, 3, 4, 5, 6)


def test_rows_are_counted_from_the_first_of_a_file_and_are_objects() -> None:
    schema = pa.schema([("x", pa.int64())])
    with pytest.raises(ValueError, match="row 1024 has no column x; a row has x, with null for what is missing"):
        rows_from_json([{}], schema, 1_024)
    for row in (5, None, "x", ["x"]):
        with pytest.raises(ValueError, match=r"row 7 is .*, and a row is a JSON object"):
            rows_from_json([row], schema, 7)  # type: ignore[list-item]


def test_code_that_is_not_found_is_named() -> None:
    with pytest.raises(ExportError, match="the code of module nowhere is not found; encode its columns yourself"):
        find_modules(["nowhere"])


def test_a_form_that_is_no_function_is_refused_and_one_of_the_project_s_is_not() -> None:
    subject = Mock(task=Mock(prediction_form=lambda: {"form": "nowhere:decode"}), manifest=Mock(encoders={}))
    with pytest.raises(ExportError, match=r"names 'nowhere:decode', which is no function: .*; name one of pipelines.tasks.answers"):
        describe_answer(subject)
    subject.task.prediction_form = dict
    assert describe_answer(subject) == {"form": "output"}
