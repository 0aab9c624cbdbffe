"""Remedies of errors about raw data, datasets, predictions and installations: what raises each, and what it offers instead.

None needs Spark; those that do are tried in `integration`, where TRIED_ELSEWHERE says.
"""

import gzip
import io
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tarfile
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import version as version_of
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from config_remedies import VALUES
from fitting import fit
from installations import session
from pyarrow.fs import FileInfo, LocalFileSystem
from pyspark.sql.types import IntegerType, StructField, StructType
from tables import idx, raw_table, write
from torch.nn.modules import batchnorm
from versions import write_version

from pipelines import command_line, commands
from pipelines.config.dataset.dataset import Dataset
from pipelines.config.dataset.windows import WindowSettings
from pipelines.config.load import load, parse
from pipelines.config.pipeline import Config
from pipelines.config.serving import Endpoint
from pipelines.config.source.source import TableSettings
from pipelines.config.tasks.task import TASKS
from pipelines.data.sources import parquet_footers
from pipelines.data.sources.base import raw_tables
from pipelines.data.sources.files import content
from pipelines.data.sources.text.records import Dialect, cut
from pipelines.data.sources.text.text_table import TextTable
from pipelines.data.versions import manifest, storage
from pipelines.data.versions.commit import Attempt, commit
from pipelines.data.versions.manifest import Balance, check_balance, parse_manifest
from pipelines.data.versions.plain import VERSION
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import LockstepError
from pipelines.etl.identity import check_unchanged
from pipelines.etl.query import _check_variables
from pipelines.etl.splits.shares import (
    SplitUnit,
    compare_shares,
    compare_window_shares,
    describe_difference,
    is_notable,
    row_shares,
    target_shares,
)
from pipelines.formats.idx.table import IdxSource, read_columns
from pipelines.formats.tar.table import Tar, read_members
from pipelines.runtime.compat import haproxy, present
from pipelines.runtime.environment import describe_disagreement, installed_versions
from pipelines.serving.batch import predictions_manifest
from pipelines.serving.batch.fetched_model import Model, check_model_pipeline
from pipelines.serving.batch.input_columns import detect_formats
from pipelines.serving.batch.input_tables import check_windows_are_complete, set_input_paths
from pipelines.serving.batch.predict_tables import _check_apart
from pipelines.serving.http.request import parse_rows
from pipelines.serving.model.series_windows import SeriesInputs, add_windows_to_rows
from pipelines.spark import ambient_settings as ambient
from pipelines.spark.ambient_settings import check_executors

ROOT = Path(__file__).parents[1]
PEOPLE = VALUES["source"]["tables"]["people"]
Do = Callable[[Path], Any]


def refuse(reason: str | None) -> None:
    """Raise what a function has returned as an error's text, if it has."""
    if reason:
        raise LockstepError(reason)


def config(**changes: Any) -> Config:
    return parse({**VALUES, **changes}, "x.yaml")


def reading(**people: Any) -> Config:
    """A config with these settings of its only table."""
    return config(source={"tables": {"people": {**PEOPLE, **people}}, "query": "SELECT * FROM people"})


def yaml(folder: Path, **changes: Any) -> str:
    return write(folder, "x.yaml", json.dumps({**VALUES, **changes}))


def call(command: str, *arguments: str, name: str = "") -> Do:
    """Run a command of Lockstep up to the call of the function in `api` that does its work, the one of its `name`."""

    def run_command(folder: Path) -> Any:
        with mock.patch(f"pipelines.api.{name or command}") as work, mock.patch.object(commands, "_tell_page"):
            commands.COMMANDS[command](f"lockstep {command}", [yaml(folder), *arguments])
        work.assert_called_once()

    return run_command


def speaking(*flags: str) -> Do:
    def speak(folder: Path) -> None:
        with mock.patch("pipelines.runtime.progress.speak") as spoken, mock.patch.object(command_line, "logging"):
            command_line.read_config_and_output("lockstep etl", [yaml(folder), *flags])
        spoken.assert_called_once_with(*[flag.removeprefix("--") for flag in flags])

    return speak


def check_installed_name(library: str, owner: Any, name: str) -> None:
    """The installed version, that of constraints.txt, has the name."""
    check_constraint(library)
    present(owner, name)


