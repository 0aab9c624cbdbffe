"""The part of a folder that predicts from raw rows without Lockstep: `predict.py`, `examples.json` and README.md.

`predict.py` joins the modules of `standalone` that the model needs.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pipelines.applications.detection import peaks
from pipelines.applications.series import padding
from pipelines.applications.speech import spectrogram, wav
from pipelines.data.features import orientation
from pipelines.data.features.media import file_kinds
from pipelines.errors import ExportError
from pipelines.serving.export.standalone import answers, arrays, boxes, categories, columns, model, numbers, series, sound, tokens, words
from pipelines.tasks.base import Task

SCRIPT, EXAMPLES, README = "predict.py", "examples.json", "README.md"
TOLERANCE = 1e-3
"""Permitted difference of a number in a prediction; relative, for numbers beyond 1. Networks in floats differ in their last bits."""
_ENCODING = (numbers, categories, words, tokens, arrays, sound, series)
_NEEDS = {arrays.__name__: (file_kinds, orientation), sound.__name__: (file_kinds, wav, spectrogram), series.__name__: (padding,)}
_ANSWERING = {"boxes": (peaks, boxes)}
"""Modules that a form of answers needs, by its name."""
_CHECK_SECONDS = 300


def unknown_encoders(encoders: Iterable[Mapping[str, Any]]) -> list[str]:
    """The encoders, by their settings, that `standalone` lacks: those of a user."""
    return sorted({model.encoder_name(settings) for settings in encoders} - columns.ENCODERS.keys())


def answer_form(form: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task's `prediction_form`, or `output` if the script cannot give that."""
    has_answer = form.get("form") in answers.ANSWERS and form.get("encoder", {}).get("encoder", "identity") in answers.DECODES
    return form if has_answer else {"form": "output"}


def write_script(folder: Path, encoders: Iterable[Mapping[str, Any]], form: str, readme: str, examples: Mapping[str, Any]) -> None:
    """Write the three files. `form` is the name of the answers' form. `examples` has `rows`, their `predictions`, whether numbers are
    compared (`exact`) and their `tolerance`."""
    (folder / SCRIPT).write_text(predict_script(encoders, form), encoding="utf-8")
    (folder / EXAMPLES).write_text(json.dumps(examples, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    (folder / README).write_text(readme, encoding="utf-8")


def is_own_task(task: Task) -> bool:
    """Whether the task is a user's class."""
    return not type(task).__module__.startswith("pipelines.")


def check_script(folder: Path, has_own_task: bool) -> str:
    """Run the script on its examples, in a process of its own. Raises ExportError if a prediction differs, or takes too
    long."""
    command = [sys.executable, "-I", str(folder / SCRIPT), "--check"]
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


def predict_script(encoders: Iterable[Mapping[str, Any]], form: str = "output") -> str:
    """The source of a script for these encoders, given by their settings, and a form of answers: the modules, lowest first, behind their
    imports."""
    used = {columns.ENCODERS[model.encoder_name(settings)].__module__ for settings in encoders}
    modules = [module for module in _ENCODING if module.__name__ in used]
    encoding = [part for module in modules for part in (*_NEEDS.get(module.__name__, ()), module)]
    parts = list(dict.fromkeys([columns, *encoding, answers, *_ANSWERING.get(form, ()), model]))
    sources = [Path(str(part.__file__)).read_text(encoding="utf-8") for part in parts]
    head = ast.get_docstring(ast.parse(sources[-1]), clean=False)
    imports, bodies = _imports(sources), [_body(part, source) for part, source in zip(parts, sources, strict=True)]
    return f'"""{head}"""\n\n{imports}\n\n\n' + "\n\n\n".join(bodies) + "\n"


def _imports(sources: Iterable[str]) -> str:
    """The imports of all sources except those of each other, each name once."""
    plain, names = set[str](), dict[str, set[str]]()
    for source in sources:
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import):
                plain.add(ast.unparse(node))
            elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith("pipelines."):
                names.setdefault(str(node.module), set()).update(map(ast.unparse, node.names))
    lines = [f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names)]
    return "\n".join([*sorted(plain), *lines])


def _body(part: ModuleType, source: str) -> str:
    """The code after the imports of a module, under a comment with the first line of its docstring."""
    last = [node for node in ast.parse(source).body if isinstance(node, (ast.Import, ast.ImportFrom))][-1]
    code = "\n".join(source.splitlines()[last.end_lineno :]).strip()
    title = (part.__doc__ or "").partition("\n")[0]
    return f"# {title}\n\n" + re.sub(r"  # noqa: [^\n]*", "", code)
