"""Small pipelines of every kind, drawn by hypothesis, each with what must become of its rows.

Every row of a query has a `uid` of its own, or is one of equal rows; what the query gives is worked out here, in Python.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

Row = dict[str, Any]
"""id, a (few values, some NULL), v (some NULL, some NaN), s (text), day."""

COLUMNS = {"id": pa.int64(), "a": pa.int64(), "v": pa.float64(), "s": pa.string(), "day": pa.string()}
DDL = "id bigint, a bigint, v double, s string, day string"
ODDS = {"n": pa.int64(), "a": pa.int64()}
MALFORMED = "not,a,record"


@dataclass(frozen=True)
class Query:
    sql: str
    """It gives uid, a, v, s and day, and may read a second table `odds` of n and a."""
    uids: Callable[[list[Row], list[Row]], Iterable[int]]
    """Of the rows it gives, from both tables."""


def _matches(rows: list[Row], odds: list[Row], outer: bool = False) -> Iterable[int]:
    for row in rows:
        matches = [odd for odd in odds if odd["a"] == row["a"] and row["a"] is not None]
        yield from (row["id"] * 100 + odd["n"] for odd in matches or ([{"n": 0}] if outer else []))


def _first_of_each(rows: list[Row]) -> Iterable[int]:
    return {row["a"]: min(other["id"] for other in rows if other["a"] == row["a"]) for row in rows}.values()


_ALL = "a, v, s, day"
QUERIES = {
    "all": Query(f"SELECT id AS uid, {_ALL} FROM t", lambda rows, _: (row["id"] for row in rows)),
    "filter": Query(
        f"SELECT id AS uid, {_ALL} FROM t WHERE a > 1", lambda rows, _: (row["id"] for row in rows if row["a"] is not None and row["a"] > 1)
    ),
    "left join": Query(
        "SELECT id * 100 + coalesce(n, 0) AS uid, t.a, v, s, day FROM t LEFT JOIN odds ON t.a = odds.a",
        lambda rows, odds: _matches(rows, odds, outer=True),
    ),
    "join": Query("SELECT id * 100 + n AS uid, a, v, s, day FROM t JOIN odds USING (a)", _matches),
    "semi join": Query(
        f"SELECT id AS uid, {_ALL} FROM t WHERE a IN (SELECT a FROM odds)",
        lambda rows, odds: (row["id"] for row in rows if row["a"] in {odd["a"] for odd in odds} - {None}),
    ),
    "anti join": Query(
        f"SELECT id AS uid, {_ALL} FROM t WHERE NOT EXISTS (SELECT 1 FROM odds WHERE odds.a = t.a)",
        lambda rows, odds: (row["id"] for row in rows if row["a"] not in {odd["a"] for odd in odds} - {None}),
    ),
    "window": Query(
        "SELECT id AS uid, row_number() OVER (PARTITION BY a ORDER BY id) AS a, lag(v) OVER (ORDER BY id) AS v, s, day FROM t",
        lambda rows, _: (row["id"] for row in rows),
    ),
    "one of each": Query(
        "SELECT min(id) AS uid, a, max(v) AS v, min(s) AS s, max(day) AS day FROM t GROUP BY a", lambda rows, _: _first_of_each(rows)
    ),
    "twice": Query(
        f"SELECT id AS uid, {_ALL} FROM t UNION ALL SELECT id + 1000, {_ALL} FROM t",
        lambda rows, _: (row["id"] + more for row in rows for more in (0, 1000)),
    ),
    "equal rows": Query(
        f"SELECT id AS uid, {_ALL} FROM t UNION ALL SELECT id, {_ALL} FROM t WHERE id % 2 = 0",
        lambda rows, _: (row["id"] for row in rows for _ in range(2 - row["id"] % 2)),
    ),
    "exploded": Query(
        f"SELECT id * 100 + e AS uid, {_ALL} FROM t LATERAL VIEW explode(sequence(0, a)) AS e",
        lambda rows, _: (row["id"] * 100 + e for row in rows if row["a"] is not None for e in range(row["a"] + 1)),
    ),
    "first few": Query(f"SELECT id AS uid, {_ALL} FROM t ORDER BY id LIMIT 12", lambda rows, _: sorted(row["id"] for row in rows)[:12]),
}
EXPECT = {
    "positive": "v > 0",
    "named": "s IS NOT NULL AND s <> 'b'",
    "two thirds": "uid % 3 <> 0",
    "by a hash": "xxhash64(uid) % 2 = 0",
    "known": "a IN (SELECT a FROM odds)",
    "dated": "try_cast(day AS date) > '2020-01-01'",
}
KEYS: list[list[str]] = [[], ["uid"], ["a"], ["a", "s"], ["v"]]
SPLITS: list[dict[str, Any]] = [
    {"train": 1.0, "validation": 0.0, "test": 0.0},
    {"train": 0.8, "validation": 0.2, "test": 0.0},
    {"train": 0.5, "validation": 0.25, "test": 0.25, "group": "a"},
    {"by": "s"},
    {"by": "s", "validation": 0.3},
    {"time": "day", "validation": "2021", "test": "2022"},
]
FEATURES: list[dict[str, Any]] = [
    {"v": {"encoder": "standardize", "impute": "mean"}},
    {"v": "standardize"},  # refuses NULL and NaN
    {"s": "vocabulary", "v": {"encoder": "log1p", "impute": "mean"}},
    {"a": "identity"},
]
TARGETS: list[dict[str, Any]] = [{"y": {"encoder": "label", "column": "s"}}, {"y": {"encoder": "identity", "column": "uid"}}]

_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(0, 4),
            "v": st.none() | st.sampled_from([-1.5, 0.0, 0.5, 2.0, float("nan")]),
            "s": st.sampled_from(["train", "train", "train", "validation", "test", "b", None]),
            "day": st.sampled_from(["2020", "2020", "2021", "2023-05-01", None]),
        }
    ),
    min_size=4,
    max_size=40,
)
_ODDS = st.lists(
    st.fixed_dictionaries({"n": st.integers(1, 99), "a": st.none() | st.integers(0, 6)}),
    min_size=1,
    max_size=8,
    unique_by=lambda odd: odd["n"],
)


@dataclass(frozen=True)
class Small:
    format: str
    rows: list[Row]
    odds: list[Row]
    malformed: int
    query: str
    dataset: dict[str, Any]
    expect: list[str]

    @property
    def uids(self) -> Counter[int]:
        return Counter(QUERIES[self.query].uids(self.rows, self.odds))

    def config(self, folder: Path) -> dict[str, Any]:
        """Write the tables, and return the pipeline over them."""
        odds = pa.Table.from_pylist(self.odds, pa.schema(ODDS))
        pq.write_table(odds, folder / "odds.parquet")
        table = {"format": self.format, "path": str(folder / f"t.{self.format}"), "schema": DDL}
        _WRITERS[self.format](folder / f"t.{self.format}", self.rows, self.malformed)
        return {
            "name": "small",
            "source": {
                "tables": {"t": table, "odds": {"format": "parquet", "path": str(folder / "odds.parquet")}},
                "query": QUERIES[self.query].sql,
                "expect": {name: EXPECT[name] for name in self.expect},
                "max_quarantined": 1.0,
            },
            "dataset": {"path": str(folder / "data"), **self.dataset},
            "task": {"kind": "tabular"},
        }


def _write_csv(path: Path, rows: list[Row], malformed: int) -> None:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([["" if row[name] is None else row[name] for name in COLUMNS] for row in rows])
    path.write_text(text.getvalue().replace("nan", "NaN") + f"{MALFORMED}\n" * malformed)


def _write_json(path: Path, rows: list[Row], malformed: int) -> None:
    # JSON has no NaN.
    lines = [json.dumps({name: None if value != value else value for name, value in row.items()}) for row in rows]
    path.write_text("\n".join([*lines, *[MALFORMED] * malformed]) + "\n")


def _write_parquet(path: Path, rows: list[Row], malformed: int) -> None:
    assert not malformed
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(COLUMNS)), path, row_group_size=7)


_WRITERS = {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}


@st.composite
def smalls(draw: st.DrawFn) -> Small:
    table_format = draw(st.sampled_from(sorted(_WRITERS)))
    return Small(
        format=table_format,
        rows=[{"id": number, **row} for number, row in enumerate(draw(_ROWS))],
        odds=draw(_ODDS),
        malformed=0 if table_format == "parquet" else draw(st.integers(0, 3)),
        query=draw(st.sampled_from(sorted(QUERIES))),
        dataset={
            "key": draw(st.sampled_from(KEYS)),
            "split": draw(st.sampled_from(SPLITS)),
            "features": {"uid": "identity", **draw(st.sampled_from(FEATURES))},
            "target": draw(st.sampled_from(TARGETS)),
            "part_bytes": draw(st.sampled_from([200, 2**20])),
        },
        expect=draw(st.lists(st.sampled_from(sorted(EXPECT)), max_size=2, unique=True)),
    )
