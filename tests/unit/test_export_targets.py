"""What targets of exports need, and the process that runs a written model in an environment of its own."""

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipelines.errors import ConfigError, ExportError
from pipelines.export import stablehlo
from pipelines.export.targets import writer

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


@pytest.mark.parametrize("target", ["stablehlo", "hls4ml"])
def test_a_target_needs_no_package_of_another_one(target: str) -> None:
    code = "import sys\nfor name in ('onnx', 'onnxruntime', 'onnxscript'): sys.modules[name] = None\nsys.modules['hls4ml'] = sys"
    subprocess.run([sys.executable, "-c", f"{code}\nimport pipelines.export.{target}"], check=True)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="the target of the export is 'onx'; choose one of onnx, onnx-int8, "):
        writer("onx")


def test_it_computes_batches_says_why_it_ended_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(stablehlo, "SCRIPT", tmp_path / "script.py")
    monkeypatch.setattr(stablehlo, "mkdtemp", lambda prefix: str((tmp_path / "drafts").mkdir() or tmp_path / "drafts"))
    run = stablehlo._started(Path(sys.executable), tmp_path, rows=3)
    assert run({"x": np.array([1.0, 2.0])}).tolist() == [2.0, 4.0]
    process = psutil.Process(int((tmp_path / "process").read_text()))
    for _ in range(2):
        with pytest.raises(ExportError, match="XLA cannot express the network: out of memory"):
            run({"x": np.array([1.0, 2.0])})
    del run
    gc.collect()
    assert not process.is_running() and not (tmp_path / "drafts").exists()


def test_one_that_nobody_waits_for_any_more_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(stablehlo, "SCRIPT", tmp_path / "script.py")
    run = stablehlo._started(Path(sys.executable), tmp_path, rows=3)
    process = psutil.Process(int((tmp_path / "process").read_text()))
    assert process.is_running()
    del run
    gc.collect()
    assert not process.is_running()
