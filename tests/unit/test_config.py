"""From a YAML file and flags to a Config, or to one line per fault."""

import re
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from pipelines.config import Config, TaskSettings, from_command_line, load, parse
from pipelines.config.load import SHORT_SECTIONS
from pipelines.config.section import expand_kind
from pipelines.config.source.table_settings import ddl_faults
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.strategy import STRATEGIES
from pipelines.config.train.train import Train
from pipelines.config.tuning import Tune
from pipelines.errors import ConfigError

PIPELINE = """
name: adult
source:
  tables:
    people: {format: csv, path: "${LOCKSTEP_RAW:-data/raw}/adult/train.csv", schema: "age int, job string", options: {nullValue: "?"}}
  query: SELECT *, income = '>50K' AS rich FROM people
  expect: {plausible age: "age BETWEEN 0 AND 120"}
dataset:
  path: data/adult
  features:
    age: standardize
    job: {encoder: vocabulary, min_count: 10}
  target: {rich: binary}
task: {kind: tabular, hidden: [256, 128]}
train: {workers: 2, shards: 8, global_batch: 512, lr: 3e-4}
"""


@pytest.fixture
def values() -> dict[str, Any]:
    return yaml.safe_load(PIPELINE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "adult.yaml"
    path.write_text(PIPELINE)
    return path


def set_value(values: dict[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """The values with one of them set."""
    section, *keys = dotted.split(".")
    return {**values, section: set_value(values.get(section, {}), ".".join(keys), value) if keys else value}


def faults(values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(values, "conf/x.yaml")
    return str(caught.value).splitlines()


def test_a_file_is_a_config(file: Path) -> None:
    config = load(file)
    assert (config.name, config.experiment, config.train.workers, config.task.kind) == ("adult", "adult", 2, "tabular")
    assert config.dataset.encoders["job"].min_count == 10
    assert config.dataset.encoders["age"].encoder == "standardize"


def test_a_float_that_yaml_reads_as_text_is_a_float(file: Path) -> None:
    assert load(file).train.lr == 3e-4


def test_overrides_win_and_are_yaml(file: Path) -> None:
    config = load(file, {"train.workers": 4, "task.hidden": [], "source.tables.people.path": "p.csv", "train.checkpoint.keep": 5})
    assert (config.train.workers, config.task.hidden, config.train.checkpoint.keep) == (4, (), 5)
    assert config.source.tables["people"].path == "p.csv"


def test_flags_are_overrides(file: Path) -> None:
    config = from_command_line("jobs/train.py", [str(file), "--train.workers", "4", "--train.lr=1e-2", "--task.hidden", "[8, 4]"])
    assert (config.train.workers, config.train.lr, config.task.hidden) == (4, 1e-2, (8, 4))


def test_the_environment_fills_in_a_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_RAW", raising=False)
    assert load(file).source.tables["people"].path == "data/raw/adult/train.csv"
    monkeypatch.setenv("LOCKSTEP_RAW", "/elsewhere")
    assert load(file).source.tables["people"].path == "/elsewhere/adult/train.csv"


def test_relative_paths_start_at_lockstep_home(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_RAW", raising=False)
    monkeypatch.setenv("LOCKSTEP_HOME", "/home-of-runs")
    config = from_command_line("jobs/train.py", [str(file)])
    assert config.source.tables["people"].path == "/home-of-runs/data/raw/adult/train.csv"
    assert (config.dataset.path, config.train.storage) == ("/home-of-runs/data/adult", "/home-of-runs/runs")
    assert config.tracking.uri == "sqlite:////home-of-runs/mlflow.db"

    monkeypatch.chdir(tmp_path)
    for home, folder in (("", tmp_path), ("below", tmp_path / "below")):
        monkeypatch.setenv("LOCKSTEP_HOME", home)
        config = from_command_line("jobs/train.py", [str(file)])
        assert config.dataset.path == str(folder / "data/adult"), "absolute, for a job's processes start in other folders"
    monkeypatch.delenv("LOCKSTEP_HOME")
    assert from_command_line("jobs/train.py", [str(file)]).dataset.path == str(tmp_path / "data/adult")


@pytest.mark.parametrize("uri", ["s3://bucket/adult", "/data/adult"])
def test_uris_and_absolute_paths_stay(file: Path, uri: str) -> None:
    flags = ["--dataset.path", uri, "--tracking.uri", "http://127.0.0.1:5000", "--source.tables.people.path", f"[{uri}/a, {uri}/b]"]
    config = from_command_line("jobs/train.py", [str(file), *flags])
    assert (config.dataset.path, config.tracking.uri) == (uri, "http://127.0.0.1:5000")
    assert config.source.tables["people"].path == (f"{uri}/a", f"{uri}/b")


@pytest.mark.parametrize(
    ("dotted", "value", "message"),
    [
        (
            "export.hls4ml.precisions",
            ["ap_fixed<16>"],
            "export.hls4ml.precisions: ap_fixed<16> is no fixed-point type; "
            "write all bits and those before the point, such as ap_fixed<16,6>",
        ),
        ("train.lr", -1, "train.lr: must be greater than 0 (got -1)"),
        ("train.max_steps", "many", "train.max_steps: must be a whole number (got many)"),
        ("train.wrokers", 1, "train.wrokers: no such setting; did you mean workers? (got 1)"),
        ("tsak", 1, "tsak: no such setting; did you mean task? (got 1)"),
        ("train.checkpoint.kepe", 1, "train.checkpoint.kepe: no such setting; did you mean keep? (got 1)"),
        ("task.hidden", [10, -1], "task.hidden.1: must be greater than 0 (got -1)"),
        ("dataset.features.job.min_count", 0, "dataset.features.job.min_count: must be greater than 0 (got 0)"),
        ("train.global_batch", 500, "train: global_batch is 500; it must be a multiple of 8, the number of shards, such as 496 or 504"),
        (
            "train.strategy.compression",
            {"kind": "topk", "rank": 2},
            "train.strategy.compression.rank: has no effect while train.strategy.compression.kind is topk; set "
            "train.strategy.compression.kind to powersgd, or remove rank (got 2)",
        ),
        ("train.strategy.compression", {"kind": "topk", "share": 1}, "train.strategy.compression.share: must be at most 0.5 (got 1)"),
        (
            "train.strategy.compression",
            {"kind": "powersgd", "rnak": 2},
            "train.strategy.compression.rnak: no such setting; did you mean rank? (got 2)",
        ),
        ("train.workers", 9, "train: workers is 9; it must be at most 8, the number of shards"),
        ("train.workers", 0, "train.workers: must be greater than 0 (got 0)"),
        ("train.workers", [0, 2], "train.workers.0: must be greater than 0 (got 0)"),
        ("train.workers", [1], "train.workers.1: is missing"),
        ("train.workers", [3, 2], "train: workers is [3, 2]; write the smaller number first"),
        ("train.workers", [1, 9], "train: workers is 9; it must be at most 8, the number of shards"),
        ("dataset.target", {}, "dataset: a dataset needs one target and at least one feature (got 0 and 2)"),
        (
            "source.tables.people.options",
            {"nulValue": "?"},
            "source.tables.people.options: csv has no option nulValue; did you mean nullValue?",
        ),
        (
            "source.tables.people.options",
            {"quote": "ab"},
            "source.tables.people.options: quote is ab; it must be one ASCII character, or '' for none",
        ),
        ("source.tables.people.options", {"header": "yes"}, "source.tables.people.options: header is yes; it must be true or false"),
        (
            "source.tables.people.options",
            {"skipRows": 1.5},
            "source.tables.people.options: skipRows is 1.5; it must be a whole number of lines",
        ),
        (
            "source.tables.people.options",
            {"encoding": "UTF-7.5"},
            "source.tables.people.options: encoding is UTF-7.5; it must be a text encoding that Python supports, such as ISO-8859-1",
        ),
        ("source.tables.people.schema", "", "source.tables.people: csv needs a schema, such as `schema: age int, name string`"),
        ("train.lr", float("inf"), "train.lr: must be a finite number (got inf)"),
        ("train.seed", -1, "train.seed: must be at least 0 (got -1)"),
        ("train.global_batch", 2**20 + 1, "train.global_batch: must be at most 1048576 (got 1048577)"),
        ("task.hidden", 256, "task.hidden: must be a list, such as [first, second] (got 256)"),
        ("dataset.path", "", "dataset.path: must not be empty (got '')"),
        ("task", {"kind": "language", "sample_weight": "w"}, "task.sample_weight: must be empty (got w)"),
        ("task", {"kind": "language", "metrics": ["f1"]}, "task.metrics: must be empty"),
        ("dataset.split", "random", "dataset.split: must be a mapping, such as {name: value} (got random)"),
        ("dataset.split", None, "dataset.split: must be a mapping, such as {name: value} (got null)"),
        ("dataset.split", {"train": 0.9}, "dataset.split: train + validation + test is 1.1; it must be 1"),
        ("dataset.target", "rich", "dataset.target: must be a mapping, such as {name: value} (got rich)"),
        ("dataset.features.age", {"impute": "mean"}, "dataset.features.age: `encoder` is missing; add it, such as {encoder: standardize}"),
        ("tracking.log_every_seconds", -1, "tracking.log_every_seconds: must be greater than 0 (got -1)"),
        (
            "tracking.uri",
            "http://me:hidden@mlflow:5000",
            "tracking.uri: holds a password or a token, which everyone who sees the run could read; set it in the environment, as "
            "MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN or AWS_SECRET_ACCESS_KEY, or in Spark's configuration",
        ),
        (
            "source.tables.people.schema",
            "a intt, `a, b`: double, c, d blob,",
            "source.tables.people.schema: a: no type intt (did you mean int?); c has no type; "
            "d: no type blob (a type of Spark SQL is needed); a comma has no column before or after it; "
            "give names and types as Spark DDL, such as `age int, name string` "
            "(got a intt, `a, b`: double, c, d blob,)",
        ),
        (
            "source.tables.people.schema",
            "\0",
            "source.tables.people.schema: '\\x00' has no type; give names and types as Spark DDL, such as `age int, name string` "
            "(got '\\x00')",
        ),
        ("name", "a b", "name: must have 1 to 100 ASCII letters, digits, _, . and -, and begin with a letter or digit (got a b)"),
    ],
)
def test_a_fault_is_one_line_with_its_place(values: dict[str, Any], dotted: str, value: Any, message: str) -> None:
    assert faults(set_value(values, dotted, value)) == [f"conf/x.yaml: {message}"]


@pytest.mark.parametrize(
    "ddl",
    [
        "a: INT NOT NULL, `b,``c` decimal(10, 2) COMMENT 'it\\'s, so, to say', c array<struct<a: int, b: map<string, long>>>",
        "a int, -- no comma, no type\n /* nor, here */ b string",
        "a timestamp_ntz, b interval day to second, c variant, d void, e char(3) DEFAULT 'x y, z w', f time(3)",
    ],
)
def test_a_schema_of_spark_s_grammar_passes(ddl: str) -> None:
    assert ddl_faults(ddl) == []


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        ("dataset.path", "s3://KEY:hidden@bucket/data"),
        ("train.storage", "s3://bucket/runs?secret_key=hidden"),
        ("source.tables.people.path", ["/data/a", "s3a://key:hidden@bucket/b"]),
        ("source.tables.people.options", {"fs.s3a.secret.key": "hidden"}),
    ],
)
def test_p8_a_secret_is_refused_and_not_repeated(values: dict[str, Any], dotted: str, value: Any) -> None:
    (line,) = faults(set_value(values, dotted, value))
    assert dotted in line and "set it in the environment" in line and "hidden" not in line


def test_the_tracking_server_may_come_from_the_environment(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert parse(values, "x").tracking.uri == "http://mlflow:5000"
    assert parse({**values, "tracking": {"uri": "sqlite:///mine.db"}}, "x").tracking.uri == "sqlite:///mine.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hidden@mlflow:5000")
    (line,) = faults(values)
    assert "tracking.uri" in line and "hidden" not in line


def test_an_unknown_encoder_lists_some_that_there_are(values: dict[str, Any]) -> None:
    (line,) = faults(set_value(values, "dataset.features.age", "zscore"))
    assert re.fullmatch(r"conf/x.yaml: dataset.features.age: no encoder 'zscore'; choose one of \w+, .* and \d+ more", line)


def test_a_target_has_an_encoder_of_its_own(values: dict[str, Any]) -> None:
    assert faults(set_value(values, "dataset.target", {"rich": "auto"})) == [
        "conf/x.yaml: dataset.target.rich: auto is for features; name an encoder (got auto)"
    ]
    assert parse(set_value(values, "dataset.target", {"rich": "binary"}), "conf/x.yaml")


@pytest.mark.parametrize(
    ("dotted", "value", "message"),
    [
        ("dataset.features.age", "standardise", "no encoder 'standardise'; did you mean standardize?"),
        ("task.kind", "tabluar", "no kind 'tabluar'; did you mean tabular?"),
        ("train.optimizer", "adamW", "must be one of sgd, adam, adamw, muon; did you mean adamw? (got adamW)"),
        (
            "train.strategy",
            "dpd",
            "no kind 'dpd'; did you mean ddp?",
        ),
        ("train.use_gpu", "atuo", "must be auto, or true or false; did you mean auto? (got atuo)"),
        ("source.tables.people.format", "cvs", "source.tables.people.format: no format 'cvs'; did you mean csv?"),
        (
            "dataset.features.age",
            {"encoder": "standardize", "impute": "maen"},
            "must be one of mean, median, keep, none, or a number; did you mean mean?",
        ),
        (
            "train.strategy.compression",
            "powerSGD",
            "must be one of none, bf16, fp16, powersgd, topk; did you mean powersgd? (got powerSGD)",
        ),
        ("train.precision", 16, "must be one of auto, fp32, bf16, fp16; did you mean fp16? (got 16)"),
    ],
)
def test_of_an_unknown_word_the_near_one_is_named(values: dict[str, Any], dotted: str, value: Any, message: str) -> None:
    (line,) = faults(set_value(values, dotted, value))
    assert message in line


@pytest.mark.parametrize(
    ("servers", "train", "message"),
    [
        ({"staleness": 4}, {}, "staleness: has no effect while train.strategy.mode is sync; set train.strategy.mode to bounded"),
        ({"mode": "bounded"}, {}, "mode is bounded, but staleness is not set; set it, as to 4, or mode to async"),
        ({}, {"sync_batch_norm": True}, "sync_batch_norm sums over workers, which strategy parameter_server does not support"),
        (
            {},
            {"precision": "fp16"},
            "precision is fp16, whose loss scaling strategy parameter_server does not support; set it to bf16 or fp32",
        ),
    ],
)
def test_what_parameter_servers_cannot_do_is_told_in_a_line(
    values: dict[str, Any], servers: dict[str, Any], train: dict[str, Any], message: str
) -> None:
    (line,) = faults(set_value(values, "train", {"strategy": {"kind": "parameter_server", **servers}, **train}))
    assert line.startswith("conf/x.yaml: train") and message in line


def test_servers_of_another_strategy_are_refused(values: dict[str, Any]) -> None:
    """Else a training with `ddp` would look like one with asynchronous servers."""
    for kind in ("ddp", "exact"):
        (line,) = faults(set_value(values, "train", {"strategy": {"kind": kind, "mode": "async"}}))
        assert "train.strategy.mode: no such setting; " in line


def test_fractions_of_a_split_make_a_whole(values: dict[str, Any]) -> None:
    (line,) = faults(set_value(values, "dataset.split", {"train": 0.5, "validation": 0.1, "test": 0.1}))
    assert line.startswith("conf/x.yaml: dataset.split") and line.endswith("train + validation + test is 0.7; it must be 1")


def test_a_table_without_a_path_is_refused(values: dict[str, Any]) -> None:
    assert faults(set_value(values, "source.tables.people.path", [])) == ["conf/x.yaml: source.tables.people.path: must not be empty"]


def test_one_key_column_needs_no_list_and_a_date_no_quotes(values: dict[str, Any]) -> None:
    split = yaml.safe_load("{time: day, validation: 2017-01-01, test: 300}")
    dataset = parse(set_value(set_value(values, "dataset.split", split), "dataset.key", "id"), "x").dataset
    assert dataset.key == ("id",) and (dataset.split.validation, dataset.split.test) == ("2017-01-01", "300")


def test_a_key_given_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("train:\n  lr: 1\n  lr: 2\n")
    with pytest.raises(ConfigError, match=r"x\.yaml: not YAML: lr: duplicate key; remove one .line 2, column 3"):
        load(tmp_path / "x.yaml")


def test_every_fault_has_its_line(values: dict[str, Any]) -> None:
    values_with_faults = set_value(set_value(values, "train.lr", 0), "train.seeed", 1)
    assert faults(values_with_faults) == [
        "conf/x.yaml: train.lr: must be greater than 0 (got 0)",
        "conf/x.yaml: train.seeed: no such setting; did you mean seed? (got 1)",
    ]


def test_a_flag_s_fault_names_the_flag(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--train\.lr: must be greater than 0 \(got -1\)$"):
        from_command_line("jobs/train.py", [str(file), "--train.lr", "-1"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the first argument must be the YAML file of a pipeline (got nothing)"),
        (["--train.lr", "1"], "the first argument must be the YAML file of a pipeline (got --train.lr)"),
        (["nowhere.yaml"], "nowhere.yaml: No such file or directory; name the YAML file of a pipeline"),
        (["{file}", "workers"], "workers: not a flag; write --section.setting VALUE"),
        (["{file}", "--train.workers"], "--train.workers: the value is missing; write it after the flag"),
        (["{file}", "--train.workers", "[1"], "--train.workers: not a YAML value: expected"),
        (["{file}", "--source.tables.people.path", "[1"], "; quote the text (got [1)"),
        (["{file}", "--name.first", "x"], "--name.first: name is a value, not a section; write --name VALUE (got adult)"),
    ],
)
def test_a_command_line_that_cannot_be_read(file: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_command_line("jobs/train.py", [argument.format(file=file) for argument in arguments])
    assert message in str(caught.value)


def test_what_is_offered_for_a_flag_that_cannot_be_read_works(file: Path) -> None:
    assert from_command_line("jobs/train.py", [str(file), "--name", "x"]).name == "x"
    config = from_command_line("jobs/train.py", [str(file), "--source.tables.people.path", "'[1'"])
    assert config.source.tables["people"].path.endswith("[1")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "not YAML: "), ("- a", "a pipeline is a mapping of sections, such as name, source and dataset (got a list)")],
)
def test_a_file_that_is_no_pipeline(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"x\.yaml: ") as caught:
        load(tmp_path / "x.yaml")
    assert message in str(caught.value)


@pytest.fixture
def my_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = """
        from typing import ClassVar

        from pipelines.config import TaskSettings


        class Churn(TaskSettings):
            implementation: ClassVar[str] = "churn_model:Churn"
            horizon_days: int = 30
    """
    (tmp_path / "churn_settings.py").write_text(dedent(module))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "churn_settings", raising=False)


@pytest.mark.usefixtures("my_tasks")
def test_a_task_of_one_s_own_brings_its_settings(values: dict[str, Any]) -> None:
    config = parse(set_value(values, "task", {"kind": "churn_settings:Churn", "horizon_days": 7}), "conf/x.yaml")
    assert isinstance(config.task, TaskSettings) and config.model_dump()["task"]["horizon_days"] == 7
    assert faults(set_value(values, "task", {"kind": "churn_settings:Churn", "horizon": 7})) == [
        "conf/x.yaml: task.horizon: no such setting; did you mean horizon_days? (got 7)"
    ]


@pytest.mark.parametrize("kind", ["nope", "no.such:Thing", ".here:Thing", ":Thing", "churn_settings:Missing", "pathlib:Path"])
@pytest.mark.usefixtures("my_tasks")
def test_a_task_that_does_not_exist(values: dict[str, Any], kind: str) -> None:
    (line,) = faults(set_value(values, "task.kind", kind))
    assert line.startswith("conf/x.yaml: task.kind: ") and line.count("task.kind") == 1 and repr(kind) in line


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"width": 10, "heads": 3}, "task: width is 10; with 3 heads it must be a multiple of 3, such as 9"),
        ({"class_weights": "balanced"}, "task.class_weights: must be none (got balanced)"),
    ],
)
def test_next_item_s_settings_are_checked_before_anything_is_made(values: dict[str, Any], task: dict[str, Any], message: str) -> None:
    assert faults(set_value(values, "task", {"kind": "next_item", **task})) == [f"conf/x.yaml: {message}"]


