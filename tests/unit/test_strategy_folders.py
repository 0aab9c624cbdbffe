"""A strategy is one folder: nothing outside names it, it works as a package of its own, and all else works without it."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shape import imported_names

from pipelines.config.train.strategy import STRATEGIES

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(kind for kind, settings in STRATEGIES.by_name.items() if settings.__module__.startswith("pipelines.strategies."))
MEANING_SOMETHING_ELSE = {
    ("config/train/strategy.py", "ddp"),
    ("launch/spark_baseline.py", "boosting"),
    ("serving/export/export_folder.py", "exact"),
    ("serving/export/predict_program.py", "exact"),
}
"""The default, keys of a file of examples, and a model of Spark ML."""
TRAINS = """
import sys
from pathlib import Path
from pipelines.runtime.weights import model_digest
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.run_context import Hooks
from pipelines.train.loop import Loop
from pipelines.train.workers import WorkerContext
from pipelines.train.strategy import create_strategy
from trainings import open_dataset, training

def trained(kind, **settings):
    config = training(Path(sys.argv[1]), rows=256, epochs=2, uri="sqlite:///unused", strategy={"kind": kind, **settings})
    version, context = open_dataset(config), WorkerContext()
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(f"{sys.argv[1]}/{kind}"), context, 2)
    Loop(config, version, task, strategy, checkpoints, Hooks()).run()
    return model_digest(strategy.model.state_dict())
"""


def answer(code: str, folder: Path, *places: Path) -> list[str]:
    """The lines that the code prints, where modules come from `places`, and from the tests."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*places, ROOT / "tests"]))}
    command = [sys.executable, "-c", code, str(folder)]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def copy_without(kind: str, folder: Path) -> Path:
    """A copy of the source tree in which a strategy's folder is missing."""
    for name in ("pipelines", "conf"):
        shutil.copytree(ROOT / name, folder / name)  # with what Python has compiled
    shutil.rmtree(folder / "pipelines/strategies" / kind)
    return folder


def constants(file: Path) -> set[str]:
    """Texts in a module that are no docstrings."""
    tree = ast.parse(file.read_text())
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docs = {statement.value for body in bodies for statement in body if isinstance(statement, ast.Expr)}
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs}


def test_no_module_outside_its_folder_names_a_strategy() -> None:
    rooms = {kind: settings.__module__.removesuffix(".settings").replace(".", "/") for kind, settings in STRATEGIES.by_name.items()}
    names = set()
    for file in sorted(ROOT.glob("pipelines/**/*.py")):
        name = str(file.relative_to(ROOT))
        if any(name.startswith(f"{room}/") for room in rooms.values()):
            continue
        words, modules = constants(file), imported_names(file)
        names |= {(name.removeprefix("pipelines/"), kind) for kind in STRATEGIES.by_name if kind in words}
        names |= {(name, kind) for kind in FOLDERS if any(kind in text for text in words)}
        names |= {(name, kind) for kind in FOLDERS if any(module.startswith(f"pipelines.strategies.{kind}.") for module in modules)}
    assert names == MEANING_SOMETHING_ELSE


def test_a_strategy_in_a_package_of_its_own_trains_as_the_built_in_one(tmp_path: Path) -> None:
    """Installed, by its entry point, and by its path; in a tree without the built-in one."""
    site = tmp_path / "site"
    shutil.copytree(ROOT / "pipelines/strategies/local_sgd", site / "apart", ignore=shutil.ignore_patterns("__pycache__"))
    for file in site.glob("apart/*.py"):
        file.write_text(file.read_text().replace("pipelines.strategies.local_sgd", "apart").replace("local_sgd.local_sgd", "local_sgd"))
    dist_info = site / "apart-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: apart\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text("[lockstep.strategies]\ntogether_later = apart.settings:Settings\n")
    settings = "replicas=2, inner_steps=2, outer='nesterov'"
    (digest,) = answer(f"{TRAINS}\nprint(trained('local_sgd', {settings}))", tmp_path, ROOT)
    tree = copy_without("local_sgd", tmp_path / "tree")
    code = f"""{TRAINS}
from pipelines.config import reference
from pipelines.config.train.strategy import STRATEGIES
print("together_later" in STRATEGIES.by_name, "local_sgd" in STRATEGIES.by_name, "### `together_later`" in reference.reference_page())
print(trained("together_later", {settings}), trained("apart.settings:Settings", {settings}))
try:
    trained("together_latre")
except Exception as error:
    print(error)
"""
    listed, digests, refused = answer(code, tmp_path, tree, site)
    assert listed == "True False True"
    assert digests.split() == [digest, digest]
    assert "did you mean together_later?" in refused


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLDERS)
def test_without_its_folder_everything_else_works(tmp_path: Path, kind: str) -> None:
    code = f"""{TRAINS}
import pipelines.api, pipelines.commands, pipelines.launch.worker, pipelines.launch.training_run, pipelines.launch.verify
from pipelines.config import load, reference
from pipelines.config.train.strategy import STRATEGIES
from pipelines.errors import ConfigError
from pipelines.launch.checks import check_training
print(pipelines.api.__file__)
print(*STRATEGIES.by_name)
print("### `{kind}`" in reference.reference_page())
read = []
for file in sorted(Path(sys.argv[1]).glob("conf/*.yaml")):
    try:
        load(file)
    except ConfigError as error:
        read.append(str(error))
print(*read, sep="|")
config = training(Path(sys.argv[1]), rows=256, uri="sqlite:///unused")
check_training(config, open_dataset(config))
print(len({{trained("ddp"), trained("exact")}}))
"""
    tree = copy_without(kind, tmp_path)
    place, kinds, is_documented, refused, models = answer(code, tmp_path, tree)
    assert place.startswith(str(tmp_path))
    assert kinds.split() == [name for name in STRATEGIES.by_name if name != kind]
    assert is_documented == "False"
    assert all(f"no kind '{kind}'; choose one of" in fault for fault in filter(None, refused.split("|"))), refused
    assert int(models) in (1, 2)


def test_reading_a_config_with_any_strategy_imports_no_torch(tmp_path: Path) -> None:
    code = """
import sys
from pipelines.config import parse
from pipelines.config.train.strategy import STRATEGIES
for kind in STRATEGIES.by_name:
    STRATEGIES.class_for(kind)
print(*sorted({"torch", "ray", "numpy", "pyarrow", "mlflow"} & set(sys.modules)))
"""
    assert answer(code, tmp_path, ROOT) == [""]
