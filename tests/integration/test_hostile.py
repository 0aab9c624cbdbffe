"""Files that were made to break readers: each is read right, kept apart, or refused by name. None is silently wrong."""

import csv
import json
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from raw import raw
from stores import new_store
from tables import read_tables

from pipelines.config import parse
from pipelines.config.source.source import Source
from pipelines.data.sources.tables import Tables
from pipelines.data.sources.text.records import Dialect, cut
from pipelines.errors import SourceError
from pipelines.etl.run import run


def read(spark: SparkSession, **tables: dict[str, Any]) -> Tables:
    return read_tables(spark, Source.model_validate({"tables": tables, "query": "SELECT 1"}))


def texts(spark: SparkSession, view: str) -> Counter:
    """A view's rows as tuples, NULL as the empty string."""
    return Counter(tuple("" if value is None else value for value in row) for row in spark.table(view).collect())


def columns(names: list[str]) -> str:
    return ", ".join(f"`{name}` string" for name in names)


@pytest.mark.parametrize("multiline", [True, pytest.param(False, marks=pytest.mark.full)])
def test_csv_spectrum(spark: SparkSession, multiline: bool) -> None:
    files = {path.stem: path for path in sorted(raw("hostile", "csv-spectrum", "csvs").glob("*.csv"))}
    expected = {name: json.loads((path.parents[1] / "json" / f"{name}.json").read_text()) for name, path in files.items()}
    table = {"format": "csv", "options": {"header": True, "multiLine": multiline}}
    read_result = read(
        spark, **{name: table | {"path": str(path), "schema": columns(list(expected[name][0]))} for name, path in files.items()}
    )
    assert len(files) == 11
    for name, rows in expected.items():
        # The files were once checked out with other line breaks than they were made with.
        breaks = "\r\n" if b"\r" in files[name].read_bytes() else "\n"
        expected_rows = Counter(tuple(value.replace("\r\n", breaks) for value in row.values()) for row in rows)
        got = texts(spark, name)
        if multiline or "newlines" not in name:
            assert got == expected_rows, name
        else:
            assert got < expected_rows, name
            assert sum(got.values()) < read_result.parsed[name], name
    assert (read_result.malformed is not None) != multiline


SEPARATORS = {".tsv": "\t", ".psv": "|", ".ssv": ";"}
ENCODINGS = {
    "characters.csv": "big5", "spanish_chars.csv": "latin-1", "sparse_with_column_errors.csv": "cp1252", "utf-16le_encoded.csv": "utf-16",
}  # fmt: skip


def oracle(path: Path, encoding: str) -> tuple[Counter, int]:
    """The rows that Python's own reader finds, of the width that most of them have; bytes that are no text as `\\xff`."""
    text = path.read_bytes().decode(encoding, "backslashreplace").removeprefix("\ufeff")
    rows = [tuple(row) for row in csv.reader(StringIO(text, newline=""), delimiter=SEPARATORS.get(path.suffix, ",")) if row]
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 1
    return Counter(row for row in rows if len(row) == width), width


def messy_table(path: Path, encoding: str = "utf-8") -> dict[str, Any]:
    schema = columns([f"c{number}" for number in range(oracle(path, encoding)[1])])
    options = {"sep": SEPARATORS.get(path.suffix, ","), "multiLine": True, "encoding": encoding}
    return {"format": "csv", "path": str(path), "schema": schema, "options": options}


@pytest.mark.full
def test_messytables(spark: SparkSession) -> None:
    """As if all were UTF-8: rows are those that Python's own reader finds, and any that differ are refused."""
    paths = sorted(raw("hostile", "messytables", "horror").iterdir())
    refused = {"simple.unknown": "holds no rows", "utf-16le_encoded.csv": "is UTF-16; set options: {encoding: UTF-16"}
    for path in paths:
        if path.name in refused:
            with pytest.raises(SourceError, match=f"{path} {refused[path.name]}"):
                read(spark, t=messy_table(path))
    tables = {f"t{number}": path for number, path in enumerate(paths) if path.name not in refused}
    read_result = read(spark, **{name: messy_table(path) for name, path in tables.items()})
    for name, path in tables.items():
        got, (expected_rows, _) = texts(spark, name), oracle(path, "utf-8")
        refused_rows = read_result.parsed[name] - read_result.handed_on[name]
        assert got <= expected_rows, (path.name, list((got - expected_rows).items())[:3])
        assert refused_rows or got == expected_rows, path.name
        assert sum(got.values()) + refused_rows == read_result.parsed[name], path.name


@pytest.mark.full
def test_messytables_in_their_encodings(spark: SparkSession) -> None:
    paths = [raw("hostile", "messytables", "horror", name) for name in ENCODINGS]
    tables = {f"t{number}": messy_table(path, ENCODINGS[path.name]) for number, path in enumerate(paths)}
    read_result = read(spark, **tables)
    for name, path in zip(tables, paths, strict=True):
        assert texts(spark, name) == oracle(path, ENCODINGS[path.name])[0], path.name
    assert read_result.malformed is None


TWICE = {"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"}
"""Refused, though they are JSON: an object has a key twice."""


