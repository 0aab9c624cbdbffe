"""Remedies of errors that need neither Spark nor Ray: what raises each, and what it offers instead."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from config_remedies import VALUES
from fitting import choose_in_memory, fit
from mlflow.entities import LoggedModelStatus
from stores import new_store
from versions import write_version

from pipelines import command_line
from pipelines.applications.recommendation.settings import RecommendationSettings
from pipelines.config.dataset.dataset import ByFraction, Dataset
from pipelines.config.flags import parse_flags as read_flags
from pipelines.config.load import load, parse
from pipelines.config.pipeline import Config
from pipelines.config.serving import Endpoint
from pipelines.config.tasks.task import TASKS, TabularSettings, TextSettings
from pipelines.data.features.auto.patterns import name_columns
from pipelines.data.features.raw import numbers
from pipelines.data.loader import Loader, Order, shard_range
from pipelines.data.loader.reader import Reader
from pipelines.data.sources.base import raw_tables
from pipelines.data.sources.files import content, files
from pipelines.data.sources.files.spark_files import check_names
from pipelines.data.sources.text import records
from pipelines.data.sources.text.records import Dialect, cut
from pipelines.data.versions.manifest import parse_manifest
from pipelines.data.versions.plain import open_parquet
from pipelines.data.versions.storage import check_creation
from pipelines.data.versions.storage import locate as locate_dataset
from pipelines.data.versions.versions import Version, open_version
from pipelines.etl.refusals import check_quarantined, check_rows_left
from pipelines.etl.run import _check_output_is_outside
from pipelines.etl.splits.split_assignment import check_splits
from pipelines.etl.splits.strata import check_cardinality
from pipelines.report.arguments import read_arguments as read_report
from pipelines.serving.batch.input_columns import detect_formats
from pipelines.serving.batch.input_tables import set_input_paths
from pipelines.serving.http.request import parse_rows, token_digest
from pipelines.strategies.sharded.tensor_and_context import check_degrees
from pipelines.tasks.bind import build_task
from pipelines.tracking.client import check_host, connect, ensure_experiment
from pipelines.tracking.history import history, newest_run, read_training
from pipelines.tracking.models import newest_model
from pipelines.tracking.tracked_run import KIND
from pipelines.tracking.training import IDENTITY
from pipelines.train.checkpoint.run_directory import RunDirectory

Do = Callable[[Path], Any]


def wrote(path: Path, text: str | bytes = "a\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def table(path: Path, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path.parent)


def read_replaced(folder: Path, remedy: str = "") -> Any:
    """Read plain Parquet whose file was replaced after it was opened."""
    opened = open_parquet(table(folder / "s" / "a.parquet", y=[1.0]), "y")
    table(folder / "s" / "a.parquet", y=[1.0 if remedy == "restored" else 2.0])
    return Reader(open_parquet(str(folder / "s"), "y") if remedy == "opened again" else opened, "train").read(0)


def without_hard_links(folder: Path | str) -> None:
    """What an ETL checks first on a file system without hard links."""
    with patch("os.link", side_effect=OSError(errno.EPERM, "Operation not permitted")):
        check_creation(*locate_dataset(str(folder)))


def cut_text(text: str, written: str = "utf-8", length: int | None = None, **dialect: Any) -> list[Any]:
    return list(cut([text.encode(written)[:length]], Dialect(**dialect), "a.csv"))


def fit_columns(settings: Any, target: Any = "identity", **columns: Any) -> Any:
    raw = pa.table({"y": list(range(3)), **columns})
    return fit({"a": settings} if not isinstance(settings, dict) or "encoder" in settings else settings, {"y": target}, raw)


def name_features(features: Any, **more: pa.DataType) -> Any:
    schema = pa.schema({"age": pa.int32(), "job": pa.string(), "y": pa.bool_(), **more})
    return name_columns(Dataset.model_validate({"path": "data", "features": features, "target": {"y": "binary"}}), schema)


def auto_features(features: Any, **columns: Any) -> Any:
    return choose_in_memory(features, {"y": "binary"}, pa.table({**columns, "y": [True, False] * 50}))


def version(folder: Path, label: Any = (0, 1, 1), cardinality: int | None = 2, **known: Any) -> Version:
    part = {"x": np.zeros((3, 2), "float32"), "label": np.array(label, "uint8")}
    return write_version(folder / "data", {"train": [part]}, cardinality={"label": cardinality} if cardinality else {}, **known)


def tabular(folder: Path, cardinality: int | None = 2, **settings: Any) -> Any:
    return build_task(TabularSettings(**settings), version(folder, cardinality=cardinality).manifest)


def words(folder: Path, length: int, **settings: Any) -> Any:
    part = {"x": np.zeros((3, length), "int32"), "label": np.zeros(3, "uint8")}
    version_of_words = write_version(folder / "words", {"train": [part]}, cardinality={"label": 2, "x": 9})
    return build_task(TextSettings(**settings), version_of_words.manifest).model()


def config(uri: str = "sqlite:///x.db", **changes: Any) -> Config:
    return parse({**VALUES, "tracking": {"uri": uri, "experiment": "e"}, **changes}, "x.yaml")


def two_tables() -> Config:
    people = VALUES["source"]["tables"]["people"]
    return config(source={"tables": {"people": people, "jobs": people}, "query": "SELECT 1"})


def batches(folder: Path, name: str) -> Any:
    part = {name: np.zeros((8, 2), "float32"), "label": np.zeros(8, "uint8")}
    version_of_rows = write_version(folder / name, {"train": [part]}, cardinality={"label": 2})
    return Loader(version_of_rows, "train", Order(shards=1, global_batch=2, seed=0), range(1))


def store(folder: Path) -> str:
    return new_store(folder)


def training(folder: Path, logged: str = "", **tags: str) -> str:
    """The ID of a run, with `logged` as its config."""
    client = connect(store(folder))
    run = client.create_run(ensure_experiment(client, config(store(folder))), tags={IDENTITY: "x", **tags})
    if logged:
        client.log_text(run.info.run_id, logged, "config.json")
    return str(run.info.run_id)


def model(folder: Path) -> str:
    client = connect(store(folder))
    logged_model = client.create_logged_model(ensure_experiment(client, config(store(folder))), name="model")
    return str(client.finalize_logged_model(logged_model.model_id, LoggedModelStatus.READY).model_id)


def reopen_experiment(folder: Path, mend: Callable[[Any, str], None] = lambda client, number: None, name: str = "e") -> str:
    client = connect(store(folder))
    number = ensure_experiment(client, config(store(folder)))
    client.delete_experiment(number)
    mend(client, number)
    return ensure_experiment(client, config(store(folder), tracking={"uri": store(folder), "experiment": name}))


def fit_text(encoder: str, **columns: Any) -> Any:
    settings = {"encoder": encoder, "column": "a", "length": 8, **({"vocabulary": 300} if encoder == "bpe" else {})}
    return fit({"t": settings}, {}, pa.table(columns))


def apart(folder: Path, path: str, table: str = "in") -> None:
    wrote(folder / "in" / "train.csv")
    people = {**VALUES["source"]["tables"]["people"], "path": str(folder / table)}
    read = config(source={"tables": {"people": people}, "query": "SELECT 1"}, dataset={**VALUES["dataset"], "path": str(folder / path)})
    _check_output_is_outside(read, raw_tables(read.source))


def yaml(folder: Path, text: str, name: str = "x.yaml") -> str:
    return wrote(folder / name, text)


def pipeline(folder: Path, text: str = "") -> Config:
    return load(yaml(folder, f"{json.dumps(VALUES)}{text}"))


def find_linked_files(folder: Path, **where: str) -> Any:
    wrote(folder / "in" / "a.csv")
    if not (folder / "in" / "back").exists():
        os.symlink(folder, folder / "in" / "back")
    return files.find(str(folder / where.get("path", "in")))


def strange_name(folder: Path, name: bytes) -> Any:
    inner = folder / name.hex()
    inner.mkdir()
    with open(os.path.join(os.fsencode(inner), name), "wb") as file:
        file.write(b"a\n")
    return files.find(str(inner))


def get_damaged_file(folder: Path, get: Any, removed: bool = False) -> Any:
    directory = RunDirectory(str(folder / "run"))
    directory.put("a", b"altered")
    if removed:
        (folder / "run" / "a").unlink()
    return get(directory, "a")


def check_sharded(folder: Path, **settings: Any) -> None:
    train = config(train={"strategy": "sharded", "workers": 2, **settings}).train
    task = tabular(folder)
    check_degrees(train, task, task.model())


def formats(folder: Path, content: bytes) -> Config:
    people = {**VALUES["source"]["tables"]["people"], "path": wrote(folder / "a.csv", content)}
    return detect_formats(config(source={"tables": {"people": people}, "query": "SELECT 1"}), ("people",))


A_NUMBER = pa.schema({"a": pa.int64()})
WORDS = {"encoder": "sequence", "column": "a", "length": 2}
REQUEST = b'{"dataframe_records": [{"a": 1}, {"a": 2}]}'
CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "the value is missing; write it after the flag": (
        lambda folder: command_line.read_config_and_output("lockstep etl", [yaml(folder, json.dumps(VALUES)), "--train.workers"]),
        (lambda folder: command_line.read_config_and_output("lockstep etl", [yaml(folder, json.dumps(VALUES)), "--train.workers", "2"]),),
    ),
    "not a flag; write --section.setting VALUE": (
        lambda folder: read_flags(["train.workers", "2"], Config),
        (lambda folder: read_flags(["--train.workers", "2"], Config),),
    ),
    "duplicate key; remove one": (
        lambda folder: load(yaml(folder, "name: x\nname: y\n")),
        (pipeline,),
    ),
    "correct it, or quote it to make it text": (
        lambda folder: load(yaml(folder, "name: 2017-02-30\n")),
        (lambda folder: load(yaml(folder, json.dumps({**VALUES, "name": "2017-02-30"}))),),
    ),
    "name the YAML file of a pipeline, such as": (lambda folder: load(folder / "none.yaml"), (pipeline,)),
    "is not UTF-8; save the file as UTF-8": (
        lambda folder: load(wrote(folder / "y.yaml", "name: ä".encode("latin-1"))),
        (lambda folder: load(yaml(folder, json.dumps({**VALUES, "tracking": {"tags": {"a": "ä"}}}, ensure_ascii=False))),),
    ),
    "install it, or start in the folder that contains it": (
        lambda folder: TASKS.class_for("no_such_module:Task"),
        (lambda folder: TASKS.class_for("pipelines.config.tasks.task:TabularSettings"),),
    ),
    "correct the name or the module": (
        lambda folder: TASKS.class_for("pipelines.config.tasks.task:Nothing"),
        (lambda folder: TASKS.class_for("pipelines.config.tasks.task:TabularSettings"),),
    ),
    "has no implementation; set": (
        lambda folder: TASKS.class_for("pipelines.config.tasks.task:TaskSettings"),
        (lambda folder: TASKS.class_for("pipelines.config.tasks.task:TabularSettings"),),
    ),
    "no .parquet file; give a folder that has": (
        lambda folder: open_parquet(str(folder), "y"),
        (lambda folder: open_parquet(table(folder / "p" / "a.parquet", y=[1.0]), "y"),),
    ),
    "they must be equal; open them apart": (
        lambda folder: (
            (table(folder / "q" / "1" / "a.parquet", y=[1.0]), table(folder / "q" / "2" / "b.parquet", z=[1.0]))
            and open_parquet(str(folder / "q"), "y")
        ),
        (lambda folder: open_parquet(str(folder / "q" / "1"), "y"), lambda folder: open_parquet(str(folder / "q" / "2"), "z")),
    ),
    "{}: {}; write the file again": (
        lambda folder: open_parquet(str(Path(wrote(folder / "r" / "a.parquet", "no Parquet")).parent), "y"),
        (lambda folder: open_parquet(table(folder / "r" / "a.parquet", y=[1.0]), "y"),),
    ),
    "restore the file, or open the folder again": (
        read_replaced,
        tuple(lambda folder, remedy=remedy: read_replaced(folder, remedy) for remedy in ("restored", "opened again")),
    ),
    "choose a folder on another file system, such as one": (
        without_hard_links,
        (lambda folder: check_creation(*locate_dataset(str(folder))), lambda folder: without_hard_links("s3://bucket/path")),
    ),
    "give a local path or a URI such as s3://bucket/path": (
        lambda folder: locate_dataset("nowhere://bucket/path"),
        (lambda folder: locate_dataset(str(folder)), lambda folder: locate_dataset("s3://bucket/path")),
    ),
    "holds no dataset version; run jobs/etl.py": (
        lambda folder: open_version(str(folder / "none")),
        (lambda folder: open_version(version(folder).root),),
    ),
    "without a token; set endpoint.token_file or": (
        lambda folder: token_digest(Endpoint(host="0.0.0.0")),
        (lambda folder: token_digest(Endpoint(host="0.0.0.0", token_file=wrote(folder / "token", "x" * 32))),),
    ),
    "which cannot be read: {}; name a file with the token": (
        lambda folder: token_digest(Endpoint(token_file=str(folder / "none"))),
        (lambda folder: token_digest(Endpoint(token_file=wrote(folder / "token", "x" * 32))),),
    ),
    'send {"{}": [{"column": value': (
        lambda folder: parse_rows(b"{}", Endpoint(), A_NUMBER),
        (lambda folder: parse_rows(REQUEST, Endpoint(), A_NUMBER),),
    ),
    "endpoint.rows_per_request; send several requests": (
        lambda folder: parse_rows(REQUEST, Endpoint(rows_per_request=1), A_NUMBER),
        (lambda folder: parse_rows(b'{"dataframe_records": [{"a": 1}]}', Endpoint(rows_per_request=1), A_NUMBER),),
    ),
    "no row is left for {} ({}); give more rows": (
        lambda folder: check_splits({0: 9, 1: 0, 2: 1}, ByFraction()),
        (
            lambda folder: check_splits({0: 90, 1: 8, 2: 10}, ByFraction()),
            lambda folder: check_splits({0: 9, 1: 0, 2: 1}, ByFraction(train=0.9, validation=0, test=0.1)),
        ),
    ),
    "name a column of fewer values, such as ranges": (
        lambda folder: check_cardinality("age", 900, 1_000),
        (lambda folder: check_cardinality("age", 12, 1_000),),
    ),
    "so its conditions or a join remove": (
        lambda folder: check_rows_left({"t": 5}, 0, {}),
        (lambda folder: check_rows_left({"t": 5}, 5, {}),),
    ),
    "rows, and all are refused": (
        lambda folder: check_rows_left({"t": 5}, 5, {"plausible age": 5}),
        (lambda folder: check_rows_left({"t": 5}, 5, {}),),
    ),
    "Mend the source or the query, or raise it": (
        lambda folder: check_quarantined(10, {"a": 2}, 0.1, {}),
        (lambda folder: check_quarantined(10, {"a": 1}, 0.1, {}), lambda folder: check_quarantined(10, {"a": 2}, 0.2, {})),
    ),
    "remove the shape for single numbers": (
        lambda folder: fit_columns({"encoder": "identity", "shape": [2]}, a=[1, 2, 3]),
        (lambda folder: fit_columns("identity", a=[1, 2, 3]),),
    ),
    "has no number in the training split": (
        lambda folder: fit_columns("standardize", a=pa.nulls(3, pa.float64())),
        (lambda folder: fit_columns({"b": "standardize"}, a=pa.nulls(3, pa.float64()), b=[1, 2, 3]),),
    ),
    "it takes true and false, or 1 and 0; write a condition": (
        lambda folder: fit_columns("binary", a=["x", "y", "x"]),
        (lambda folder: fit_columns("binary", a=[True, False, True]),),
    ),
    "is neither 0 nor 1 in any row of the training split": (
        lambda folder: fit_columns("binary", a=[2, 3, 2]),
        (lambda folder: fit_columns("label", a=[2, 3, 2]),),
    ),
    "so it has no classes; use another column": (
        lambda folder: fit_columns("label", a=pa.nulls(3, pa.string())),
        (lambda folder: fit_columns({"b": "label"}, b=["x", "y", "x"]),),
    ),
    "splits column {} into words, and another encoder takes whole values": (
        lambda folder: fit_columns({"w": WORDS, "v": {"encoder": "vocabulary", "column": "a"}}, a=["x y"] * 3),
        (
            lambda folder: fit_columns(
                {"w": WORDS, "v": {"encoder": "vocabulary", "column": "a_whole"}},
                a=["x y"] * 3,
                a_whole=["x y"] * 3,
            ),
        ),
    ),
    "it takes numbers; CAST the column in the query": (
        lambda folder: fit_columns("standardize", a=["1", "2", "3"]),
        (
            lambda folder: fit_columns("standardize", a=[1, 2, 3]),
            *(
                lambda folder, encoder=encoder: fit_columns(encoder, a=["1", "2", "3"])
                for encoder in ("vocabulary", {"encoder": "hash", "buckets": 4}, "label")
            ),
        ),
    ),
    "is read already, {}; remove this pattern, or": (
        lambda folder: name_features({"*": "auto", "a*": "log1p"}),
        (lambda folder: name_features({"*": "auto"}), lambda folder: name_features({"a*": "log1p", "*": "auto"})),
    ),
    "matches the column {} first; move {} before it": (
        lambda folder: name_features({"*": "auto", "age": "log1p"}),
        (lambda folder: name_features({"age": "log1p", "*": "auto"}),),
    ),
    "cannot name a tensor column: too long, reserved, or": (
        lambda folder: name_features({"*": "auto"}, **{"a/b": pa.int64()}),
        (lambda folder: name_features({"*": "auto"}, a_b=pa.int64()),),
    ),
    "name these columns above, or end the pattern": (
        lambda folder: name_features({"*": "standardize"}),
        (
            lambda folder: name_features({"job": "vocabulary", "*": "standardize"}),
            lambda folder: name_features({"*:number": "standardize"}),
        ),
    ),
    "auto takes no column of type {}, as {} is; make": (
        lambda folder: name_features({"day": "auto"}, day=pa.date32()),
        (lambda folder: name_features({"day": "auto"}, day=pa.int32()),),
    ),
    "auto leaves out every column, {}; name a feature": (
        lambda folder: auto_features({"*": "auto"}, a=[1.5] * 100),
        (lambda folder: auto_features({"a": "standardize"}, a=[1.5] * 100),),
    ),
    "values are not numbers; CAST them in the query": (
        lambda folder: numbers(pa.array(["1"])),
        (lambda folder: numbers(pa.array([1])), lambda folder: fit_columns("vocabulary", a=["1", "2", "3"])),
    ),
    "every worker owns at least one; lower train.workers": (
        lambda folder: shard_range(0, 9, 8),
        (lambda folder: shard_range(0, 8, 8),),
    ),
    "rows do not fill one global batch of": (
        lambda folder: Order(shards=8, global_batch=512, seed=0).steps(17),
        (
            lambda folder: Order(shards=8, global_batch=16, seed=0).steps(17),
            lambda folder: Order(shards=8, global_batch=512, seed=0, remainder="keep").steps(17),
        ),
    ),
    "has no rows in split {}; give it a share": (
        lambda folder: Reader(version(folder), "test"),
        (lambda folder: Reader(version(folder), "train"),),
    ),
    "the path is missing; write --input": (
        lambda folder: set_input_paths(config(), ["people="], "people"),
        (lambda folder: set_input_paths(config(), ["people=a.csv"], "people"),),
    ),
    "the config has the tables {}; name one of them": (
        lambda folder: set_input_paths(two_tables(), ["a.csv"], ""),
        (lambda folder: set_input_paths(two_tables(), ["people=a.csv"], ""),),
    ),
    "name the servers {}; set one with --tracking.uri": (
        lambda folder: read_report(
            "report", [yaml(folder, json.dumps({**VALUES, "tracking": {"uri": f"http://{name}"}}), f"{name}.yaml") for name in "ab"]
        ),
        (
            lambda folder: read_report(
                "report", [*(yaml(folder, json.dumps(VALUES), f"{name}.yaml") for name in "ab"), "--tracking.uri", "http://a"]
            ),
        ),
    ),
    "is installed in a folder; install it": (
        lambda folder: content.package_folder("package://no_such_package/a.csv"),
        (lambda folder: content.package_folder("package://numpy/a.csv"),),
    ),
    "leads out of the package": (
        lambda folder: content.inside_package("package://numpy/../pip/py.typed"),
        (lambda folder: content.inside_package("package://numpy/py.typed"),),
    ),
    "give a file, or a glob such as *.csv": (
        lambda folder: content.inside_package("package://numpy/core"),
        (lambda folder: content.inside_package("package://numpy/py.typed"), lambda folder: files.find("package://numpy/*.typed")),
    ),
    "give a local path or a URI that pyarrow knows": (
        lambda folder: content.locate("nowhere://bucket/path"),
        (lambda folder: content.locate(str(folder)), lambda folder: content.locate("s3://bucket/path?region=us-east-1")),
    ),
    "mend the file or leave it out": (
        lambda folder: list(records.document_records(b'[{"a": 1}, x]', "a.json")),
        (lambda folder: list(records.document_records(b'[{"a": 1}]', "a.json")),),
    ),
    "JSON must be, or set the encoding it has": (
        lambda folder: list(cut(['[{"a": "ä"}]'.encode("latin-1")], Dialect(json=True, whole_file=True), "a.json")),
        (
            lambda folder: list(cut(['[{"a": "ä"}]'.encode()], Dialect(json=True, whole_file=True), "a.json")),
            lambda folder: list(
                cut(['[{"a": "ä"}]'.encode("latin-1")], Dialect(json=True, whole_file=True, encoding="ISO-8859-1"), "a.json")
            ),
        ),
    ),
    "{}: {}; give a path that exists": (
        lambda folder: files.find(str(folder / "*.none")),
        (lambda folder: files.find(wrote(folder / "a.csv")),),
    ),
    "{}: no such file in {}; give a path that exists": (
        lambda folder: files.find("package://numpy/*.none"),
        (lambda folder: files.find("package://numpy/*.typed"),),
    ),
    "{}: no such file; give a path that exists": (
        lambda folder: files.find(str(folder / "none.csv")),
        (lambda folder: files.find(wrote(folder / "a.csv")),),
    ),
    "a file's name is not UTF-8": (
        lambda folder: strange_name(folder, b"\xff.csv"),
        (lambda folder: strange_name(folder, b"y.csv"),),
    ),
    "leads back to a folder that it lies in": (
        find_linked_files,
        (lambda folder: find_linked_files(folder, path="in/*.csv"),),
    ),
    "use * in their place": (
        lambda folder: files.find(f"{folder}/{{1..9999}}.csv"),
        (lambda folder: wrote(folder / "7.csv") and files.find(f"{folder}/*.csv"),),
    ),
    "or set options: {enforceSchema: true}": (
        lambda folder: cut_text("b,a\n1,2\n", header=True, columns=("a", "b")),
        (lambda folder: cut_text("b,a\n1,2\n", header=True, columns=("b", "a")), lambda folder: cut_text("b,a\n1,2\n", header=True)),
    ),
    "is UTF-16; set options": (
        lambda folder: cut_text("a,b\n", "utf-16"),
        (lambda folder: cut_text("a,b\n", "utf-16", encoding="utf-16", multiline=True, quote='"'),),
    ),
    "is not {}: {}; set the encoding it has": (
        lambda folder: cut_text("ä\n", "latin-1", encoding="ascii"),
        (lambda folder: cut_text("ä\n", "latin-1", encoding="ISO-8859-1"),),
    ),
    "the file breaks off inside a character": (
        lambda folder: cut_text("ab", "utf-16", -1, encoding="utf-16"),
        (lambda folder: cut_text("ab", "utf-16", encoding="utf-16"),),
    ),
    "has no classes; set it to none": (
        lambda folder: tabular(folder, cardinality=None, class_weights="balanced"),
        (lambda folder: tabular(folder, cardinality=None, class_weights="none"),),
    ),
    "has no counts of its classes; set": (
        lambda folder: tabular(folder, class_weights="balanced"),
        (lambda folder: tabular(folder, class_weights=[1.0, 2.0]),),
    ),
    "words; reduce them, or raise the length of the column": (
        lambda folder: words(folder, 2),
        (lambda folder: words(folder, 2, widths=[1, 2]), lambda folder: words(folder, 5)),
    ),
    "start the server, or set another address": (
        lambda folder: ensure_experiment(connect("http://127.0.0.1:9"), config("http://127.0.0.1:9")),
        (lambda folder: ensure_experiment(connect(store(folder)), config(store(folder))),),
    ),
    "with a file in a folder that can be written": (
        lambda folder: connect(f"sqlite:///{wrote(folder / 'file')}/mlflow.db"),
        (lambda folder: connect(store(folder)),),
    ),
    "has no training; run jobs/train.py first": (
        lambda folder: newest_run(store(folder), "e"),
        (lambda folder: training(folder) and newest_run(store(folder), "e"),),
    ),
    "has no run {}; use the ID of a run": (
        lambda folder: history(store(folder), "0" * 32),
        (lambda folder: history(store(folder), training(folder)),),
    ),
    "use task.kind tabular, or a numeric target": (
        lambda folder: build_task(RecommendationSettings(network="dlrm"), version(folder, cardinality=5).manifest),
        (
            lambda folder: tabular(folder, cardinality=5),
            lambda folder: build_task(RecommendationSettings(network="dlrm"), version(folder, cardinality=None).manifest),
        ),
    ),
    "has no word in the training split; use another column": (
        lambda folder: fit_text("bpe", a=pa.nulls(3, pa.string())),
        (lambda folder: fit_text("bpe", a=["x y"] * 3),),
    ),
    "has no character in the training split; use another column": (
        lambda folder: fit_text("characters", a=pa.nulls(3, pa.string())),
        (lambda folder: fit_text("characters", a=["x y"] * 3),),
    ),
    "so that each version would become raw data": (
        lambda folder: apart(folder, path="in/data"),
        (lambda folder: apart(folder, path="out"), lambda folder: apart(folder, path="in/data", table="in/train.csv")),
    ),
    "has no model; train one first": (
        lambda folder: newest_model(config(store(folder))),
        (lambda folder: model(folder) and newest_model(config(store(folder))),),
    ),
    "has no run {}; use the ID of a training": (
        lambda folder: read_training(store(folder), "0" * 32),
        (lambda folder: read_training(store(folder), training(folder, "{}")),),
    ),
    "not a training; use the ID of a run of jobs/train.py": (
        lambda folder: read_training(store(folder), training(folder, "{}", **{KIND: "etl"})),
        (lambda folder: read_training(store(folder), training(folder, "{}")),),
    ),
    "use the ID of a run of jobs/train.py that has its artifacts": (
        lambda folder: read_training(store(folder), training(folder)),
        (lambda folder: read_training(store(folder), training(folder, "{}")),),
    ),
    "is damaged: {}; log it again, or train again": (
        lambda folder: read_training(store(folder), training(folder, "{")),
        (lambda folder: read_training(store(folder), training(folder, "{}")),),
    ),
    "experiment {} at {} is deleted; restore it": (
        reopen_experiment,
        (
            lambda folder: reopen_experiment(folder, lambda client, number: client.restore_experiment(number)),
            lambda folder: reopen_experiment(folder, name="other"),
        ),
    ),
    "set the address of an MLflow server that all machines can reach": (
        lambda folder: check_host(store(folder), "elsewhere"),
        (lambda folder: check_host("http://127.0.0.1:5000", "elsewhere"),),
    ),
    "start the run anew": (
        lambda folder: batches(folder, "x").load_state_dict({"epoch": 0, "step": 1, "order_version": 0}),
        (lambda folder: batches(folder, "x").load_state_dict(batches(folder, "x").state_dict()),),
    ),
    "is damaged; remove it, and run the same command again": (
        lambda folder: get_damaged_file(folder, RunDirectory.get_with_checksum),
        (lambda folder: get_damaged_file(folder, RunDirectory.get_with_checksum, removed=True),),
    ),
    "is damaged; restore it, or remove it": (
        lambda folder: get_damaged_file(folder, RunDirectory.get_json),
        (lambda folder: get_damaged_file(folder, RunDirectory.get_json, removed=True),),
    ),
    "supports only {}; set {} to 1": (
        lambda folder: check_sharded(folder, strategy={"kind": "sharded", "context": 2}),
        (lambda folder: check_sharded(folder, strategy={"kind": "sharded", "context": 1, "shard": 2}),),
    ),
    "whose loss scale is on the GPU and gradients are not": (
        lambda folder: check_sharded(folder, strategy={"kind": "sharded", "shard": 2, "offload": True}, precision="fp16"),
        tuple(
            lambda folder, precision=precision: check_sharded(
                folder, strategy={"kind": "sharded", "shard": 2, "offload": True}, precision=precision
            )
            for precision in ("bf16", "fp32")
        ),
    ),
    "{} is a file of {}; write it as csv, json or parquet": (
        lambda folder: formats(folder, b"ORC\0\1"),
        (lambda folder: formats(folder, b"1,x\n"),),
    ),
    "start spark-submit with the environment variable": (
        lambda folder: check_names("t", ["ü.csv"], "ANSI_X3.4-1968"),
        (lambda folder: check_names("t", ["ü.csv"], "UTF-8"),),
    ),
    "this version of Lockstep reads format {}: run jobs/etl.py again": (
        lambda folder: parse_manifest(b'{"format": 1}', "manifest.json"),
        (lambda folder: parse_manifest(version(folder).manifest.to_json(), "manifest.json"),),
    ),
}
"""By a part of the message: what raises it, and what its remedies do instead."""
IN_PLACE = ("they must be equal; open them apart",)
"""Cases whose remedies work on what raised the error."""
