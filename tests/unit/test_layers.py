"""The layer rule: a package imports only from packages below it, and only the third-party libraries that are listed for it."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from shape import imported_names

ROOT = Path(__file__).parents[2]

# Lowest first. Rooms on one line do not import each other, so `etl` and `data.loader` share only `data.versions` and what is below it.
LAYERS = (
    ("runtime",),
    ("errors", "ranking"),
    ("planning",),
    ("runtime.compat", "config"),
    ("data.versions",),
    ("data.features", "data.loader", "data.rowwise", "data.sources", "tasks", "tracking"),
    ("report", "tasks.bind", "init"),
    ("diff",),
    ("spark",),
    ("etl", "train", "serving.model"),
    ("strategies", "monitor", "costs", "serving.batch", "serving.export", "serving.registry"),
    ("applications", "exports", "formats"),
    ("launch",),
    ("serving.http", "doctor", "notebook", "demo", "rehearsal", "lifecycle", "planner", "tuning"),
    ("api",),
    ("command_line",),
    ("commands", "extending"),
    ("jobs",),
)
STRANGERS = {
    *(
        (room, slices)
        for room in ("launch", "serving.http", "doctor", "notebook", "demo", "rehearsal", "lifecycle", "tuning", "api", "commands", "jobs")
        for slices in ("applications", "exports", "formats")
    ),
    ("etl", "data.loader"),
    ("spark", "tracking"),
    *((room, other) for room in ("train", "strategies", "monitor") for other in ("etl", "spark", "serving.model", "tracking", "report")),
    ("launch", "etl"),
}
FOUND_BY_KINDS = tuple(ROOT / "pipelines" / name for name in ("applications", "exports", "formats", "config/features", "config/tasks"))
"""Packages whose files or folders are found by `config.kinds` and `config.slices`."""
THIRD_PARTIES = {
    "runtime": {"jinja2", "numpy", "psutil", "safetensors", "torch", "tqdm"},
    "errors": set(),
    "ranking": {"numpy"},
    "planning": {"numpy", "pydantic", "yaml"},
    "runtime.compat": {"fastavro", "lightning_utilities", "mlflow", "py4j", "pyspark", "ray", "torch", "torchmetrics"},
    "config": {"pydantic", "yaml"},
    "data.versions": {"numpy", "pyarrow", "pydantic", "xxhash"},
    "data.features": {"PIL", "nibabel", "numpy", "pyarrow", "pydantic", "tokenizers"},
    "data.loader": {"numpy", "pyarrow", "threadpoolctl", "torch"},
    "data.rowwise": {"duckdb", "pyarrow", "sqlglot"},
    "data.sources": {"bracex", "numpy", "py4j", "pyarrow", "pyspark", "threadpoolctl", "wcmatch", "yaml"},
    "tasks": {"faster_coco_eval", "lightgbm", "numpy", "torch", "torchmetrics", "transformers", "triton"},
    "tasks.bind": {"numpy"},
    "tracking": {"mlflow", "numpy", "pandas", "pyarrow"},
    "report": {"PIL", "jinja2", "markupsafe", "matplotlib", "numpy", "prometheus_client", "pyarrow", "scipy"},
    "init": {"PIL", "lightgbm", "numpy", "pyarrow", "scipy", "sklearn", "threadpoolctl", "yaml"},
    "diff": {"numpy", "pyarrow", "scipy"},
    "spark": {"psutil", "py4j", "pyspark"},
    "etl": {"numpy", "pandas", "psutil", "py4j", "pyarrow", "pyspark", "xxhash"},
    "costs": {"torch"},
    "planner": {"numpy", "psutil", "ray", "scipy", "torch", "yaml"},
    "train": {"pyarrow", "pydantic", "torch", "torchmetrics", "xxhash"},
    "serving.model": {"mlflow", "numpy", "pandas", "pyarrow", "torch"},
    "strategies": {"lightgbm", "numpy", "opacus", "pyarrow", "pydantic", "ray", "torch"},
    "monitor": {"ray", "torch"},
    "serving.batch": {"pyarrow", "pydantic", "pyspark"},
    "serving.export": {"PIL", "numpy", "onnx", "onnxruntime", "pyarrow", "torch", "torchmetrics"},
    "exports": {"executorch", "hls4ml", "jax", "numpy", "pydantic", "torch", "torchax"},
    "serving.registry": {"mlflow", "numpy", "pyarrow", "pyspark"},
    "applications": {
        *("PIL", "faster_coco_eval", "lightgbm", "matplotlib", "nibabel", "numpy", "pyarrow", "pydantic", "pyspark", "tokenizers"),
        *("threadpoolctl", "torch", "torchmetrics", "transformers"),
    },
    "formats": {
        *("adbc_driver_manager", "adbc_driver_postgresql", "deltalake", "duckdb", "fastavro", "h5py", "numpy", "openpyxl", "py4j"),
        *("pyarrow", "pydantic", "pyiceberg", "pyroaring", "pyspark", "sqlalchemy"),
    },
    "launch": {"numpy", "psutil", "pyarrow", "pyspark", "ray", "safetensors", "torch"},
    "serving.http": {"jinja2", "numpy", "pandas", "prometheus_client", "pyarrow", "ray", "starlette", "torch"},
    "doctor": {"packaging"},
    "rehearsal": {"pyarrow"},
    "lifecycle": {"cryptography", "numpy", "packaging", "pyarrow", "pyspark"},
    "tuning": {"numpy", "optuna", "ray", "scipy", "sklearn", "yaml"},
    "notebook": {"mlflow", "numpy", "pandas", "pyarrow", "pyspark"},
    "extending": set(),
    "api": {"mlflow", "numpy", "pyarrow"},
    "command_line": set(),
    "commands": set(),
    "jobs": set(),
}
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
FLOORS = {room.partition(".")[0] for room in LEVEL} - LEVEL.keys()
"""Packages of rooms, which hold nothing else."""
FILES = sorted([*ROOT.glob("pipelines/**/*.py"), *ROOT.glob("jobs/*.py")])


def room_name(module: str) -> str:
    """`data.loader` for `data.loader.order.Order`, `launch` for `launch.run`."""
    top, _, inner = module.partition(".")
    return within if (within := f"{top}.{inner.partition('.')[0]}") in LEVEL else top


def faults(package: str, imports: set[str]) -> list[str]:
    """The imports of a room that the rule forbids."""
    messages = []
    for name in sorted(imports):
        top, _, module = name.partition(".")
        other = room_name(module)
        if top == "pipelines" and module:
            if other not in LEVEL:
                messages.append(f"{name}: no layer has a room {other}")
            elif other != package and (LEVEL[other] >= LEVEL[package] or (package, other) in STRANGERS):
                messages.append(f"{name}: {package} may not import {other}")
        elif top not in sys.stdlib_module_names and top not in {"pipelines", *THIRD_PARTIES[package]}:
            messages.append(f"{name}: {package} may import {', '.join(sorted(THIRD_PARTIES[package])) or 'no third party'}")
    return messages


@pytest.mark.parametrize(
    "file", [file for file in FILES if file != ROOT / "pipelines/__init__.py"], ids=lambda file: str(file.relative_to(ROOT))
)
def test_a_module_imports_only_from_layers_below(file: Path) -> None:
    path = file.relative_to(ROOT).with_suffix("").parts
    room = path[0] if path[0] == "jobs" else room_name(".".join(path[1:]).removesuffix(".__init__"))
    if room in FLOORS and file.name == "__init__.py":
        assert imported_names(file) == set()
        return
    assert room in LEVEL, f"{file.relative_to(ROOT)} has no layer; add its room to LAYERS"
    assert faults(room, imported_names(file)) == []


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("data.versions", "pipelines.data.loader.Loader"),
        ("data.loader", "pipelines.data.features.encoding"),
        ("etl", "pipelines.data.loader.Loader"),
        ("data.sources", "pipelines.etl.query"),
        ("train", "pipelines.etl.run"),
        ("train", "pipelines.tracking.Sender"),
        ("train", "pipelines.launch.worker"),
        ("train", "ray"),
        ("train", "pipelines.strategies.parameter_server.worker_loop"),
        ("train", "pipelines.strategies.federated.rounds"),
        ("train", "pipelines.monitor.worker_heartbeat"),
        ("strategies", "pipelines.launch.reports"),
        ("tasks", "pipelines.data.features.raw"),
        ("launch", "mlflow"),
        ("jobs", "torch.nn"),
        ("config", "pyarrow"),
        ("tasks", "pipelines.nowhere"),
    ],
)
def test_the_rule_forbids(package: str, name: str) -> None:
    assert len(faults(package, {name})) == 1


def test_pipelines_itself_imports_nothing() -> None:
    assert imported_names(ROOT / "pipelines/__init__.py") == set()


@pytest.mark.parametrize("module", ["config", "api", "commands"])
def test_what_is_imported_before_a_config_is_read_loads_no_heavy_library(module: str) -> None:
    heavy = {"pyspark", "torch", "ray", "mlflow", "pyarrow", "pandas"}
    code = f"import sys, pipelines.{module}; print(*sorted({heavy!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_the_loop_loads_no_ray_a_worker_no_mlflow_and_the_driver_no_loop() -> None:
    """None of them loads what torchmetrics would of other packages; SciPy is imported as ever by whoever uses it."""
    heavy = {"ray", "mlflow", "pyspark", "scipy.signal", "matplotlib", "transformers"}
    workers_alone = {"torch.distributed.checkpoint", "torch.distributed.tensor", "pipelines.train.loop"}
    driver = f"""
