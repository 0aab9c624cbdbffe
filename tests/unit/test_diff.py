"""What changed between versions: rows, columns, encoders and schema, on versions that are encoded as ETL does."""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from encoded_versions import encode_version

from pipelines import api
from pipelines.commands import COMMANDS
from pipelines.data.versions.manifest import Erasure
from pipelines.data.versions.row_keys import KEYS
from pipelines.diff import row_changes
from pipelines.diff.comparison import VersionChanges, compare_versions
from pipelines.diff.row_changes import HashedRows, hash_rows, match_rows
from pipelines.diff.terminal_text import describe_changes
from pipelines.errors import ConfigError, CorruptError, DatasetError, SourceError
from pipelines.runtime import progress

ROWS = 6_000
FEATURES: Mapping[str, Any] = {
    "age": "standardize",
    "income": {"encoder": "robust", "impute": "median"},
    "plan": "vocabulary",
    "city": {"encoder": "hash", "buckets": 32},
    "visits": "identity",
    "length": {"encoder": "log1p", "impute": 0.0},
    "score": {"encoder": "normal_quantile"},
}
TARGET: Mapping[str, Any] = {"left": "binary"}


def draw(seed: int, rows: int = ROWS, first: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    missing = np.where(random.random(rows) < 0.1, np.nan, 1.0)
    return {
        "id": np.arange(first, first + rows),
        "age": np.round(random.normal(40, 12, rows)),
        "income": random.lognormal(10, 0.5, rows) * missing,
        "plan": random.choice(["basic", "gold", "silver"], rows, p=[0.6, 0.3, 0.1]).astype(object),
        "city": random.choice([f"city {number}" for number in range(100)], rows),
        "visits": random.poisson(2, rows),
        "length": np.where(random.random(rows) < 0.05, np.nan, random.exponential(50, rows)),
        "score": random.random(rows),
        "left": random.random(rows) < 0.3,
        "split": random.choice(["train", "validation", "test"], rows, p=[0.8, 0.1, 0.1]),
    }


def as_table(columns: Mapping[str, np.ndarray]) -> pa.Table:
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})


def compare(folder: Path, before: pa.Table, now: pa.Table, key: str = "id", **settings: Any) -> VersionChanges:
    """The difference of versions with these rows, each with encoders of its own."""
    first, second = (
        encode_version(folder / name, rows, settings.get("features", FEATURES), TARGET, key=key)
        for name, rows in (("a", before), ("b", now))
    )
    return compare_versions(first, second)


def rows_by_split(difference: VersionChanges, name: str) -> dict[str, int]:
    assert difference.rows is not None
    return {split: getattr(rows, name) for split, rows in difference.rows.by_split.items()}


def test_rows_are_added_removed_altered_and_moved_by_key(tmp_path: Path) -> None:
    before = draw(1)
    now = {name: values.copy() for name, values in before.items()}
    now["age"][100:117] += 1
    now["split"][3_000:3_005] = "test"
    moved = Counter(split for split in before["split"][3_000:3_005] if split != "test")
    keep = np.r_[0:2_000, 2_200:ROWS]
    more = draw(2, 300, ROWS)
    now = {name: np.concatenate([now[name][keep], more[name]]) for name in now}
    order = np.random.default_rng(3).permutation(len(now["id"]))
    difference = compare(tmp_path, as_table(before), as_table({name: values[order] for name, values in now.items()}))
    assert rows_by_split(difference, "added") == dict(Counter(more["split"].tolist()))
    assert rows_by_split(difference, "removed") == dict(Counter(before["split"][2_000:2_200].tolist()))
    changed = Counter(before["split"][100:117].tolist())
    assert rows_by_split(difference, "changed") == {split: changed[split] for split in ("train", "validation", "test")}
    assert rows_by_split(difference, "moved") == {"train": 0, "validation": 0, "test": moved.total()}
    assert difference.columns.findings == () and not difference.is_empty
    assert difference.rows is not None and difference.rows.basis == "keys"


def test_exactly_the_planted_changes_of_columns_are_named(tmp_path: Path) -> None:
    """Although each version has encoders of its own, whose states differ in every column."""
    now = draw(2)
    now["age"] = np.round(now["age"] * 1.0 + 8)
    now["plan"][np.random.default_rng(5).random(ROWS) < 0.02] = "platinum"
    now["length"][np.random.default_rng(6).random(ROWS) < 0.06] = np.nan
    difference = compare(tmp_path, as_table(draw(1)), as_table(now))
    kinds = {(finding.column, finding.kind) for finding in difference.columns.findings}
    assert kinds - {("plan", "drift")} == {("age", "drift"), ("plan", "new"), ("length", "missing")}
    assert difference.columns.not_compared == {}
    values = json.loads(json.dumps(difference.values()))
    assert values["columns"]["age"]["psi"] > 0.2 and values["columns"]["plan"]["new"].keys() == {"platinum"}
    assert [name for name, column in values["columns"].items() if column["findings"]] == ["age", "plan", "length"]
    assert values["rows"]["train"].keys() == {"before", "now", "added", "removed", "changed", "moved"}


