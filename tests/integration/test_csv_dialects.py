"""CSV in random dialects: what is read is what Python's own reader finds, or is kept apart with a reason. No record is lost."""

import csv
import os
import random
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tables import read_tables

from pipelines.config.source.source import Source

DIALECTS = int(os.environ.get("DIALECTS", "40"))
"""`DIALECTS=300 make test ARGS=tests/integration/test_csv_dialects.py` for more of them."""
BATCH = 60
"""Tables of one query: Spark plans and reads each by itself."""
LETTERS = "ab 1é\t漢.-_?"


def dialect(chance: random.Random) -> dict[str, Any]:
    """Options of a reader, and the words of Python's for them."""
    separator = chance.choice([",", ";", "\t", "|", " ", "::", "^", "é", "#"])
    quote = chance.choice(['"', "'", "", "~"])
    options: dict[str, Any] = {"sep": separator.replace("\t", chance.choice(["\t", "\\t"])), "quote": quote}
    if chance.random() < 0.4:
        options["multiLine"] = True
    if chance.random() < 0.3:
        options["header"] = True
    if chance.random() < 0.2 and separator != "#":
        options["comment"] = "#"
    if chance.random() < 0.2:
        options["skipRows"] = chance.choice([1, 2])
    if chance.random() < 0.3:
        options["encoding"] = chance.choice(["ISO-8859-1", "UTF-16", "cp1252", "utf-8", "utf_8_sig", "utf-32", "cp037"])
    if chance.random() < 0.1:
        options["escape"] = "\\"
    return options


def value(chance: random.Random, options: dict[str, Any]) -> str:
    """As it stands in the file: mostly right, now and then with what no parser should guess."""
    separator, quote = options["sep"].replace("\\t", "\t"), options["quote"]
    bare = "".join(chance.choice(LETTERS) for _ in range(chance.choice([0, 1, 3, 9])))
    if quote and chance.random() < 0.3:
        inside = bare + chance.choice(["", separator, quote * 2, "\n" if options.get("multiLine") else "x", "#"])
        return f"{quote}{inside.replace(chr(92), '')}{quote}"
    if quote and chance.random() < 0.02:
        return bare + quote + chance.choice(["", bare])
    return bare.replace(separator, "") if separator.strip() else bare.replace(separator, "_")


def content(chance: random.Random, options: dict[str, Any], width: int) -> bytes:
    ends = chance.choice(["\n", "\r\n"])
    separator = options["sep"].replace("\\t", "\t")
    lines = ["made by hand"] * options.get("skipRows", 0)
    if options.get("header"):
        lines.append(separator.join(f"c{number}" for number in range(width)))
    for _ in range(chance.randrange(1, 30)):
        character = chance.random()
        columns = width + chance.choice([-1, 1]) if character < 0.05 else width
        line = separator.join(value(chance, options) for _ in range(columns))
        lines.append("" if character > 0.95 else "# a remark" if character > 0.92 and "comment" in options else line)
    text = ends.join(lines) + ends * chance.choice([0, 1])
    return text.encode(options.get("encoding", "utf-8"), "replace")


def oracle(text: str, options: dict[str, Any]) -> tuple[list[list[str]], list[list[str]]] | None:
    """Records as Python's reader finds them, and those that it finds from each line on; None where it has no such dialect.

    Without line breaks in values it reads each line alone, as a quote that does not close on its line costs no other."""
    separator, quote = options["sep"].replace("\\t", "\t"), options["quote"]
    if len(separator) > 1 or "escape" in options or "skipRows" in options:
        return None
    quoting: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    comment = options.get("comment")
    lines = [line for line in StringIO(text, newline="") if not (comment and line.startswith(comment))][bool(options.get("header")) :]
    ends = [len(lines) if options.get("multiLine") else place + 1 for place in range(len(lines))]
    by_line = [next(csv.reader(lines[place:end], delimiter=separator, **quoting), []) for place, end in enumerate(ends)]
    return list(csv.reader(lines, delimiter=separator, **quoting)) if options.get("multiLine") else by_line, by_line


@pytest.mark.full
def test_no_record_of_a_random_dialect_is_lost_or_altered(spark: SparkSession, tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    for first in range(0, DIALECTS, BATCH):
        contents = {f"t{number}": table(number, tmp_path) for number in range(first, min(first + BATCH, DIALECTS))}
        tables = {
            name: {"format": "csv", "path": str(path), "schema": ddl(width), "options": options}
            for name, (path, options, width) in contents.items()
        }
        read = read_tables(spark, Source.model_validate({"tables": tables, "query": "SELECT 1"}))
        assert read.malformed is not None
        refused = Counter(row.reason.partition(":")[0] for row in read.malformed.select("reason").collect())
        for name, (path, options, width) in contents.items():
            got = [tuple("" if value is None else value for value in row) for row in spark.table(name).collect()]
            case = (name, options, path.read_bytes()[:300])
            assert len(got) + refused[name] == read.parsed[name], case
            ends[compare(got, refused[name], path, options, width, case)] += 1
        spark.catalog.clearCache()
    assert ends["as Python reads it"] > DIALECTS / 4, ends


def ddl(width: int) -> str:
    return ", ".join(f"c{number} string" for number in range(width))


def table(number: int, folder: Path) -> tuple[Path, dict[str, Any], int]:
    chance = random.Random(number)
    options, width = dialect(chance), chance.choice([1, 2, 3, 5])
    path = folder / f"{number}.csv"
    path.write_bytes(content(chance, options, width))
    return path, options, width


def compare(got: list[tuple[str, ...]], refused: int, path: Path, options: dict[str, Any], width: int, case: Any) -> str:
    """Every row is one of Python's, and what Python finds more is refused."""
    text = path.read_bytes().decode(options.get("encoding", "utf-8")).removeprefix("\ufeff")
    python_rows = oracle(text, options)
    if python_rows is None:
        return "records counted"
    records, by_line = ([tuple(row) for row in rows if len(row) == width and "".join(row).strip()] for rows in python_rows)
    missing = Counter(records) - Counter(got)
    strange = Counter(got) - Counter(by_line if refused else records)
    strange = Counter({row: count for row, count in strange.items() if "".join(row).strip()})
    assert not strange, (case, strange)
    assert missing.total() <= refused, (case, missing)
    return "as Python reads it" if not refused else "some refused"