import sys
import pipelines.launch.training_run, pipelines.train.ddp.ddp, pipelines.train.exact.exact
print(*sorted({workers_alone!r} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", driver], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "\n"
    code = f"""
import sys
import pipelines.train.loop
print(*sorted({heavy!r} & set(sys.modules)))
import pipelines.launch.worker
print(*sorted({heavy!r} & set(sys.modules)))
import scipy.signal
print(callable(scipy.signal.butter))
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n") == ["", "ray", "True", ""]


def test_a_package_that_torchmetrics_imports_finds_all_of_scipy_signal() -> None:
    code = """
from pipelines.runtime.compat.torchmetrics import without_scipy_signal
with without_scipy_signal():
    from scipy.signal import get_window
    import scipy.signal.windows
print(callable(get_window), callable(scipy.signal.windows.hann))
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["True", "True"]


def test_metrics_are_plotted_where_matplotlib_was_loaded_before() -> None:
    code = """
import matplotlib.pyplot
import pipelines.tasks
from torchmetrics import MeanMetric
metric = MeanMetric()
metric.update(1)
print(type(metric.plot()[0]).__name__)
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["Figure"]


def test_a_packed_environment_has_what_executors_import() -> None:
    """`tests/cluster/test_packed.py` sends one along; Spark brings PySpark and Py4J itself, and pack.sh adds
    what an optional format needs where that is named."""
    (packed,) = re.findall(r'^packages=\((.*) "', (ROOT / "cluster/pack.sh").read_text(), re.MULTILINE)
    packages = ("config", "data.versions", "spark", "etl", "data.features", "data.sources")
    modules = set().union(*(THIRD_PARTIES[package] for package in packages)) - {"pyspark", "py4j", "openpyxl", "nibabel"}
    distributions = packages_distributions()
    assert {distributions[module][0].lower() for module in modules} == {name.lower() for name in packed.split()}


def test_a_model_asks_for_what_its_code_imports() -> None:
    from pipelines.serving.model.logged_model import DISTRIBUTIONS

    code = """
import sys, pipelines.serving.model
print(*[module.__file__ for name, module in sys.modules.items() if name.startswith('pipelines.')])
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {*map(Path, answer.stdout.split()), *ROOT.glob("pipelines/tasks/**/*.py"), *ROOT.glob("pipelines/data/features/**/*.py")}
    modules = (
        {name.partition(".")[0] for file in files for name in imported_names(file)} - sys.stdlib_module_names - {"pipelines", "triton"}
    )
    distributions = {**packages_distributions(), "mlflow": ["mlflow"]}  # which lies in three, the first of them with no server
    # Settings of encoders and of tasks ask for what only they need, no model measures boxes or grows trees, the last one comes with
    # torchmetrics, and Triton with torch's builds for GPUs.
    without = {"faster-coco-eval", "lightgbm", "nibabel", "transformers", "lightning-utilities"}
    assert {distributions[module][0].lower() for module in modules} - without == {name.lower() for name in DISTRIBUTIONS}


@pytest.mark.parametrize(
    "package", sorted({file.parent for file in FILES if file.is_relative_to(ROOT / "pipelines")}), ids=lambda package: package.name
)
def test_a_package_says_what_each_of_its_files_is_for(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    if package in FOUND_BY_KINDS:
        return  # adding a kind is adding a file
    files = [file.stem for file in package.glob("*.py")] + [inner.parent.name for inner in package.glob("*/__init__.py")]
    assert [name for name in files if name != "__init__" and f"`{name}`" not in docstring] == []
    numbered = re.findall(r"^(?:\d+\. |   )`(\w+)` ", docstring, re.MULTILINE)
    assert [name for name in numbered if name not in files and not (package / name).exists()] == [], "no file"


@pytest.mark.parametrize("job", sorted(ROOT.glob("jobs/*.py")), ids=lambda file: file.name)
def test_an_entry_point_only_parses_imports_and_calls(job: Path) -> None:
    assert len(job.read_text().splitlines()) <= 30


def test_modules_of_tests_that_run_together_have_different_names() -> None:
    """pytest would import only one of two."""
    folders = ("unit", "applications", "integration", "chaos")
    names = [file.name for folder in folders for file in (ROOT / "tests" / folder).rglob("*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) in ([], ["conftest.py"])
