"""What the documents say is so: their commands exist, their examples run, their links lead somewhere."""

import importlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from pipelines.config import Config, load, parse
from pipelines.dataset.schema import TensorColumn
from pipelines.tasks.base import Data

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "THREATS.md", *ROOT.glob("docs/**/*.md")])
README = (ROOT / "README.md").read_text()
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def blocks(text: str, language: str) -> list[str]:
    """The fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Every command of the shell blocks, and every `make …`, `python jobs/…` in the text, as words without comments."""
    lines = [line for block in blocks(text, "sh") for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in [*lines, *re.findall(r"`((?:make |python jobs/)[^`]*)`", text)] if line.strip()]


def check_job(words: list[str]) -> None:
    """`jobs/train.py conf/x.yaml --flags`: the job is there, and the flags fit the config."""
    job, conf, *flags = words
    assert (ROOT / job).exists()
    if job == "jobs/verify.py":  # which has two of its own
        assert flags[0] == "--run"
        flags = flags[4 if flags[2:3] == ["--steps"] else 2 :]
    if flags != ["--help"]:
        load(ROOT / conf, dict(zip((flag.removeprefix("--") for flag in flags[::2]), map(yaml.safe_load, flags[1::2]), strict=True)))


@pytest.mark.parametrize("words", [words for file in DOCUMENTS for words in commands(file.read_text())], ids=" ".join)
def test_a_command_of_the_documents_exists(words: list[str]) -> None:
    while re.match(r"[A-Z_]+=", words[0]):  # variables of the command
        words = words[1:]
    match words:
        case ["make", target, *_]:
            assert target in MAKE_TARGETS
        case ["python", "cluster/submit.py", "--", "python", *job] | ["spark-submit", "--archives", "environment.tar.gz#environment", *job]:
            check_job(job)
        case ["sbatch", script, *job]:
            assert (ROOT / script).exists()
            check_job(["jobs/train.py", *job])
        case ["python", "cluster/submit.py", "--follow", "NAME"] | ["ray", "job", "list"] | ["ray", "job", "stop", "NAME"]:
            assert (ROOT / "cluster/submit.py").exists()
        case [".", ".cluster/cluster.env"]:
            assert ".cluster" in (ROOT / "cluster/local/control.py").read_text()
        case ["mkdir", "environment", "&&", "tar", "-xf", "environment.tar.gz", "-C", "environment"]:
            assert "mkdir environment && tar -xf environment.tar.gz -C environment" in (ROOT / "cluster/pack.sh").read_text()
        case ["cluster/pack.sh", _]:
            assert os.access(ROOT / "cluster/pack.sh", os.X_OK)
        case ["spark-submit" | "python", *job] | ["ray", "job", "submit", "--working-dir", ".", "--", "python", *job]:
            check_job(job)
        case _:
            pytest.fail(f"{' '.join(words)}: no test knows this command; add a case that checks it")


def test_the_readme_s_test_command_is_what_continuous_integration_runs() -> None:
    assert ["make", "test"] in commands(README)
    assert "make test" in (ROOT / ".ci/run").read_text().splitlines()


def readme_config() -> Config:
    (text,) = blocks(README, "yaml")
    return parse(yaml.safe_load(text), "README.md")


def test_the_readme_s_pipeline_is_a_config() -> None:
    assert readme_config().dataset.key == ("id",)


@pytest.fixture
def churn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The README's modules, each under the name in its first line, importable for one test."""
    for block in blocks(README, "python"):
        file = tmp_path / block.splitlines()[0].removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "churn"]:
        del sys.modules[name]


@pytest.mark.usefixtures("churn")
def test_the_readme_s_own_task_trains() -> None:
    values = readme_config().model_dump(mode="json", by_alias=True)
    task = re.search(r"`task: (\{kind: churn.*\})`", README)[1]
    settings = parse({**values, "task": yaml.safe_load(task)}, "README.md").task
    module, name = settings.implementation.split(":")
    columns = (
        TensorColumn(name="age", dtype="float32"),
        TensorColumn(name="calls", dtype="float32"),
        TensorColumn(name="left", dtype="uint8", role="target", cardinality=2),
    )
    learned = getattr(importlib.import_module(module), name)(settings, Data(columns))
    batch = {"age": torch.ones(4), "calls": torch.ones(4), "left": torch.tensor([0, 1, 1, 0], dtype=torch.uint8)}
    model = learned.model()
    loss, weight = learned.loss(model, batch)
    loss.backward()
    assert weight == 4 and torch.isfinite(loss)
    assert next(model.parameters()).shape == (settings.width, 2) and settings.width == 128


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_link_leads_to_a_file(file: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)", file.read_text()) if "://" not in target]
    assert [target for target in targets if not (file.parent / target).exists()] == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    """Users' folders, and the folder in which this very checkout and what belongs to it lie."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout: which files are the project's is unknown")
    here = ROOT if ROOT.parent == Path(tempfile.gettempdir()) else ROOT.parent
    forbidden = re.compile(rf"(?<![\w.~$}}-])(?:/(?:home|root|Users)/\w|{re.escape(str(here))}/)")
    files = [ROOT / name for name in listed.stdout.splitlines()]
    texts = {file: file.read_text(errors="replace") for file in files if file.exists() and file.suffix not in (".png", ".parquet")}
    assert [f"{file.relative_to(ROOT)}: {found[0]}" for file, text in texts.items() if (found := forbidden.search(text))] == []