def check_constraint(library: str) -> None:
    assert f"{library}=={version_of(library).partition('+')[0]}" in (ROOT / "constraints.txt").read_text().splitlines()


def option_in_changed_ray(folder: Path) -> str:
    """HAProxy's option in a Ray whose template has changed."""
    for name in ("haproxy_templates.py", "constants.py"):
        path = folder / "serve/_private" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("retry-on is gone")
    with mock.patch.object(haproxy, "find_spec", lambda name: SimpleNamespace(origin=str(folder / "__init__.py"))):
        return haproxy.append_default_option(haproxy.RETRY_ON, "conn-failure", "option x")


def option_in_tested_ray(folder: Path) -> str:
    check_constraint("ray")
    return haproxy.append_default_option(haproxy.RETRY_ON, "conn-failure", "option x")


def own_module(folder: Path, text: str) -> Any:
    """The settings in a module of the user's own."""
    name = f"settings_{sha256(str(folder).encode()).hexdigest()[:12]}"
    sys.modules.pop(name, None)
    write(folder, f"{name}.py", text)
    with mock.patch.object(sys, "path", [str(folder), *sys.path]):
        return TASKS.class_for(f"{name}:Own")


def version(folder: Path, value: int = 0, **known: Any) -> Version:
    part = {"x": np.full((3, 2), value, "float32"), "label": np.zeros(3, "uint8")}
    return write_version(folder / "data", {"train": [part]}, **known)


def commit_again(folder: Path, removed: bool = False) -> Version:
    """Commit a version again, with other rows. The first one may be removed before. Returns the version that is opened."""
    root = folder / "a/data" / VERSION
    if removed:
        shutil.rmtree(root)
    else:
        version(folder / "a")
    second = version(folder / "b", 1)
    shutil.copytree(Path(second.root, "data-a"), root / "data-a", dirs_exist_ok=True)
    commit(second.filesystem, str(root), second.manifest.model_copy(update={"attempt": "b"}), second.row_groups)
    return open_version(str(folder / "a/data"))


def alter_version(folder: Path, removed: bool = False) -> Version:
    if removed:
        shutil.rmtree(folder / "data" / VERSION)
        return version(folder)
    path = Path(version(folder).root, "manifest.json")
    path.write_bytes(path.read_bytes().replace(b'"arrays"', b'"arrows"'))
    return open_version(str(folder / "data"))


def newer_manifest(folder: Path) -> bytes:
    return version(folder).manifest.model_copy(update={"format": manifest.FORMAT + 1}).to_json()


def read_next_format(folder: Path) -> Any:
    """Read a manifest of the next format as a version of Lockstep that knows it."""
    text = newer_manifest(folder)
    with mock.patch.object(manifest, "FORMAT", manifest.FORMAT + 1):
        return parse_manifest(text, "manifest.json")


def make_folder_below(folder: Path, is_taken: bool) -> None:
    """Make a folder below a place that a file may have taken."""
    if is_taken:
        write(folder, "taken", "")
    else:
        (folder / "taken").unlink()
    storage.make_folder(LocalFileSystem(), f"{folder}/taken/data")


class Store(LocalFileSystem):
    """One that answers, or does not."""

    answers = False

    def get_file_info(self, path: Any) -> FileInfo:
        if not self.answers:
            raise OSError("Connection refused")
        return LocalFileSystem().get_file_info(path)


def ask_reachable_store(folder: Path) -> FileInfo:
    store = Store()
    store.answers = True
    return storage.ask(store, str(folder))


def rows_in(request: Any, *columns: str) -> Any:
    return parse_rows(json.dumps(request).encode(), Endpoint(), pa.schema({column: pa.int64() for column in columns}))


@cache
def python_in(**environment: str) -> str:
    """The encoding that a Python takes file names for."""
    command = [sys.executable, "-c", "import sys; print(sys.getfilesystemencoding())"]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True).stdout.strip()


def check_python_in(**environment: str) -> None:
    encoding = python_in(LC_ALL="POSIX", PYTHONCOERCECLOCALE="0", **environment)
    with mock.patch.object(sys, "getfilesystemencoding", lambda: encoding):
        ambient.check_python()


