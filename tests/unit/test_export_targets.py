"""What targets of exports need, and the process that runs a written model in an environment of its own."""

import gc
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipelines.errors import ConfigError, ExportError
from pipelines.serving.export.subject import pad_rows
from pipelines.serving.export.targets import Environment, start_script, target_writer

SCRIPT = """
import os, sys
import numpy as np
open(sys.argv[1] + "/process", "w").write(str(os.getpid()))
print("done", flush=True)
for number, line in enumerate(sys.stdin):
    given, found = line.rstrip("\\n").split("\\t")
    if number == 1:
        sys.exit("out of memory")
    np.save(found, 2 * np.load(given)["x"])
    print("done", flush=True)
"""


@pytest.mark.parametrize("target", ["stablehlo", *(pytest.param(name, marks=pytest.mark.full) for name in ("executorch", "hls4ml"))])
def test_a_target_needs_no_package_of_another_one(target: str) -> None:
    code = "import sys\nfor name in ('onnx', 'onnxruntime', 'onnxscript'): sys.modules[name] = None\nsys.modules['hls4ml'] = sys"
    subprocess.run([sys.executable, "-c", f"{code}\nimport pipelines.exports.{target}.target"], check=True)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="the target of the export is 'onx'; choose one of onnx, onnx-int8, "):
        target_writer("onx")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setenv("LOCKSTEP_OTHER", sys.executable)
    return Environment("target", "other", ("numpy", "pytest"), "Other", tmp_path / "script.py")


def test_it_computes_batches_says_why_it_ended_and_leaves_nothing(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run = start_script(environment, tmp_path)
    assert run({"x": np.array([1.0, 2.0])}).tolist() == [2.0, 4.0]
    process = psutil.Process(int((tmp_path / "process").read_text()))
    for _ in range(2):
        with pytest.raises(ExportError, match="Other cannot express the network: out of memory"):
            run({"x": np.array([1.0, 2.0])})
    assert list(tmp_path.glob("lockstep-other-*"))
    del run
    gc.collect()
    assert not process.is_running() and not list(tmp_path.glob("lockstep-other-*"))


def test_the_versions_of_its_packages_are_told(environment: Environment) -> None:
    assert environment.versions() == {"torch": version("torch"), "numpy": np.__version__, "pytest": pytest.__version__}


def test_one_that_nobody_waits_for_any_more_is_ended(environment: Environment, tmp_path: Path) -> None:
    run = start_script(environment, tmp_path)
    process = psutil.Process(int((tmp_path / "process").read_text()))
    assert process.is_running()
    del run
    gc.collect()
    assert not process.is_running()


def test_padding_repeats_the_last_row() -> None:
    assert pad_rows({"x": np.array([[1], [2]])}, 4)["x"].tolist() == [[1], [2], [2], [2]]
