"""Every YAML that is shipped is a pipeline, as it stands and with flags: a stale key in one has nothing else to find it."""

import re
from pathlib import Path
from typing import Any

import bracex
import pytest
import yaml
from raw import raw

from pipelines.applications.language.task import Language
from pipelines.config import Config, TaskSettings, load
from pipelines.config.dataset.dataset import ByColumn
from pipelines.config.features.base import is_pattern
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.strategies.sharded.parameter_shards import skeleton
from pipelines.strategies.sharded.sharded import Sharded
from pipelines.tasks.base import Data

ROOT = Path(__file__).parents[2]


def is_pipeline(path: Path) -> bool:
    """A pipeline's YAML, where Kubernetes' and others' may lie beside it."""
    return path.parent.name == "conf" or "source:" in path.read_text().splitlines()


FILES = sorted(path for folder in ("conf", "cluster") for path in (ROOT / folder).rglob("*.yaml") if is_pipeline(path))
NOT_MEASURED = "Not measured: "
UNAVAILABLE = {"resnet50", "cifar10"}
"""Their data have to be got by the reader, and are not among those of the tests."""
NAMES = [str(path.relative_to(ROOT)) for path in FILES]


@pytest.fixture(params=FILES, ids=NAMES)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def config(path: Path) -> Config:
    return load(path)


def text_of_query(config: Config) -> str:
    """The query and the columns of its tables: every column that can be meant is in there."""
    windows = config.source.windows.generated if config.source.windows else ()
    return " ".join([config.source.sql, *(table.ddl for table in config.source.tables.values()), *windows])


def test_the_pipelines_that_the_readme_names_are_here() -> None:
    assert {"conf/adult.yaml", "conf/california.yaml", "conf/digits.yaml", "conf/linear.yaml", "conf/mnist.yaml"} <= set(NAMES)


def test_every_other_yaml_is_yaml() -> None:
    for folder in ("conf", "cluster"):
        for path in (ROOT / folder).rglob("*.y*ml"):
            assert list(yaml.safe_load_all(path.read_text())), path


def test_it_loads_and_writes_below_data(path: Path, config: Config) -> None:
    assert config.name == path.stem
    assert config.dataset.path == f"data/{config.name}"
    assert isinstance(config.task, TaskSettings)


def test_flags_override_it(path: Path) -> None:
    config = load(path, {"train.workers": 4, "train.epochs": 1, "dataset.path": "s3://bucket/here", "tracking.uri": "http://mlflow:5000"})
    assert (config.train.workers, config.train.epochs) == (4, 1)
    assert (config.dataset.path, config.tracking.uri) == ("s3://bucket/here", "http://mlflow:5000")
    with pytest.raises(ConfigError, match=r"train\.wrkers: no such setting; did you mean workers\?"):
        load(path, {"train.wrkers": 4})


def test_its_header_says_what_the_data_are_and_what_was_reached(path: Path, config: Config) -> None:
    header = path.read_text().partition("\nname:")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    if config.train.use_gpu is True or path.stem in UNAVAILABLE:  # whoever runs without GPUs on data that are at hand has a figure
        assert re.search(f"{NOT_MEASURED}.*, since ", header)
    else:
        assert re.search("Reached: (test|validation) ", header) and NOT_MEASURED not in header


def test_the_page_s_figures_are_those_of_the_headers() -> None:
    figure = r"\b(?:accuracy|AUC|Dice|mAP@0\.5|MSE|RMSE|HR@10|NDCG@10|nats per character|bits per byte|relative L2) [\d.,]*\d"
    page = ROOT / "docs/reference/pipelines.md"
    rows = re.findall(r"^\| \[\w+\]\(\.\./\.\./conf/.*", page.read_text(), re.MULTILINE)
    assert len(rows) == len(list(ROOT.glob("conf/*.yaml")))
    for row in rows:
        reached = re.search(f"(Reached|{NOT_MEASURED}).*", (page.parent / re.search(r"\((.*?)\)", row)[1]).read_text())[0]
        if reached.startswith(NOT_MEASURED):
            assert "| not measured" in row and not re.findall(figure, row)
            continue
        assert re.findall(figure, row) == re.findall(figure, reached) != [], row