@cache
def java_state(options: str = ambient.JAVA_OPTIONS, **environment: str) -> dict[str, str]:
    """What a Java that is started so says of itself, as executors are asked."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")}
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    assert java is not None
    command = [java, *shlex.split(options), "-XshowSettings:properties", "-version"]
    printed = subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=True).stderr
    properties = {name.strip(): value for name, _, value in (line.partition(" = ") for line in printed.splitlines())}
    return {
        "locale": f"{properties['user.language']}_{properties.get('user.country', '')}".rstrip("_"),
        "time zone": properties.get("user.timezone", ""),
        "encoding of file names": properties["sun.jnu.encoding"],
        "version": properties["java.specification.version"],
    }


def check_java(**state: str) -> None:
    with mock.patch.object(ambient, "java_version", lambda: java_state()["version"]):
        check_executors(session(java={**java_state(), **state}))


def compare_states(folder: Path, change: bool) -> None:
    tables = raw_tables(reading(path=write(folder, "a.csv", "1,x\n")).source)
    before = {name: table.state() for name, table in tables.items()}
    if change:
        write(folder, "a.csv", "1,x\n2,y\n")
    check_unchanged(tables, before)


def deal_rows(units: int, rows_per_unit: Callable[[int], int] = lambda unit: 1) -> dict[int, int]:
    """The rows of each split, 0.8, 0.1 and 0.1, where units are dealt by a hash."""
    rows = {0: 0, 1: 0, 2: 0}
    for unit in range(units):
        place = int.from_bytes(sha256(str(unit).encode()).digest()[:8]) / 2**64
        rows[(place >= 0.8) + (place >= 0.9)] += rows_per_unit(unit)
    return rows


def dataset(**settings: Any) -> Dataset:
    return Dataset.model_validate({"path": "data", "features": {"x": "identity"}, "target": {"y": "identity"}, **settings})


def shares_by_chance(rows: int, **settings: Any) -> None:
    """What is said of the shares of rows that are dealt one by one; only a difference's cause is looked for in Spark."""
    keyed_dataset, counts = dataset(key="k", **settings), deal_rows(rows)
    if is_notable(target_shares(keyed_dataset), row_shares(counts), rows):
        unit = SplitUnit("rows", rows, 1, "train", "one key has 1 rows", "give more rows")
        refuse(describe_difference(target_shares(keyed_dataset), row_shares(counts), rows, unit).said)
    refuse(compare_shares(None, counts, keyed_dataset).said)  # type: ignore[arg-type]


def shares_of_documents(documents: int, longest: int) -> None:
    """What is said of the shares of windows of documents, most of which are short, and a few as long as `longest`."""
    packed = Dataset.model_validate({"path": "data", "features": {"text": {"encoder": "bytes", "length": 16}}})
    counts = deal_rows(documents, lambda unit: longest if unit % 50 == 7 else 1)
    named = {split: counts[number] for number, split in enumerate(("train", "validation", "test"))}
    refuse(compare_window_shares(named, documents, packed).said)


def model(**about: Any) -> Model:
    metadata = {"pipeline": "adult", "source": {"query": VALUES["source"]["query"]}, "table": "", **about}
    return Model("models:/adult/1", metadata, Path(), pa.schema([]), pa.schema([]), "ab" * 32)


SNAPSHOT = "0123456789ab"


def predictions(folder: Path, **changes: Any) -> str:
    """The folder of an output with one committed snapshot."""
    root = str(folder / "out" / SNAPSHOT)
    Path(root, "data-a").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"y": [1.0, 2.0]}), f"{root}/data-a/part.parquet")
    values = {
        "snapshot": SNAPSHOT, "attempt": "a", "model": "", "model_digest": "", "dataset_digest": "", "settings": {}, "inputs": {},
        "files": {f"{SNAPSHOT}/data-a/part.parquet": 2}, "quarantine": {}, "rows_parsed": 2, "rows_in": 2, "rows_out": 2, "refused": {},
    }  # fmt: skip
    predictions_manifest.commit_predictions(
        Attempt(LocalFileSystem(), root, "a"), predictions_manifest.Predictions(**{**values, **changes}), {}
    )
    return str(folder / "out")


