"""What the documents say is so: their commands exist, their examples run, their links lead somewhere."""

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest
import torch
import yaml
from documents import DOCUMENTS, IN_CLUSTER_TESTS, NOT_TYPED, ROOT, shell_blocks, write_files

from pipelines.commands import COMMANDS
from pipelines.config import Config, load, parse
from pipelines.data.features import Encoders
from pipelines.data.features.encoding import implementation
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Data, Task
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

README = (ROOT / "README.md").read_text()
EXTENDING = (ROOT / "docs/how-to/extending.md").read_text()
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def blocks(text: str, language: str) -> list[str]:
    """The fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_every_shell_block_is_typed_by_a_test_but_for_what_cannot_be() -> None:
    all_of_them = shell_blocks()
    assert len(all_of_them) == sum(len(blocks(file.read_text(), "sh")) for file in DOCUMENTS)
    assert {block.place for block in all_of_them} >= IN_CLUSTER_TESTS.keys(), "a page of before"
    for place, tests in IN_CLUSTER_TESTS.items():
        assert f'below("{place}")' in (ROOT / tests).read_text()
    lines = {line.partition("#")[0].strip() for block in all_of_them for line in block.text.splitlines()}
    assert lines >= NOT_TYPED.keys(), "nobody would type it"


def commands(text: str) -> list[list[str]]:
    """Every command of the shell blocks, and every `make …`, `python jobs/…` in the text, as words without comments or here-documents."""
    typed = [
        re.sub(r"<<'EOF'\n.*?^EOF$", "<< EOF", block.replace("\\\n", " "), flags=re.MULTILINE | re.DOTALL) for block in blocks(text, "sh")
    ]
    lines = [line for block in typed for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in [*lines, *re.findall(r"`((?:make |python jobs/)[^`]*)`", text)] if line.strip()]


def check_job(words: list[str]) -> None:
    """`jobs/train.py conf/x.yaml --flags`: the job is there, and the flags fit the config."""
    job, conf, *flags = words
    assert (ROOT / job).exists() or f"```python\n# {job}\n" in EXTENDING
    if conf == "waves.yaml":  # which that page shows, too
        return
    if job == "jobs/verify.py":  # which has two of its own
        assert flags[0] == "--run"
        flags = flags[4 if flags[2:3] == ["--steps"] else 2 :]
    if flags[:1] == ["--from"]:  # of ETL, and no setting
        flags = flags[2:]
    if flags[:1] != ["--help"]:
        load(ROOT / conf, dict(zip((flag.removeprefix("--") for flag in flags[::2]), map(yaml.safe_load, flags[1::2]), strict=True)))


@pytest.mark.parametrize("words", [words for file in DOCUMENTS for words in commands(file.read_text())], ids=" ".join)
def test_a_command_of_the_documents_exists(words: list[str]) -> None:
    """A look ahead: `make test` and `make test-cluster` type the blocks, which takes minutes."""
    while re.match(r"[A-Z_]+=", words[0]):  # variables of the command
        words = words[1:]
    match words:
        case ["make", target, *_]:
            assert target in MAKE_TARGETS
        case ["python", "cluster/submit.py", "--", "python", *job] | ["spark-submit", "--archives" | "--master", _, *job]:
            check_job(job)
        case ["sbatch", script, *job]:
            assert (ROOT / script).exists()
            check_job(["jobs/train.py", *job])
        case ["python", "cluster/submit.py", "--follow", "NAME"] | ["ray", "job", "list"] | ["ray", "job", "stop", "NAME"]:
            assert (ROOT / "cluster/submit.py").exists()
        case [".", ".cluster/cluster.env" | ".venv/bin/activate"] | ["cat" | "curl" | "export" | "kill" | "mkdir" | "mlflow" | "until", *_]:
            pass
        case ["lockstep", command, *_] | [command, "<<", "EOF"]:
            assert command in {*COMMANDS, "python"}
        case ["cluster/pack.sh" | "cluster/night.sh" as script, _, *_]:
            assert os.access(ROOT / script, os.X_OK)
        case ["spark-submit" | "python", *job] | ["ray", "job", "submit", "--working-dir", ".", "--", "python", *job]:
            check_job(job)
        case _:
            pytest.fail(f"{' '.join(words)}: no test knows this command; add a case that checks it")


def check_yaml(text: str) -> None:
    """A whole YAML block is a config, a part of one is YAML."""
    values = yaml.safe_load(text)
    if "source" in values:
        parse(values, "a document")


PARSERS = {"yaml": check_yaml, "json": json.loads, "python": lambda text: compile(text, "a document", "exec")}


@pytest.mark.usefixtures("waves")
@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_is_no_command_is_what_it_is_said_to_be(file: Path) -> None:
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```", file.read_text(), re.MULTILINE | re.DOTALL):
        if language != "sh":
            PARSERS[language](text)


def test_the_readme_s_test_command_is_what_continuous_integration_runs() -> None:
    assert ["make", "test"] in commands(README)
    assert "make test" in (ROOT / ".ci/run").read_text().splitlines()


def readme_config() -> Config:
    (text,) = blocks(README, "yaml")
    return parse(yaml.safe_load(text), "README.md")


def test_the_readme_s_pipeline_is_a_config() -> None:
    assert readme_config().dataset.key == ("id",)


@pytest.fixture
def waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """The config of the page about parts of one's own, whose modules are importable for one test."""
    write_files(EXTENDING, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield load(tmp_path / "waves.yaml")
    for name in [name for name in sys.modules if name.split(".")[0] == "waves"]:
        del sys.modules[name]


def waves_task(waves: Config) -> Task:
    columns = (
        TensorColumn(name="level", dtype="float32"),
        TensorColumn(name="slope", dtype="float32"),
        TensorColumn(name="rising", dtype="uint8", role="target", cardinality=2),
    )
    module, name = waves.task.implementation.split(":")
    task: Task = getattr(importlib.import_module(module), name)(waves.task, Data(columns))
    return task


def four_rows() -> dict[str, torch.Tensor]:
    return {"level": torch.ones(4), "slope": torch.ones(4), "rising": torch.tensor([0, 1, 1, 0], dtype=torch.uint8)}


def test_a_task_of_one_s_own_trains(waves: Config) -> None:
    task = waves_task(waves)
    model = task.model()
    loss, weight = task.loss(model, four_rows())
    loss.backward()
    assert weight == 4 and torch.isfinite(loss)
    assert next(model.parameters()).shape == (16, 2)


def test_a_strategy_of_one_s_own_takes_the_steps(waves: Config) -> None:
    strategy = create_strategy(waves.train, waves_task(waves), WorkerContext())
    before = next(strategy.model.parameters()).detach().clone()
    assert strategy.step(four_rows(), 0, 1.0, Flags()).rows == 4
    assert (next(strategy.model.parameters()) - before).abs().max().item() == pytest.approx(0.01, rel=0.05), "Adam goes by the rate"


def test_an_encoder_of_one_s_own_encodes_and_refuses_and_is_restored_from_a_manifest(waves: Config) -> None:
    rows = pa.table({"level": pa.array([-2.0, 0.5, None, 7]), "slope": [0.0, 1, 2, 3], "rising": [True, False, True, False]})
    settings = waves.dataset.features["level"]
    column = implementation(settings)(settings, {}).column("level", "feature")
    fitted = FittedEncoder(feature=settings.model_dump(mode="json"), inputs=("level",), state={}, column=column)
    encoded, reasons = Encoders({"level": fitted}).encode(rows)
    assert encoded["level"].to_pylist() == pytest.approx([-0.9, 0.5, 0.9])
    assert reasons.to_pylist() == [None, None, "level: waves.settings:Clip cannot encode NULL", None]


def test_parts_of_one_s_own_are_in_a_version_s_identity_and_pickle(waves: Config) -> None:
    assert waves.data_identity["source"]["tables"]["waves"] == {"format": "waves.settings:Simulation", "count": 2000, "release": 1}
    assert waves.data_identity["dataset"]["features"]["level"]["high"] == 0.9
    assert cloudpickle.loads(cloudpickle.dumps(waves)) == waves


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("source.tables.waves.format", "waves.settings:Gone", "'waves.settings:Gone' cannot be imported: module 'waves.settings' has no"),
        (
            "source.tables.waves.format",
            "waves.settings:Clip",
            "is not a settings class for format; it must name a class derived from pipelines.config.Table",
        ),
        ("source.tables.waves.count", "many", "must be a whole number (got many)"),
        (
            "dataset.features.level.encoder",
            "nowhere.settings:Clip",
            "'nowhere.settings:Clip' cannot be imported: No module named 'nowhere'; install it, or start in the folder that contains it",
        ),
        ("source.tables.waves.format", "waves.broken:Gone", "'waves.broken:Gone' cannot be imported: SyntaxError: "),
        (
            "task.kind",
            "waves.failing:Net",
            "'waves.failing:Net' cannot be imported: ZeroDivisionError: division by zero; correct the module",
        ),
        ("dataset.features.level.encoder", "waves.settings:Gentle", "is not a settings class for encoder"),
        ("dataset.features.level.encoder", "pipelines.config:EncoderSettings", "has no implementation; set `implementation"),
        ("dataset.features.level.low", None, "must be a number"),
        ("dataset.features.slope", "standarize", "no encoder 'standarize'; did you mean standardize?"),
        (
            "train.strategy",
            "waves",
            "no kind 'waves'; choose one of ddp, exact, ensemble_selection, boosting, federated, local_sgd, parameter_server, sharded",
        ),
    ],
)
def test_what_is_wrong_with_parts_of_one_s_own_is_a_line_with_its_place(
    waves: Config, tmp_path: Path, key: str, value: object, message: str
) -> None:
    (tmp_path / "waves/broken.py").write_text("class\n")
    (tmp_path / "waves/failing.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "waves.yaml", {key: value})
    assert f"{key}: " in str(error.value) and message in str(error.value) and len(str(error.value).splitlines()) == 1


def links(file: Path) -> list[Path]:
    """Files that a document leads to."""
    return [(file.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)", file.read_text()) if "://" not in target]


def test_every_document_is_found_from_the_readme() -> None:
    documents, unread = set(), [ROOT / "README.md"]
    while unread:
        documents.add(file := unread.pop())
        unread += [target for target in links(file) if target.suffix == ".md" and target not in documents]
    assert set(DOCUMENTS) - documents == set()


def test_a_promise_that_tests_name_is_on_the_page_with_the_tests_that_name_it() -> None:
    page = ROOT / "docs/explanation/promises.md"
    sections = dict(re.findall(r"^## P(\d): .*?$(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL))
    tests = {file: file.read_text() for file in ROOT.glob("tests/**/test_*.py")}
    names = [name for text in tests.values() for name in re.findall(r"^def test((?:_p\d)+)_", text, re.MULTILINE)]
    named = {number for name in names for number in re.findall(r"\d", name)}
    assert sections.keys() == named == set("123456789")
    for number, section in sections.items():
        listed = {(page.parent / target).resolve() for target in re.findall(r"\]\((\.\./\.\./tests/[^)]+)\)", section)}
        assert listed, f"P{number} has no tests"
        assert [str(file) for file in listed if f"_p{number}_" not in tests.get(file, "")] == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_link_leads_to_a_file(file: Path) -> None:
    assert [str(target) for target in links(file) if not target.exists()] == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_link_into_a_page_leads_to_a_heading(file: Path) -> None:
    for name, anchor in re.findall(r"\]\(([^):#]*\.md)?#([^)]+)\)", file.read_text()):
        headings = re.findall(r"^#+ (.+)$", (file.parent / (name or file.name)).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_pip_is_to_install_is_an_extra_of_this_package() -> None:
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    files = [*DOCUMENTS, *ROOT.glob("pipelines/**/*.py"), ROOT / "Makefile"]
    named = {package_and_extra for file in files for package_and_extra in re.findall(r"'(\.|lockstep[\w-]*)\[(\w+)\]'", file.read_text())}
    assert {package for package, _ in named} == {".", settings["metadata"]["name"]}
    assert {extra for _, extra in named} <= settings["options.extras_require"].keys()


def test_no_file_holds_a_path_of_one_machine() -> None:
    """Users' folders, and the folder in which this very checkout and what belongs to it lie."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout: which files are the project's is unknown")
    checkout = ROOT if ROOT.parent == Path(tempfile.gettempdir()) else ROOT.parent
    forbidden = re.compile(rf"(?<![\w.~$}}-])(?:/(?:home|root|Users)/\w|{re.escape(str(checkout))}/)")
    files = [ROOT / name for name in listed.stdout.splitlines()]
    texts = {file: file.read_text(errors="replace") for file in files if file.exists() and file.suffix not in (".png", ".parquet")}
    assert [f"{file.relative_to(ROOT)}: {match[0]}" for file, text in texts.items() if (match := forbidden.search(text))] == []


def docstrings(path: Path) -> Iterator[str]:
    """The texts that document a module, its classes, functions and values."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def test_docstrings_name_modules_that_exist() -> None:
    """A list in a package's docstring names its modules. `room.name` is a module, what a module of the room defines, or a setting."""
    code = ROOT / "pipelines"
    rooms = defaultdict(list)
    for path in code.rglob("*/__init__.py"):
        rooms[path.parent.name].append(path.parent)
    defined = {name: "".join(path.read_text() for folder in folders for path in folder.rglob("*.py")) for name, folders in rooms.items()}
    missing = []
    for path in sorted(code.rglob("*.py")):
        for text in docstrings(path):
            names = re.findall(r"^\d+\. +`(\w+)`", text, re.MULTILINE) if path.name == "__init__.py" else []
            missing += [f"{path}: {name}" for name in names if not is_module(path.parent / name)]
            for room, name in re.findall(r"`([a-z_]+)\.(?!json|html|onnx)(\w+)`", text):
                definition = re.compile(rf"(?:def|class) {name}\b|^ *{name}: |^{name} = ", re.MULTILINE)
                is_defined = room not in rooms or definition.search(defined[room] + defined["config"])
                missing += [] if is_defined or any(is_module(folder / name) for folder in rooms[room]) else [f"{path}: {room}.{name}"]
    assert missing == []


def is_module(place: Path) -> bool:
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()