@pytest.mark.parametrize("name", ["t; x", "a.b", "../evil", "", " t", "-t", "a`b", "a\nb", "a'b", "x" * 101])
def test_a_table_s_name_fits_into_sql_and_paths(values: dict[str, Any], name: str) -> None:
    (line,) = faults(set_value(values, "source.tables", {name: values["source"]["tables"]["people"]}))
    assert "a name has 1 to 100 letters, digits, spaces, _ and -, and no space or - first; choose another (got " in line
    assert len(line) < 300


@pytest.mark.parametrize("name", ["", "a.b", "a`b", "../a", "a\nb", "x" * 101])
def test_a_tensor_column_s_name_fits_everywhere(values: dict[str, Any], name: str) -> None:
    (line,) = faults(set_value(values, "dataset.features", {name: "standardize", "sepal length (cm)": "standardize"}))
    assert "a tensor column's name has 1 to 100 characters, none of them . ` or /" in line


def test_tables_that_sql_does_not_tell_apart_are_refused(values: dict[str, Any]) -> None:
    people = values["source"]["tables"]["people"]
    (line,) = faults(set_value(values, "source.tables", {"people": people, "People": people}))
    assert line.startswith("conf/x.yaml: source.tables: people and People are the same name in SQL")


def identities(values: dict[str, Any]) -> tuple[dict[str, Any], str]:
    config: Config = parse(values, "x")
    return config.data_identity, config.model_identity


