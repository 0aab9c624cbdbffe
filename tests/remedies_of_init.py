"""Remedies of errors of `lockstep init`: what raises each, and what it offers instead."""

import gzip
import io
import math
import os
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import chdir, closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
from drafts import draft_config

from pipelines.demo import two_commands
from pipelines.init.draft import Request, check_output
from pipelines.init.tables.json_table import read_json_document
from pipelines.init.tables.sample import TextSample

Do = Callable[[Path], Any]
ROWS = "a,color,y\n" + "".join(
    f"{number % 17},{'red' if number % 3 else 'blue'},{'yes' if number % 2 else 'no'}\n" for number in range(200)
)
NOTHING_VARIES = "id,same,y\n" + "".join(f"{number * 7},x,{'yes' if number % 2 else 'no'}\n" for number in range(200))
"""Besides y, an identifier and a constant."""
RECORDS = "".join(f'{{"a": {number % 17}, "y": {number % 2}}}\n' for number in range(200))


def draft(
    folder: Path,
    content: str | bytes = ROWS,
    target: str = "y",
    name: str = "t.csv",
    skip_rows: int | None = None,
    **more_files: str | bytes,
) -> Any:
    """Draft the config of a folder of files, or of its only file."""
    files = {name: content, **{file.replace("_", "."): text for file, text in more_files.items()}}
    for file, text in files.items():
        (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    return draft_config(Request(str(folder if more_files else folder / name), target, "toy", skip_rows))


def write_output(folder: Path, name: str) -> None:
    (folder / "toy.yaml").write_text("name: toy\n")
    check_output(folder / name)


def draft_parquet(folder: Path, rows: int, name: str = "t.parquet", columns: tuple[str, ...] = ("a", "y")) -> Any:
    arrays = [np.arange(rows) % 7 + 0.5 + place for place in range(len(columns) - 1)]
    pq.write_table(pa.Table.from_arrays([*map(pa.array, arrays), pa.array(np.arange(rows) % 2)], list(columns)), folder / name)
    return draft_config(Request(str(folder / name), "y", "toy"))


def zip_bytes(text: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a.csv", text)
    return data.getvalue()


def draft_workbook(path: Path) -> Any:
    book = openpyxl.Workbook()
    for line in ROWS.splitlines():
        book.active.append(line.split(","))
    book.save(path)
    return draft_config(Request(str(path), "y", "toy"))


def draft_database(folder: Path, name: str) -> Any:
    with closing(sqlite3.connect(folder / name)) as database:
        database.execute("CREATE TABLE t (a, color, y)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", [line.split(",") for line in ROWS.splitlines()[1:]])
        database.commit()
    return draft_config(Request(str(folder / name), "y", "toy"))


def draft_parquets(folder: Path, name: str) -> Any:
    for file, column in (("a.parquet", "a"), ("b.parquet", name)):
        pq.write_table(pa.table({column: np.arange(100) % 7 + 0.5, "y": np.arange(100) % 2}), folder / file)
    return draft_config(Request(str(folder), "y", "toy"))


def column(name: str, values: str) -> str:
    """The rows with one more column, of `values` by the number of the row."""
    header, *lines = ROWS.splitlines()
    return "\n".join([f"{header},{name}", *(f"{line},{values.format(number=number)}" for number, line in enumerate(lines))])


sound: Do = draft


def demo(folder: Path, name: str = "") -> None:
    """The demo in a folder that has a file of that name, without its commands."""
    folder.mkdir(exist_ok=True)
    if name:
        (folder / name).write_text("name: mine\n")
    with chdir(folder), mock.patch.object(two_commands, "_LOCKSTEP", "pass"):
        two_commands.run_demo([])


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "is another file than the demo's; move it, or": (
        lambda folder: demo(folder, "digits.yaml"),
        (lambda folder: demo(folder, "moved.yaml"), lambda folder: demo(folder / "empty")),
    ),
    "% of the records are broken ({}); mend": (lambda folder: draft(folder, ROWS + "1\n" * 100), (sound,)),
    "} has no rows; give a file that has some": (lambda folder: draft_parquet(folder, 0), (lambda folder: draft_parquet(folder, 100),)),
    "} exists, and may have been edited; name another file": (
        lambda folder: write_output(folder, "toy.yaml"),
        (lambda folder: write_output(folder, "other.yaml"), lambda folder: check_output(folder / "toy.yaml")),
    ),
    "} is empty; give a file that has rows": (lambda folder: draft(folder, ""), (sound,)),
    "{} is {}, and {} {}; save all files in one encoding": (
        lambda folder: draft(folder, ROWS, u_csv=ROWS.encode("utf-16")),
        (lambda folder: draft(folder, ROWS, u_csv=ROWS),),
    ),
    "} and {} have different columns, such as {}; give": (
        lambda folder: draft(folder, ROWS, u_csv=ROWS.replace("color", "colour")),
        (lambda folder: draft(folder, ROWS, u_csv=ROWS),),
    ),
    "} and the first file have different columns": (
        lambda folder: draft(folder, ROWS, u_csv=ROWS.replace("red,", "").replace("blue,", "").replace("color,", "")),
        (lambda folder: draft(folder, ROWS, u_csv=ROWS),),
    ),
    "in another order: column {} is {}, not {}; write": (
        lambda folder: draft(folder, ROWS, u_csv=ROWS.replace("a,color,y", "a,y,color")),
        (lambda folder: draft(folder, ROWS, u_csv=ROWS), sound),
    ),
    "and no names of columns follow; mend it": (
        lambda folder: draft(folder, ROWS.replace("color,", "color,,")),
        (sound, lambda folder: draft(folder, ROWS.replace("color,", "color,,"), target="c3", skip_rows=1)),
    ),
    "is UTF-32, which is not read; save it": (lambda folder: draft(folder, ROWS.encode("utf-32")), (sound,)),
    "which is not read as a table; unpack it, or rename": (
        lambda folder: draft(folder, zip_bytes(ROWS)),
        (sound, lambda folder: draft_workbook(folder / "t.xlsx")),
    ),
    "Parquet; rename it to .parquet": (
        lambda folder: draft_parquet(folder, 100, "t.csv"),
        (lambda folder: draft_parquet(folder, 100),),
    ),
    "a database of SQLite; rename it": (
        lambda folder: draft_database(folder, "t.csv"),
        (lambda folder: draft_database(folder, "t.sqlite"),),
    ),
    "compressed by gzip; rename it to end in": (
        lambda folder: draft(folder, gzip.compress(ROWS.encode())),
        (lambda folder: draft(folder, gzip.compress(ROWS.encode()), name="t.csv.gz"),),
    ),
    "a file of an old Office; save it as": (
        lambda folder: draft(folder, b"\xd0\xcf\x11\xe0" + bytes(99)),
        (lambda folder: draft_workbook(folder / "t.xlsx"), sound),
    ),
    "as it ignores case; rename them where": (
        lambda folder: draft_parquet(folder, 100, columns=("a", "A", "y")),
        (lambda folder: draft_parquet(folder, 100, columns=("a", "b", "y")),),
    ),
    "has an array in each line, without names of columns; write objects": (
        lambda folder: draft(folder, "[1, 2]\n" * 100, name="t.jsonl"),
        (lambda folder: draft(folder, RECORDS, name="t.jsonl"),),
    ),
    "so it is no text of UTF-8; save text": (
        lambda folder: draft(folder, ROWS.encode("utf-16-le")),
        (sound, lambda folder: draft(folder, gzip.compress(ROWS.encode()), name="t.csv.gz")),
    ),
    "mixes encodings: most lines are UTF-8": (
        lambda folder: draft(folder, ROWS.replace("red", "rüd").encode() + "1,grün,no\n".encode("iso-8859-1")),
        (lambda folder: draft(folder, ROWS.replace("red", "rüd") + "1,grün,no\n"),),
    ),
    "the path of the data is empty; name a file": (lambda folder: draft_config(Request("", "y", "toy")), (sound,)),
    "neither a file nor a folder, as a pipe": (
        lambda folder: draft_config(Request(os.devnull, "y", "toy")),
        (sound,),
    ),
    "no such file or folder; name a file": (
        lambda folder: draft_config(Request(str(folder / "nothing.csv"), "y", "toy")),
        (sound,),
    ),
    "has no records; give a file that has some": (
        lambda folder: draft(folder, "[]", name="t.json"),
        (lambda folder: draft(folder, RECORDS, name="t.json"),),
    ),
    "of the lines are no JSON objects; mend": (
        lambda folder: draft(folder, "1\n" * 90 + RECORDS, name="t.jsonl"),
        (lambda folder: draft(folder, RECORDS, name="t.jsonl"),),
    ),
    "is one JSON document, too large to be read": (
        lambda folder: read_json_document(TextSample(b"[{", 0.5), "t.json"),
        (lambda folder: draft(folder, RECORDS, name="t.jsonl"),),
    ),
    "is not UTF-8, which JSON is": (
        lambda folder: draft(folder, RECORDS.encode("utf-16"), name="t.jsonl"),
        (lambda folder: draft(folder, RECORDS, name="t.jsonl"),),
    ),
    "} is no JSON: {}; mend the file": (
        lambda folder: draft(folder, f"[{RECORDS}", name="t.json"),
        (lambda folder: draft(folder, f"[{','.join(RECORDS.splitlines())}]", name="t.json"),),
    ),
    "} and {} have different columns; give files": (
        partial(draft_parquets, name="b"),
        (partial(draft_parquets, name="a"),),
    ),
    "too few for three splits; give a table": (lambda folder: draft(folder, ROWS[:100]), (sound,)),
    "no column besides {} is a feature": (
        lambda folder: draft(folder, NOTHING_VARIES),
        (sound, lambda folder: draft(folder, NOTHING_VARIES, target="id")),
    ),
    "has files of different kinds, such as {}; give": (
        lambda folder: draft(folder, ROWS, u_jsonl=RECORDS),
        (lambda folder: draft(folder, ROWS, u_csv=ROWS), sound),
    ),
    "and a table needs a target and a feature; give": (
        lambda folder: draft(folder, "a\n" + "1\n2\n" * 100, target=""),
        (
            sound,
            lambda folder: draft(folder, "row,a\n" + "".join(f"{row},{100 * math.sin(row / 3):.1f}\n" for row in range(400)), target="a"),
        ),
    ),
    "is of type {}; name a column of numbers or classes": (
        lambda folder: draft(folder, column("day", "2020-01-01"), target="day"),
        (lambda folder: draft(folder, column("day", "2020-01-01"), target="y"),),
    ),
    "in every row; name a column that varies": (
        lambda folder: draft(folder, column("same", "1"), target="same"),
        (lambda folder: draft(folder, column("same", "1"), target="y"),),
    ),
    "too many for classes; name a column": (
        lambda folder: draft(folder, column("name", "n{number}"), target="name"),
        (lambda folder: draft(folder, column("name", "n{number}"), target="y"),),
    ),
}
"""By a part of the message: what raises it, and what its remedies do instead."""