def test_a_flag_that_its_header_names_is_one(path: Path) -> None:
    header = path.read_text().partition("\nname:")[0]
    for sentence in header.replace("\n#", " ").split(". "):
        together = {}
        for flag, value in re.findall(r"--(\w+(?:\.\w+)+)(?: ([^\s;,]+))?", sentence):
            section, *_, table, setting = flag.split(".") if flag.count(".") > 1 else (*flag.split("."), "")
            if section == "source":
                assert setting in ("path", "format") and table in load(path).source.tables, flag
            else:
                together[flag] = yaml.safe_load(value.rstrip("."))
        load(path, together)


def recipes(path: Path) -> dict[str, dict[str, Any]]:
    """Settings of `train` by what they are for, as the lines of a header list them."""
    return {name: yaml.safe_load(settings) for name, settings in re.findall(r"^#   (.*?): (\{.*\})$", path.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("recipe", recipes(ROOT / "conf/gpt2.yaml"))
def test_a_recipe_of_gpt2_is_for_its_number_of_gpus(recipe: str) -> None:
    path = ROOT / "conf/gpt2.yaml"
    settings = recipes(path)[recipe]
    config = load(path, {f"train.{name}": value for name, value in settings.items()})
    train, feature = config.train, config.dataset.encoders["text"]
    assert train.workers == int(recipe.split(maxsplit=1)[0])
    assert train.global_batch // (train.workers * train.grad_accum_steps) == 16, "windows of a pass"
    column = TensorColumn(name="text", dtype="uint16", shape=(feature.length + 1,), cardinality=feature.vocabulary)
    task = Language(config.task, Data((column,), tokens=(b"a",) * feature.vocabulary))
    Sharded.check(train, task, None)  # type: ignore[arg-type]
    assert sum(parameter.numel() for parameter in skeleton(task).parameters()) == pytest.approx(124e6, rel=0.01)


def test_its_paths_follow_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_RAW", raising=False)
    default = raw_paths(load(path))
    monkeypatch.setenv("LOCKSTEP_RAW", "/elsewhere")
    assert raw_paths(load(path)) == [name.replace("data/raw/", "/elsewhere/") for name in default]
    assert all(name.startswith(("data/raw/", "package://")) for name in default)


def test_its_raw_data_are_called_as_published(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RAW", str(raw()))
    if path.stem in UNAVAILABLE:
        pytest.skip(f"the data of {path.stem} are not in LOCKSTEP_RAW")
    names = [part for name in raw_paths(load(path)) for part in bracex.expand(name)]
    assert [name for name in names if "://" not in name and not Path(name).exists()] == []


def test_encoders_and_expectations_name_columns_of_the_query(config: Config) -> None:
    text = text_of_query(config)
    for name, encoder in config.dataset.encoders.items():
        for column in encoder.inputs(name) if not is_pattern(name) else ():
            assert re.search(rf"\b{column}\b", text), f"{name} reads {column}"
    for reason, condition in config.source.expect.items():
        columns = set(re.findall(r"\b[a-z]\w*\b", re.sub(r"\w+\(|(\w+) -> .*", "", condition)))
        assert columns, reason
        assert all(re.search(rf"\b{column}\b", text) for column in columns), f"{reason}: {condition}"
    if isinstance(config.dataset.split, ByColumn):
        assert re.search(rf"\bAS {config.dataset.split.by}\b", text)


def test_the_query_reads_each_of_its_tables(config: Config) -> None:
    for name in config.source.tables:
        assert re.search(rf"\b(FROM|JOIN) {name}\b", config.source.sql), name


def raw_paths(config: Config) -> list[str]:
    return [path for table in config.source.tables.values() for path in table.paths]