def alter_predictions(folder: Path, removed: bool = False) -> Any:
    if removed:
        shutil.rmtree(folder / "out" / SNAPSHOT)
        return predictions_manifest.open_predictions(predictions(folder))
    path = Path(predictions(folder), SNAPSHOT, "manifest.json")
    path.write_bytes(path.read_bytes().replace(b'"rows_in": 2', b'"rows_in": 3'))
    return predictions_manifest.open_predictions(str(folder / "out"))


def output_beside(folder: Path, place: str) -> None:
    _check_apart(str(folder / place), reading(path=str(Path(write(folder / "in", "a.csv", "1,x\n")).parent)))


class Counted(TableSettings):
    """A table without files."""

    implementation: ClassVar[str] = "pipelines.data.sources.text.csv:Csv"
    rows: int = 3


def config_without_files(folder: Path, *inputs: str, **overrides: Any) -> Config:
    path = yaml(folder, source={"tables": {"people": {"format": f"{__name__}:Counted"}}, "query": "SELECT 1 AS age"})
    return set_input_paths(load(path, overrides), inputs, "people")[0]


def delta_input(*inputs: str) -> Config:
    source = {"tables": {"people": {"format": "delta", "path": "people"}}}
    return set_input_paths(config(source=source), inputs, "people")[0]


def postgres_input(address: str) -> Config:
    source = {"tables": {"people": {"format": "postgres", "url": "postgresql://me@host/db", "table": "people"}}}
    return set_input_paths(config(source=source), [address], "people")[0]


def parquet_config(folder: Path, **overrides: str) -> Config:
    """The config of a prediction for a table of Parquet."""
    file = write(folder, "a.csv", "1,x\n")
    path = yaml(folder, source={"tables": {"people": {"format": "parquet", "path": file}}, "query": "SELECT age, job FROM people"})
    return detect_formats(load(path, overrides), ("people",))


def gzip_blocks(folder: Path, length: int | None = None) -> list[bytes]:
    return list(content.blocks(write(folder, "a.gz", gzip.compress(bytes(range(256)) * 99)[:length])))


def rows_of_series(hours: list[int | None]) -> Any:
    """Windows of the rows of a request."""
    rows, columns = pa.table({"hour": pa.array(hours, pa.int64())}), pa.schema({"hour_lag_1": pa.int64()})
    windows = WindowSettings(order="hour", lags={"hour": (1,)})
    return add_windows_to_rows(rows, SeriesInputs(windows, rows.schema, frozenset(columns.names), columns))


def fit_scale(column: str) -> Any:
    """Fit the scale of arrays on another column."""
    rows = pa.table({"history": [[[1.0]], [[2.0]]], "load": [2.0, 3.0]})
    settings = {"encoder": "scale", "shape": [1, 1], "moments_of": [column]}
    return fit({"history": settings}, {"load": "identity"}, rows)


@contextmanager
def small_chunks() -> Iterator[None]:
    with mock.patch.object(parquet_footers, "CHUNK_BYTES", 2**20):
        yield


def bomb(folder: Path, rows_per_group: int) -> Any:
    """A column of 8 MB that takes next to nothing in the file, beside a bound of 1 MiB."""
    path = folder / "a.parquet"
    table = pa.table({"x": np.zeros(10**6, "int64")})
    pq.write_table(table, path, row_group_size=rows_per_group, compression="zstd", use_dictionary=False)
    with small_chunks():
        return list(parquet_footers._count_rows([str(path)]))


def numbers(folder: Path, shape: tuple[int, ...] = (3,), values: bytes = b"abc", cut_to: int | None = None, kind: Any = None) -> Any:
    path = write(folder, "x", idx(0x08, shape, values)[:cut_to])
    return list(read_columns([path], pa.schema({"value": kind or pa.int32()})))


def files_of_rows(folder: Path, *counts: int) -> Any:
    """A table of idx files, a column each."""
    paths = [write(folder, str(rows), idx(0x08, (rows,), bytes(rows))) for rows in counts]
    return list(read_columns(paths, pa.schema([(f"column_{number}", pa.int32()) for number in range(len(counts))])))