@pytest.mark.parametrize(
    ("dotted", "value"), [("train.workers", 4), ("train.workers", [1, 4]), ("train.storage", "s3://b/runs"), ("train.cache_bytes", 0)]
)
def test_p3_where_it_runs_does_not_decide_the_model(values: dict[str, Any], dotted: str, value: Any) -> None:
    assert identities(set_value(values, dotted, value)) == identities(values)


@pytest.mark.parametrize(("dotted", "value"), [("train.lr", 1e-2), ("train.seed", 1), ("train.shards", 4), ("task.hidden", [])])
def test_what_decides_the_model_changes_its_identity(values: dict[str, Any], dotted: str, value: Any) -> None:
    data, model = identities(set_value(values, dotted, value))
    assert data == identities(values)[0] and model != identities(values)[1]


def test_p6_paths_are_no_part_of_the_data_s_identity_and_encoders_are(values: dict[str, Any]) -> None:
    data, model = identities(values)
    moved = set_value(set_value(values, "dataset.path", "elsewhere"), "source.tables.people.path", "p.csv")
    assert identities(moved) == (data, model)
    assert identities(set_value(values, "dataset.features.age", "minmax")) != (data, model)
    assert identities(set_value(values, "source.tables.people.options", {"nullValue": ""}))[0] != data