def test_equal_distributions_are_not_named_and_equal_versions_do_not_differ(tmp_path: Path) -> None:
    assert compare(tmp_path / "drawn", as_table(draw(1)), as_table(draw(2))).columns.findings == ()
    rows = draw(1)
    order = np.random.default_rng(3).permutation(ROWS)
    difference = compare(tmp_path / "shuffled", as_table(rows), as_table({name: values[order] for name, values in rows.items()}))
    assert difference.is_empty and "no difference" in describe_changes(difference)


def test_an_imputed_value_is_no_part_of_a_distribution(tmp_path: Path) -> None:
    """A third of the column becomes the median of the others: what is missing differs, and its distribution does not."""
    now = draw(2)
    now["income"][np.random.default_rng(4).random(ROWS) < 0.35] = np.nan
    difference = compare(tmp_path, as_table(draw(1)), as_table(now))
    assert [(finding.column, finding.kind) for finding in difference.columns.findings] == [("income", "missing")]
    assert max(drift.psi for drift in difference.columns.drifts.values() if drift.psi is not None) < 0.02


def test_without_keys_equal_encodings_are_compared_and_a_new_state_says_why_not(tmp_path: Path) -> None:
    before, now = draw(1), draw(1)
    train = np.flatnonzero(before["split"] == "train")
    now["age"][train[:17]] += 1
    first = encode_version(tmp_path / "a", as_table(before), FEATURES, TARGET)
    same = compare_versions(first, encode_version(tmp_path / "b", as_table(now), FEATURES, TARGET, like=first))
    assert rows_by_split(same, "added") == rows_by_split(same, "removed") == {"train": 17, "validation": 0, "test": 0}
    assert same.rows is not None and same.rows.basis == "encoded rows" and "altered row counts as one removed" in same.rows.note
    refitted = compare_versions(first, encode_version(tmp_path / "c", as_table(now), FEATURES, TARGET))
    assert rows_by_split(refitted, "added") == {"train": None, "validation": None, "test": None}
    assert refitted.rows is not None and "set dataset.key" in refitted.rows.note and not refitted.is_empty


def test_a_value_outside_of_a_vocabulary_that_was_kept_is_new(tmp_path: Path) -> None:
    now = draw(2)
    now["plan"][np.random.default_rng(5).random(ROWS) < 0.05] = "platinum"
    first = encode_version(tmp_path / "a", as_table(draw(1)), FEATURES, TARGET, key="id")
    second = encode_version(tmp_path / "b", as_table(now), FEATURES, TARGET, key="id", like=first)
    texts = [finding.text for finding in compare_versions(first, second).columns.findings if finding.kind == "new"]
    assert len(texts) == 1 and texts[0].startswith("new: outside of the vocabulary (platinum) in ")


def test_bins_under_another_state_are_not_compared_and_said_to_be(tmp_path: Path) -> None:
    features = {"age": {"encoder": "quantile", "bins": 4}, "city": {"encoder": "hash", "buckets": 32}}
    now = draw(2)
    now["age"] += 3
    difference = compare(tmp_path, as_table(draw(1)), as_table(now), features=features)
    assert difference.columns.not_compared == {"age": "quantile cannot be decoded, and its settings or its state differ"}
    assert "age: not compared" in describe_changes(difference)


ERASED = Erasure(certificate="one", digest_before="0" * 64, attempt_before="earlier", rows={"train": 5})


