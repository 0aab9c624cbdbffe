"""The layer rule: a package imports only from packages below it, and only the third-party libraries that are listed for it."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from shape import imports_of, package_of

ROOT = Path(__file__).parents[2]

# Lowest first. Packages on one line do not import each other, so `etl` and `loader` share only `dataset` and what is below it.
LAYERS = (
    ("interrupts", "output"),
    ("atomic", "errors", "installed", "philox", "progress", "weights"),
    ("compat", "config"),
    ("dataset",),
    ("features", "loader", "rowwise", "tasks", "tracking", "collectives", "sources"),
    ("learning", "report"),
    ("etl", "serve", "parallel", "checkpoint"),
    ("train",),
    ("export", "federated", "servers", "timing", "predict", "registry"),
    ("launch", "baseline"),
    ("endpoint",),
    ("api",),
    ("commands",),
    ("jobs",),
)
STRANGERS = {
    ("etl", "loader"),
    *(("parallel", package) for package in ("dataset", "tracking")),
    *(("checkpoint", package) for package in ("loader", "tasks", "tracking")),
    *((package, other) for package in ("train", "servers", "federated", "timing") for other in ("etl", "serve", "tracking")),
    ("launch", "etl"),
}
THIRD_PARTIES = {
    "interrupts": set(),
    "output": set(),
    "atomic": set(),
    "errors": set(),
    "compat": {"mlflow", "py4j", "pyspark", "ray", "torch", "torchmetrics"},
    "installed": set(),
    "philox": {"numpy"},
    "progress": {"tqdm"},
    "weights": {"safetensors", "torch"},
    "config": {"pydantic", "tyro", "yaml"},
    "dataset": {"numpy", "pyarrow", "pydantic", "xxhash"},
    "features": {"PIL", "numpy", "pyarrow", "pydantic", "tokenizers"},
    "loader": {"numpy", "pyarrow", "threadpoolctl", "torch"},
    "tasks": {"numpy", "torch", "torchmetrics"},
    "tracking": {"mlflow", "numpy", "pandas", "pyarrow"},
    "rowwise": {"duckdb", "pyarrow", "sqlglot"},
    "learning": {"numpy"},
    "report": {"PIL", "matplotlib", "numpy", "pyarrow"},
    "sources": {"bracex", "numpy", "py4j", "pyarrow", "pyspark", "wcmatch"},
    "etl": {"numpy", "pandas", "psutil", "py4j", "pyarrow", "pyspark"},
    "serve": {"mlflow", "numpy", "pandas", "pyarrow", "torch"},
    "collectives": {"torch"},
    "parallel": {"torch"},
    "checkpoint": {"pyarrow", "torch", "xxhash"},
    "train": {"torch", "torchmetrics"},
    "servers": {"numpy", "ray", "torch"},
    "federated": {"numpy", "opacus", "pyarrow", "torch"},
    "export": {"PIL", "executorch", "hls4ml", "jax", "numpy", "onnx", "onnxruntime", "pyarrow", "torch", "torchax", "torchmetrics"},
    "timing": {"torch"},
    "launch": {"psutil", "pyarrow", "ray", "safetensors", "torch"},
    "endpoint": {"pandas", "pyarrow", "ray", "starlette", "torch"},
    "baseline": {"numpy", "pyarrow", "pyspark", "torch"},
    "predict": {"pyarrow", "pydantic", "pyspark"},
    "registry": {"mlflow", "numpy", "pyarrow", "pyspark"},
    "api": {"mlflow", "pyarrow"},
    "commands": set(),
    "jobs": set(),
}
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
FILES = sorted([*ROOT.glob("pipelines/**/*.py"), *ROOT.glob("jobs/*.py")])


def faults(package: str, imports: set[str]) -> list[str]:
    """The imports of a package that the rule forbids."""
    found = []
    for name in sorted(imports):
        top, _, rest = name.partition(".")
        other = rest.split(".")[0]
        if top == "pipelines" and rest:
            if other not in LEVEL:
                found.append(f"{name}: no layer has a package {other}")
            elif other != package and (LEVEL[other] >= LEVEL[package] or (package, other) in STRANGERS):
                found.append(f"{name}: {package} may not import {other}")
        elif top not in sys.stdlib_module_names and top not in {"pipelines", *THIRD_PARTIES[package]}:
            found.append(f"{name}: {package} may import {', '.join(sorted(THIRD_PARTIES[package])) or 'no third party'}")
    return found


@pytest.mark.parametrize(
    "file", [file for file in FILES if file != ROOT / "pipelines/__init__.py"], ids=lambda file: str(file.relative_to(ROOT))
)
def test_a_module_imports_only_from_layers_below(file: Path) -> None:
    package = package_of(file)
    assert package in LEVEL, f"{file.relative_to(ROOT)} has no layer; add its package to LAYERS"
    assert faults(package, imports_of(file)) == []


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("dataset", "pipelines.loader.Loader"),
        ("loader", "pipelines.features.encoding"),
        ("etl", "pipelines.loader.Loader"),
        ("sources", "pipelines.etl.query"),
        ("train", "pipelines.etl.run"),
        ("train", "pipelines.tracking.Sender"),
        ("train", "pipelines.launch.worker"),
        ("train", "ray"),
        ("train", "pipelines.servers.loop"),
        ("train", "pipelines.federated.loop"),
        ("parallel", "pipelines.servers.strategy"),
        ("train", "pipelines.timing.beats"),
        ("servers", "pipelines.launch.reports"),
        ("parallel", "pipelines.checkpoint.store"),
        ("collectives", "pipelines.parallel.mesh"),
        ("launch", "mlflow"),
        ("jobs", "torch.nn"),
        ("config", "pyarrow"),
        ("tasks", "pipelines.nowhere"),
    ],
)
def test_the_rule_forbids(package: str, name: str) -> None:
    assert len(faults(package, {name})) == 1


def test_pipelines_itself_imports_nothing() -> None:
    assert imports_of(ROOT / "pipelines/__init__.py") == set()


@pytest.mark.parametrize("module", ["config", "api", "commands"])
def test_what_is_imported_before_a_config_is_read_loads_no_heavy_library(module: str) -> None:
    heavy = {"pyspark", "torch", "ray", "mlflow", "pyarrow", "pandas"}
    code = f"import sys, pipelines.{module}; print(*sorted({heavy!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_the_loop_loads_no_ray_and_a_worker_no_mlflow() -> None:
    """Nor does either load what torchmetrics would of SciPy, which is imported as ever by whoever uses it."""
    heavy = {"ray", "mlflow", "pyspark", "scipy.signal"}
    code = f"""