def test_a_slice_that_is_no_column_is_told_with_the_columns_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"adult.yaml: task\.slices: sexx is no column of the dataset, .*; did you mean sex\?"):
        load("conf/adult.yaml", {"task.slices": ["sexx"]})
    plain, sliced = load("conf/adult.yaml"), load("conf/adult.yaml", {"task.slices": ["sex"]})
    assert plain.model_identity == sliced.model_identity, "slices change no model"


def test_a_flag_may_name_a_setting_of_a_section_that_the_file_gives_by_its_kind() -> None:
    assert load("conf/adult.yaml", {"task.number_embedding.width": 4}).task.number_embedding.kind == "periodic"  # type: ignore[attr-defined]
    compression = {"train.strategy.compression": "topk", "train.strategy.compression.share": 0.1}
    train = load("conf/adult.yaml", {**compression, "train.balance": "auto", "train.balance.kind": "equal"}).train
    assert train.strategy.compression.share == 0.1 and train.balance.kind == "equal"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"--name\.kind: name is a value, not a section"):
        load("conf/adult.yaml", {"name.kind": "x"})


def test_every_section_with_a_short_form_may_have_flags() -> None:
    """A path ends with the name of the field, in whichever section it is; `parse` reads the kind of a task."""
    classes = [Train, Tune, *TASKS.by_name.values(), *STRATEGIES.by_name.values()]
    short = {
        name
        for settings in classes
        for name, field in settings.model_fields.items()
        if any(getattr(part, "func", None) is expand_kind for part in field.metadata)
    }
    assert short | {"task"} == {path.rpartition(".")[2] for path in SHORT_SECTIONS}