def idx_reader(*columns: str) -> Any:
    schema = StructType([StructField(column, IntegerType()) for column in columns])
    return IdxSource({"paths": '["images", "labels"]'}).reader(schema)


def wide_numbers(folder: Path, kind: Any) -> Any:
    path = write(folder, "x", idx(0x0C, (1,), struct.pack(">i", 300)))
    return list(read_columns([path], pa.schema({"value": kind})))


def tar_archive(folder: Path, length: int | None = None) -> Any:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = 3_000
        archive.addfile(entry, io.BytesIO(b"x" * 3_000))
    return list(read_members(write(folder, "x.tar", buffer.getvalue()[:length]), pa.schema({"path": pa.string(), "content": pa.binary()})))


def tar_table(folder: Path, **settings: Any) -> None:
    cast(Tar, raw_table({"format": "tar", "path": write(folder, "x.tar", b""), **settings}))._check_schema()


def check_table_file(folder: Path, content: bytes, form: str = "csv") -> None:
    """Check the file of a table as its reader does."""
    path = write(folder, "x", content)
    if form == "csv":
        cast(TextTable, raw_table({"format": form, "path": path, "schema": "a int"})).check_text()
    else:
        list(parquet_footers._count_rows([path]))


def parquet_bytes() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), buffer)
    return buffer.getvalue()


def record(text: str, **dialect: Any) -> None:
    """Raise the fault of a text's first record."""
    for batch in cut([text.encode()], Dialect(**{"quote": '"', **dialect}), "a.csv"):
        refuse(batch.column(1)[0].as_py())