import sys
import pipelines.train.loop
print(*sorted({heavy!r} & set(sys.modules)))
import pipelines.launch.replay
print(*sorted({heavy!r} & set(sys.modules)))
import scipy.signal
print(callable(scipy.signal.butter))
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n") == ["", "ray", "True", ""]


def test_a_package_that_torchmetrics_imports_finds_all_of_scipy_signal() -> None:
    code = """
from pipelines.compat.torchmetrics import signal_left_out
with signal_left_out():
    from scipy.signal import get_window
    import scipy.signal.windows
print(callable(get_window), callable(scipy.signal.windows.hann))
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["True", "True"]


def test_a_packed_environment_has_what_executors_import() -> None:
    """`tests/cluster/test_packed.py` sends one along; Spark brings PySpark and Py4J itself."""
    (packed,) = re.findall(r'^packages=\((.*) "', (ROOT / "cluster/pack.sh").read_text(), re.MULTILINE)
    packages = ("config", "dataset", "etl", "features", "sources")
    modules = set().union(*(THIRD_PARTIES[package] for package in packages)) - {"pyspark", "py4j"}
    distributions = packages_distributions()
    assert {distributions[module][0].lower() for module in modules} == {name.lower() for name in packed.split()}


def test_a_model_asks_for_what_its_code_imports() -> None:
    from pipelines.serve.model import DISTRIBUTIONS

    code = "import sys, pipelines.serve; print(*[module.__file__ for name, module in sys.modules.items() if name.startswith('pipelines.')])"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {*map(Path, answer.stdout.split()), *ROOT.glob("pipelines/tasks/*.py"), *ROOT.glob("pipelines/features/*.py")}
    modules = {name.partition(".")[0] for file in files for name in imports_of(file)} - sys.stdlib_module_names - {"pipelines"}
    distributions = {**packages_distributions(), "mlflow": ["mlflow"]}  # which lies in three, the first of them with no server
    assert {distributions[module][0].lower() for module in modules} == {name.lower() for name in DISTRIBUTIONS}


@pytest.mark.parametrize(
    "package", sorted({file.parent for file in FILES if file.is_relative_to(ROOT / "pipelines")}), ids=lambda package: package.name
)
def test_a_package_says_what_each_of_its_files_is_for(package: Path) -> None:
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    files = [file.stem for file in package.glob("*.py")] + [inner.parent.name for inner in package.glob("*/__init__.py")]
    assert [name for name in files if name != "__init__" and f"`{name}`" not in said] == []


@pytest.mark.parametrize("job", sorted(ROOT.glob("jobs/*.py")), ids=lambda file: file.name)
def test_an_entry_point_only_parses_imports_and_calls(job: Path) -> None:
    assert len(job.read_text().splitlines()) <= 30


def test_modules_of_tests_that_run_together_have_different_names() -> None:
    """pytest would import only one of two."""
    names = [file.name for folder in ("unit", "integration", "chaos") for file in (ROOT / "tests" / folder).glob("*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) in ([], ["conftest.py"])