@pytest.mark.parametrize(
    ("fields", "reason"), [({"parent": "0" * 12}, "rows came with an increment"), ({"erasures": (ERASED,)}, "rows were erased")]
)
def test_imputed_values_that_nobody_counted_are_not_taken_for_a_drift(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    """The statistics of an increment are those of its parent, and those after an erasure are from before it."""
    first = encode_version(tmp_path / "a", as_table(draw(1)), FEATURES, TARGET, key="id")
    rows = pa.concat_tables([as_table(draw(1)), as_table(draw(2, 2_000, ROWS))])
    second = encode_version(tmp_path / "b", rows, FEATURES, TARGET, key="id", like=first, profile=first.manifest.profile, **fields)
    difference = compare_versions(first, second)
    assert set(difference.columns.not_compared.values()) == {f"{reason}, and its missing values were imputed and are not counted"}
    assert difference.columns.findings == () and difference.columns.not_compared.keys() == {"income", "length", "plan", "city"}
    assert difference.columns.drifts["income"].missing_shares is None and difference.columns.drifts["age"].psi is not None
    assert sum(rows_by_split(difference, "added").values()) == 2_000


def test_schema_encoders_and_refused_rows(tmp_path: Path) -> None:
    now = draw(2)
    now["visits"], now["region"] = now["visits"].astype(float), now["city"]
    first = encode_version(
        tmp_path / "a",
        as_table(draw(1)),
        FEATURES,
        TARGET,
        key="id",
        quarantined={"too old": 3},
        rows_parsed=ROWS,
        identity={"source": {"q": 1}},
    )
    features = {**{name: value for name, value in FEATURES.items() if name != "city"}, "region": "vocabulary"}
    second = encode_version(
        tmp_path / "b",
        as_table(now),
        features,
        TARGET,
        key="id",
        quarantined={"too old": 90},
        rows_parsed=ROWS,
        identity={"source": {"q": 2}},
    )
    difference = compare_versions(first, second)
    assert difference.schema.added == {"region": "string"} and difference.schema.changed == {"visits": "int64 → double"}
    assert difference.encoders.added.keys() == {"region"} and difference.encoders.removed.keys() == {"city"}
    assert "int64 → identity, float32" in difference.encoders.changed["visits"]
    assert difference.settings.changed == {"source.q": "1 → 2"} and difference.refused == {"too old": (3, 90)}
    assert [finding.text for finding in difference.columns.findings] == ["refused 0.05% → 1.50%"]


def test_rows_to_predict_are_compared_with_the_version(tmp_path: Path) -> None:
    encode_version(tmp_path / "v", as_table(draw(1)), FEATURES, TARGET, key="id")
    now = draw(2)
    now["score"], now["plan"][:300] = now["score"] ** 2, "platinum"
    table = as_table({name: values for name, values in now.items() if name not in ("left", "split", "id")})
    pq.write_table(table, tmp_path / "rows.parquet")
    pacsv.write_csv(table, tmp_path / "rows.csv")
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in table.to_pylist()))
    for rows in (*(str(tmp_path / f"rows.{ending}") for ending in ("parquet", "csv", "jsonl")), table.to_pandas()):
        difference = api.diff(str(tmp_path / "v"), rows)
        findings = {(finding.column, finding.kind) for finding in difference.columns.findings}
        assert findings - {("plan", "drift")} == {("score", "drift"), ("plan", "new")}
        assert difference.rows is None and not difference.is_empty
        assert any("(platinum) in 300 rows" in finding.text for finding in difference.columns.findings)
    same = as_table({name: values for name, values in draw(3).items() if name != "split"})
    assert api.diff(str(tmp_path / "v"), same).is_empty


def test_rows_that_lack_a_feature_or_are_no_rows_are_refused(tmp_path: Path) -> None:
    encode_version(tmp_path / "v", as_table(draw(1)), FEATURES, TARGET)
    table = as_table(draw(2))
    with pytest.raises(ConfigError, match="has no column age, which features of version"):
        api.diff(str(tmp_path / "v"), table.drop_columns(["age"]))
    with pytest.raises(ConfigError, match="column age is string, and not double"):
        api.diff(str(tmp_path / "v"), table.set_column(1, "age", pa.array(["old"] * ROWS)))
    (tmp_path / "rows.txt").write_text("a b")
    for path in ("rows.txt", "nothing"):
        with pytest.raises(SourceError, match="no dataset version, and has no file of rows"):
            api.diff(str(tmp_path / "v"), str(tmp_path / path))
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"rows.parquet: .*save it anew"):
        api.diff(str(tmp_path / "v"), str(tmp_path / "rows.parquet"))
    with pytest.raises(DatasetError, match="holds no dataset version"):
        api.diff(str(tmp_path / "nothing"), str(tmp_path / "v"))
    with pytest.raises(DatasetError, match="holds one version of a pipeline, and two are compared"):
        api.diff(str(tmp_path / "v"))
    with pytest.raises(ConfigError, match="--chance is 2, and must be at least 0 and at most 1"):
        api.diff(str(tmp_path / "v"), table, chance=2.0)
    pq.write_table(table, tmp_path / "rows.parquet")  # the remedies
    texts = table.set_column(1, "age", table["age"].cast("string"))
    for place, rows in (("v", str(tmp_path / "rows.parquet")), ("v", table), ("v", str(tmp_path / "v"))):
        assert api.diff(str(tmp_path / place), rows, chance=0.5).columns.drifts
    assert api.diff(str(tmp_path / "v"), texts.set_column(1, "age", texts["age"].cast("double"))).columns.drifts


