"""The part of a folder that predicts from raw rows without Lockstep: `predict.py`, its code, `examples.json` and README.md."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import ExportError
from pipelines.serving.export.example_check import EXAMPLES
from pipelines.serving.export.modules import HEAVY, Modules, find_modules
from pipelines.serving.model.archive import write_zip
from pipelines.tasks.base import Task

SCRIPT, CODE, README = "predict.py", "code.zip", "README.md"
TOLERANCE = 1e-3
"""Permitted difference of a number in a prediction; relative, for numbers beyond 1. Networks in floats differ in their last bits."""
PROGRAM = "pipelines.serving.export.program"
_CHECK_SECONDS = 300
_WITHOUT_HEAVY = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({HEAVY!r}))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script as where packages that an exported folder does without are not installed."""


def script_modules(description: Mapping[str, Any]) -> Modules:
    """The program with the encoders and the answers of a description. Raises ExportError if they need a package that a folder does
    without."""
    answer = description["answer"]
    encoders = [entry.get("encoded by") or entry["refuses"] for entry in description["inputs"]]
    encoders += [answer["target"]] if "target" in answer else []
    paths = [encoder["implementation"] for encoder in encoders] + [answer["form"]] * (":" in answer["form"])
    return find_modules(dict.fromkeys([PROGRAM, *(path.partition(":")[0] for path in paths)]))


def write_script(folder: Path, modules: Modules, readme: str, examples: Mapping[str, Any]) -> None:
    """Write the four files. `examples` has `rows`, their `predictions`, whether numbers are compared (`exact`) and their `tolerance`."""
    script = Path(__file__).parent / "templates/predict.txt"
    (folder / SCRIPT).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    write_zip(modules.files, folder / CODE)
    (folder / EXAMPLES).write_text(json.dumps(examples, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    (folder / README).write_text(readme, encoding="utf-8")


def is_own_task(task: Task) -> bool:
    """Whether the task is a user's class."""
    return not type(task).__module__.startswith("pipelines.")


def check_script(folder: Path, has_own_task: bool) -> str:
    """Run the script on its examples, in a process of its own. Raises ExportError if a prediction differs, or takes too
    long."""
    command = [sys.executable, "-I", "-c", _WITHOUT_HEAVY, str(folder / SCRIPT), "--check"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ExportError(
            f"{SCRIPT} has not predicted the rows of {EXAMPLES} within {_CHECK_SECONDS} s; "
            "export again while the machine does less beside it"
        ) from error
    if ended.returncode:
        last = (ended.stderr.strip() or f"it ended with {ended.returncode}").splitlines()[-1]
        remedy = "override `prediction_form` of your task as well as `predict`" if has_own_task else "use the model in MLflow"
        raise ExportError(f"{SCRIPT} does not predict what the model in MLflow predicts: {last}; {remedy}")
    return ended.stdout.strip()