PARQUET = parquet_bytes()
DATASET = {"path": "data", "target": {"rich": "binary"}, "features": {"7": {"encoder": "standardize", "column": "age"}}}
BALANCED = Balance(query=3, taken=3, refused=0, made=3)
SPLIT = {"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2]]}}
CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "give the ID of a run to promote, or --rollback": (
        call("promote"),
        (call("promote", "--run", "r"), call("promote", "--rollback", name="rollback")),
    ),
    "stands twice; give it once": (call("promote", "--run", "r", "--run", "s"), (call("promote", "--run", "r"),)),
    "is given twice; give it once, with all its values": (
        call("promote", "--run", "r", "--train.lr", "1", "--train.lr", "2"),
        (call("promote", "--run", "r", "--train.lr", "2"),),
    ),
    "exclude each other; give one of them": (speaking("--quiet", "--json"), (speaking("--quiet"), speaking("--json"))),
    "name a finished training, and one of": (call("export", "--run", "r"), (call("export", "--run", "r", "--to", "onnx"),)),
    "give the URI of a model, models:/…, and a folder": (
        call("predict", "--model", "models:/a/1"),
        (call("predict", "--model", "models:/a/1", "--output", "out"),),
    ),
    "is gone from this version of {}; install the one in constraints.txt": (
        lambda folder: present(types.ModuleType("torch.nn.modules.batchnorm"), "_NormBase"),
        (lambda folder: check_installed_name("torch", batchnorm, "_NormBase"),),
    ),
    "was written for; install ray as in constraints.txt": (
        option_in_changed_ray,
        (option_in_tested_ray,),
    ),
    "{}: {}; correct the module": (
        lambda folder: own_module(folder, "1 / 0\n"),
        (lambda folder: own_module(folder, "from pipelines.config.tasks.task import TabularSettings as Own\n"),),
    ),
    "a name must be text; quote it": (
        lambda folder: load(write(folder, "x.yaml", json.dumps({**VALUES, "dataset": DATASET}).replace('"7"', "7"))),
        (lambda folder: load(yaml(folder, dataset=DATASET)),),
    ),
    "look for what in source.query or source.expect": (
        lambda folder: check_balance(BALANCED, 2, 0),
        (lambda folder: check_balance(BALANCED, 3, 0),),
    ),
    "make it deterministic, and remove {} to take the new rows": (
        commit_again,
        (lambda folder: commit_again(folder, removed=True),),
    ),
    "the version is damaged: remove its folder": (alter_version, (lambda folder: alter_version(folder, removed=True),)),
    "this version of Lockstep reads format {}: upgrade": (
        lambda folder: parse_manifest(newer_manifest(folder), "manifest.json"),
        (read_next_format,),
    ),
    "mend that, and run the same command again": (
        lambda folder: make_folder_below(folder, is_taken=True),
        (lambda folder: make_folder_below(folder, is_taken=False),),
    ),
    "start again when it is back": (lambda folder: storage.ask(Store(), str(folder)), (ask_reachable_store,)),
    "run jobs/etl.py first, or set them as they were": (
        lambda folder: open_version(str(Path(version(folder, identity={"a": 1}).root).parent), {"a": 2}),
        (
            lambda folder: open_version(str(Path(version(folder, identity={"a": 2}).root).parent), {"a": 2}),
            lambda folder: open_version(str(Path(version(folder, identity={"a": 1}).root).parent), {"a": 1}),
        ),
    ),
    "give both one image, or one packed environment": (
        lambda folder: refuse(
            describe_disagreement(installed_versions(["numpy"]), {**installed_versions(["numpy"]), "numpy": "1.0"}, "host")
        ),
        (lambda folder: refuse(describe_disagreement(installed_versions(["numpy"]), installed_versions(["numpy"]), "host")),),
    ),
    '"data": [[value, …], …]': (
        lambda folder: rows_in({"dataframe_split": [[1, 2]]}, "a", "b"),
        (lambda folder: rows_in(SPLIT, "a", "b"),),
    ),
    "have not equally many values; give a list of values for each": (
        lambda folder: rows_in({"inputs": {"a": [1, 2], "b": 1}}, "a", "b"),
        (lambda folder: rows_in({"inputs": {"a": [1, 2], "b": [1, 1]}}, "a", "b"),),
    ),
    "run driver and executors on the same Java": (lambda folder: check_java(version="8"), (lambda folder: check_java(),)),
    "take _JAVA_OPTIONS out of their environment": (
        lambda folder: check_java(**java_state(_JAVA_OPTIONS="-Duser.language=tr", LC_ALL="C.UTF-8")),
        (lambda folder: check_java(**java_state(LC_ALL="C.UTF-8")),),
    ),
    "set PYTHONUTF8=1, and run again": (
        lambda folder: check_python_in(PYTHONUTF8="0"),
        (lambda folder: check_python_in(PYTHONUTF8="1"),),
    ),
    "would be a value of the machine that runs it": (
        lambda folder: _check_variables("source.query", "SELECT '${env:USER}' AS who"),
        (lambda folder: _check_variables("source.query", "SELECT 'root' AS who"),),
    ),
    "changed while being read; run again": (
        lambda folder: compare_states(folder, change=True),
        (lambda folder: compare_states(folder, change=False),),
    ),
    "give more of them, or the split of each row in a column": (
        lambda folder: shares_by_chance(12),
        (lambda folder: shares_by_chance(20_000), lambda folder: shares_by_chance(12, split={"by": "s"})),
    ),
    "give more documents, or cut long ones in source.query": (
        lambda folder: shares_of_documents(2_000, longest=500),
        (lambda folder: shares_of_documents(100_000, longest=500), lambda folder: shares_of_documents(2_000, longest=4)),
    ),
    "is a model of the pipeline {}, and the config is": (
        lambda folder: check_model_pipeline(config(name="other"), model()),
        (lambda folder: check_model_pipeline(config(), model()),),
    ),
    "takes the columns of another query than the config's": (
        lambda folder: check_model_pipeline(config(), model(source={"query": "SELECT 1"})),
        (lambda folder: check_model_pipeline(config(), model()),),
    ),
    "it is fitted on numbers; name columns of single": (
        lambda folder: fit_scale("history"),
        (lambda folder: fit_scale("load"),),
    ),
    "and so no place in its series; give it, or leave": (
        lambda folder: rows_of_series([1, None]),
        (lambda folder: rows_of_series([1, 2]), lambda folder: rows_of_series([1])),
    ),
    "comes twice within a series (by: {}); give each row": (lambda folder: rows_of_series([1, 1]), (lambda folder: rows_of_series([1]),)),
    "rows of its series before it; give the last": (
        lambda folder: check_windows_are_complete(WindowSettings(order="hour", lags={"load": (3,)}), 2, 0),
        (lambda folder: check_windows_are_complete(WindowSettings(order="hour", lags={"load": (3,)}), 5, 2),),
    ),
    "holds no predictions; run jobs/predict.py first": (
        lambda folder: predictions_manifest.open_predictions(str(folder)),
        (lambda folder: predictions_manifest.open_predictions(predictions(folder)),),
    ),
    "remove its folder, and run jobs/predict.py again": (alter_predictions, (lambda folder: alter_predictions(folder, removed=True),)),
    "the files hold {} and {}; run again": (lambda folder: predictions(folder, rows_out=1), (predictions,)),
    "lies in {}, where source.tables.{} is read from; give a folder outside": (
        lambda folder: output_beside(folder, "in/out"),
        (lambda folder: output_beside(folder, "out"),),
    ),
    "which has no path; set its own settings": (
        lambda folder: config_without_files(folder, "people=a.csv"),
        (lambda folder: config_without_files(folder, **{"source.tables.people.rows": 5}),),
    ),
    "a table at one place, not {}; give one after the other": (
        lambda folder: delta_input("a", "b"),
        (lambda folder: delta_input("a"), lambda folder: delta_input("b")),
    ),
    "has a table and a query; give one of them": (
        lambda folder: postgres_input("postgresql://me@host/db?table=a&query=SELECT 1"),
        (
            lambda folder: postgres_input("postgresql://me@host/db?table=a"),
            lambda folder: postgres_input("postgresql://me@host/db?query=SELECT 1"),
        ),
    ),
    "is not Parquet, the format of source.tables.{}": (
        parquet_config,
        (
            lambda folder: parquet_config(
                folder, **{"source.tables.people.format": "csv", "source.tables.people.schema": "age int, job string"}
            ),
        ),
    ),
    "cannot be read: {}; get the file again": (lambda folder: gzip_blocks(folder, -9), (gzip_blocks,)),
    "write it again in smaller row groups": (lambda folder: bomb(folder, 10**6), (lambda folder: bomb(folder, 10**5),)),
    "rows, {} are there; get the file again": (lambda folder: numbers(folder, values=b"ab"), (numbers,)),
    "; give files of the same rows": (lambda folder: files_of_rows(folder, 3, 4), (lambda folder: files_of_rows(folder, 3, 3),)),
    "; give as many columns as files": (lambda _: idx_reader("row", "image"), (lambda _: idx_reader("row", "image", "label"),)),
    "goes on after the {} rows that its header promises": (lambda folder: numbers(folder, values=b"abcd"), (numbers,)),
    "and the file ends before their sizes; get it again": (
        lambda folder: numbers(folder, (2, 2), b"", cut_to=9),
        (lambda folder: numbers(folder, (2, 2), b"abcd", kind=pa.binary()),),
    ),
    "does not fit its column {}: {}; choose a wider type": (
        lambda folder: wide_numbers(folder, pa.int8()),
        (lambda folder: wide_numbers(folder, pa.int16()),),
    ),
    "is not a whole tar archive: {}; get the file again": (lambda folder: tar_archive(folder, 2_000), (tar_archive,)),
    "tar has the columns path and content; leave the schema out": (
        lambda folder: tar_table(folder, schema="a int"),
        (tar_table,),
    ),
    "not of {}; set source.tables.{}.format: parquet": (
        lambda folder: check_table_file(folder, PARQUET),
        (lambda folder: check_table_file(folder, PARQUET, "parquet"),),
    ),
    "not of {}; write it as csv, json or parquet": (
        lambda folder: check_table_file(folder, b"PK\3\4\x14"),
        (lambda folder: check_table_file(folder, b"1\n"), lambda folder: check_table_file(folder, PARQUET, "parquet")),
    ),
    "quote: '' takes quotes as text": (
        lambda folder: record('"a\nb",c\n'),
        (lambda folder: record('"a\nb",c\n', multiline=True), lambda folder: record('"a\nb",c\n', quote="")),
    ),
}
"""By a part of the message: what raises it, and what its remedies do instead."""
IN_PLACE = (
    "make it deterministic, and remove {} to take the new rows",
    "the version is damaged: remove its folder",
    "mend that, and run the same command again",
    "remove its folder, and run jobs/predict.py again",
)
"""Cases whose remedies work on what raised the error."""