def test_a_file_of_keys_that_is_cut_off_or_of_other_rows_is_refused(tmp_path: Path) -> None:
    first = encode_version(tmp_path / "a", as_table(draw(1, 600)), FEATURES, TARGET, key="id")
    second = encode_version(tmp_path / "b", as_table(draw(1, 600)), FEATURES, TARGET, key="id")
    file = next(Path(second.root).glob(f"{KEYS}-*/split=train/*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:100])
    with pytest.raises(CorruptError, match="restore the file"):
        compare_versions(first, second)
    pq.write_table(pq.read_table(pa.BufferReader(content)).slice(1), file)
    with pytest.raises(CorruptError, match="the part has"):
        compare_versions(first, second)
    file.unlink()
    assert compare_versions(first, second).rows == row_changes.compare_rows(first, second)
    assert compare_versions(first, second).rows.basis == "encoded rows"  # type: ignore[union-attr]


def draw_hashes(random: np.random.Generator, rows: int) -> HashedRows:
    """With few keys, contents and splits, so that many are equal."""
    return HashedRows(
        random.integers(0, 8, rows), random.integers(0, 3, rows), random.integers(0, 2, rows).astype(np.int8), np.arange(rows)
    )


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_matched_as_multisets(seed: int) -> None:
    random = np.random.default_rng(seed)
    before, now = draw_hashes(random, random.integers(0, 30)), draw_hashes(random, random.integers(0, 30))
    matched = match_rows(before, now)
    keys = [Counter(rows.row.tolist()) for rows in (before, now)]
    contents = [Counter(zip(rows.row.tolist(), rows.content.tolist(), strict=True)) for rows in (before, now)]
    assert Counter(matched.added.row.tolist()) == keys[1] - keys[0]
    assert Counter(matched.removed.row.tolist()) == keys[0] - keys[1]
    first, second = matched.changed
    assert len(first.row) == (keys[0] & keys[1]).total() - (contents[0] & contents[1]).total()
    assert (first.row == second.row).all() and (first.content != second.content).all()


def test_many_rows_are_compared_in_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = draw(1, 900), draw(1, 900)
    now["age"][::100] += 1
    first, second = (
        encode_version(tmp_path / name, as_table(rows), FEATURES, TARGET, key="id") for name, rows in (("a", before), ("b", now))
    )
    at_once = row_changes.compare_rows(first, second)
    monkeypatch.setattr(row_changes, "ROWS_AT_ONCE", 100)
    in_passes = row_changes.compare_rows(first, second)
    assert in_passes.by_split == at_once.by_split and at_once.unequal == 9
    assert sorted(in_passes.changed) == sorted(at_once.changed)


def test_hashes_depend_on_every_byte_and_on_nothing_else() -> None:
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(50, 3)).astype(np.float32), random.integers(0, 255, 50).astype(np.uint8)]
    hashes = hash_rows(arrays)
    assert (hash_rows([values[::-1] for values in arrays])[::-1] == hashes).all() and len(set(hashes.tolist())) == 50
    arrays[1] = arrays[1] ^ np.uint8(1)
    assert not np.isin(hash_rows(arrays), hashes).any()


def test_the_page_shows_rows_before_and_after_and_no_markup_of_theirs(tmp_path: Path) -> None:
    before, now = draw(1), draw(1)
    train = np.flatnonzero(now["split"] == "train")[:3]
    now["age"][train], now["plan"][train] = 77.0, "<script>alert(1)</script>"
    for name, rows in (("a", before), ("b", now)):
        encode_version(tmp_path / name, as_table(rows), FEATURES, TARGET, key="id")
    api.diff(str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "Altered rows, some of them" in page and "<script" not in page and "&lt;scri" in page
    assert all(f"<b>{before['age'][row]:g} → 77</b>" in page for row in train)
    assert page.count("<svg") >= len(FEATURES)


def test_exit_codes_are_those_of_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_way", ["text"])  # which the command changes, and the handlers of logs too
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    def run(*arguments: str | Path) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ending:
            COMMANDS["diff"]("lockstep diff", [*map(str, arguments)])
        return int(ending.value.code or 0), capsys.readouterr().out

    rows = draw(1, 900)
    encode_version(tmp_path / "a", as_table(rows), FEATURES, TARGET, key="id")
    rows["age"][0] += 1
    encode_version(tmp_path / "b", as_table(rows), FEATURES, TARGET, key="id")
    assert run(tmp_path / "a", tmp_path / "b")[0] == 1 and run(tmp_path / "a", tmp_path / "a")[0] == 0
    code, output = run(tmp_path / "a", tmp_path / "b", "--json")
    assert code == 1 and sum(split["changed"] for split in json.loads(output)["rows"].values()) == 1
    assert run(tmp_path / "a", tmp_path / "a", "--quiet") == (0, "")
    with pytest.raises(SourceError):
        COMMANDS["diff"]("lockstep diff", [str(tmp_path / "a"), str(tmp_path / "nothing")])
