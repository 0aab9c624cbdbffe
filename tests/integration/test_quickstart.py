"""The notebook docs/quickstart.ipynb runs in a kernel of Jupyter, cell by cell."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs/quickstart.ipynb"


def test_the_notebook_has_no_outputs_and_no_path_of_a_machine() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    assert "/home/" not in NOTEBOOK.read_text() and len(NOTEBOOK.read_text()) < 10_000


@pytest.mark.full
def test_p1_the_quickstart_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    for name in ("LOCKSTEP_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [json.dumps(cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(outputs) and "vnd.jupyter.widget-view" in outputs[1], "progress is a bar"
    display = "\n".join(outputs)
    assert "<iframe" in display and "test/auc" in display and "probability_true" in display and "'left': (" in display
    assert "Traceback" not in display and "Warning" not in display