@pytest.mark.full
def test_json_test_suite_as_lines(spark: SparkSession, tmp_path: Path) -> None:
    """Each file's text as the value of a record's field, a line each."""
    files = [
        path for path in sorted(raw("hostile", "JSONTestSuite", "test_parsing").glob("*.json")) if b"\n" not in path.read_bytes().strip()
    ]
    lines = [b'{"v": ' + path.read_bytes().strip() + b"}" for path in files]
    (tmp_path / "lines.json").write_bytes(b"\n".join(lines))
    tables = read(spark, t={"format": "json", "path": str(tmp_path), "schema": "v string"})
    assert tables.rows_parsed == len(files) > 290
    assert tables.malformed is not None
    refused = {files[int(row.source.rpartition(":")[2]) - 1].name for row in tables.malformed.collect()}
    assert {path.name for path in files if path.name.startswith("n_")} - refused == set()
    assert {name for name in refused if name.startswith("y_")} == TWICE
    accepted = [path for path in files if path.name not in refused]
    for path, row in zip(accepted, spark.table("t").collect(), strict=True):
        if path.name.startswith("y_"):
            assert is_same_value(row.v, json.loads(path.read_bytes())), path.name


def is_same_value(text: str | None, value: Any) -> bool:
    """Whether a column of strings has this value of JSON: a string as itself, all else as JSON."""
    if text is None or value is None or isinstance(value, str):
        return text == value
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False


@pytest.mark.full
def test_json_test_suite_as_documents(spark: SparkSession) -> None:
    """Documents that must parse: objects become rows; other values are no records, and are kept apart."""
    folder = raw("hostile", "JSONTestSuite", "test_parsing")
    table = {"format": "json", "path": f"{folder}/y_*.json", "schema": "a string, asd string, b int", "options": {"multiLine": True}}
    tables = read(spark, t=table)
    records = [value for path in sorted(folder.glob("y_*.json")) for value in _records(json.loads(path.read_bytes()))]
    objects = [
        value
        for path in sorted(folder.glob("y_*.json"))
        for value in _records(json.loads(path.read_bytes()))
        if isinstance(value, dict) and path.name not in TWICE
    ]
    assert tables.rows_parsed == len(records) and tables.malformed is not None
    assert spark.table("t").count() == len(objects) == 11
    reasons = {Path(row.source.rpartition(":")[0]).name: row.reason for row in tables.malformed.collect()}
    assert {reasons[name] for name in TWICE} == {"t: key a occurs twice in an object"}
    rows = {(row.a, row.asd, row.b) for row in spark.table("t").collect()}
    for value in objects:
        assert any(
            is_same_value(a, value.get("a")) and is_same_value(asd, value.get("asd")) and b == value.get("b") for a, asd, b in rows
        ), value


def _records(document: Any) -> list[Any]:
    return document if isinstance(document, list) else [document]


def test_json_test_suite_is_not_read_where_it_must_not_be() -> None:
    """Text that Python's scanner accepts goes on to Spark's parser, for which the other tests speak."""
    passed = set()
    for path in sorted(raw("hostile", "JSONTestSuite", "test_parsing").glob("n_*.json")):
        try:
            batches = list(cut([path.read_bytes()], Dialect(json=True, whole_file=True), str(path)))
        except SourceError as error:
            assert str(path) in str(error)
        else:
            passed |= {text for batch in batches for text in batch["record"].to_pylist()}
    assert passed <= {"NaN", "-NaN", "Infinity", "-Infinity", "-"}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("encoder", ["characters", "auto"])
def test_bytes_that_are_no_text_are_refused_by_the_encoder_that_reads_them(tmp_path: Path, encoder: str) -> None:
    (tmp_path / "raw").mkdir()
    for number in range(40):
        (tmp_path / "raw" / f"{number}.txt").write_bytes(f"text {number} of forty words".encode() + b"\xff" * (number == 7))
    text = {"text": {"encoder": encoder, **({"length": 4} if encoder == "characters" else {})}}
    target = {} if encoder == "characters" else {"target": {"y": "identity"}}
    config = parse(
        {
            "name": "bytes",
            "source": {
                "tables": {"files": {"format": "binaryFile", "path": str(tmp_path / "raw")}},
                "query": "SELECT CAST(content AS STRING) AS text, length AS y, CAST(content AS STRING) AS unread FROM files",
                "max_quarantined": 0.1,
            },
            "dataset": {
                "path": str(tmp_path / "dataset"),
                "split": {"train": 0.8, "validation": 0.2, "test": 0.0},
                "features": text,
                **target,
            },
            "task": {"kind": "tabular" if target else "language"},
            "tracking": {"uri": new_store(tmp_path)},
        },
        "test",
    )
    manifest = run(config)
    ((reason, count),) = manifest.quarantined.items()
    assert count == 1 and reason.startswith("text: ") and reason.endswith(" cannot encode a value: it is no Unicode text")
    (file,) = (tmp_path / "dataset").glob("*/quarantine-*/*.parquet")
    (row,) = pq.read_table(file).to_pylist()
    assert "bytes: it is no Unicode text" in row["reason"] and "text 7 of forty words\\\\xff" in row["record"]
