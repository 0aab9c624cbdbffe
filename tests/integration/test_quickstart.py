"""The notebook docs/quickstart.ipynb runs, cell by cell, in a process without a main guard."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from notebook_cells import code_cells

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs/quickstart.ipynb"


def test_the_notebook_has_no_outputs_and_no_path_of_a_machine() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    assert "/home/" not in NOTEBOOK.read_text() and len(NOTEBOOK.read_text()) < 10_000


@pytest.mark.full
@pytest.mark.timeout(600)
def test_p1_the_quickstart_notebook_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "LOCKSTEP_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "tests/notebook_cells.py"), str(NOTEBOOK)]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    outputs = ended.stdout.split("cell ")[1:]
    assert len(outputs) == len(code_cells(NOTEBOOK))
    display = "\n".join(outputs)
    assert "<iframe" in display and "test/auc" in display and "probability_true" in display and "'left': (" in display
