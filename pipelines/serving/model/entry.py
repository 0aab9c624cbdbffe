"""MLflow copies this file into the folder of a model, and runs it to load the model. Nothing imports it.

Before all files are verified against their digests, only this file runs. The archive of the model's code is on the path after that.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

_CODE, _ARCHIVE = "code", "code/pipelines.zip"
_REMEDY = "the model is not the one that was logged; download it again, or log it again with jobs/train.py"


class RawRows(PythonModel):
    """The model class for `mlflow.pyfunc.load_model` and `mlflow models serve`."""

    def load_context(self, context: PythonModelContext) -> None:
        digest = verify_files(Path(__file__).parent)
        from pipelines.serving.model import load_predictor, scoring  # noqa: PLC0415, verified by now

        self._predictor, self._scoring = load_predictor(context.artifacts, digest), scoring
        scoring.set_csv_types(self._predictor.columns_taken)

    def predict(self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predictions for rows with the columns of the signature, with the same index."""
        return self._scoring.answer(self._predictor, model_input)


def verify_files(folder: Path) -> str:
    """Verify the files of a model, then put its code on the path. Returns the digest of its weights.

    Raises CorruptError if a file was altered or removed, or if there is code that was not logged; MismatchError if this process has
    imported different code of the same name.
    """
    listed = folder / "digests.json"
    try:
        digests = json.loads(listed.read_bytes())
        logged, model = dict(digests["files"]), str(digests["model"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _error("CorruptError", f"{listed} cannot be read: {error!r}; {_REMEDY}") from error
    for name, digest in logged.items():
        if (present := file_digest(folder / name)) != digest:
            raise _error("CorruptError", f"{folder / name} {_differs(present, digest)}; {_REMEDY}")
    code = {file.relative_to(folder).as_posix() for file in (folder / _CODE).rglob("*") if file.is_file()}
    if extra := [name for name in sorted(code - logged.keys()) if "__pycache__" not in name]:
        raise _error("CorruptError", f"{folder / extra[0]} was not logged with the model; {_REMEDY}")
    for name in sorted(logged.keys() & code):
        if name == _ARCHIVE:
            with ZipFile(folder / name) as archive:
                for member in archive.namelist():
                    _check_imported(member, sha256(archive.read(member)).hexdigest())
        else:
            _check_imported(name.removeprefix(f"{_CODE}/"), file_digest(folder / name))
    sys.path[:0] = [str(folder / _ARCHIVE), str(folder / _CODE)]
    return model


def _check_imported(name: str, digest: str) -> None:
    """A module that was imported before is not imported again, so it must be identical."""
    module: Any = sys.modules.get(name.partition("/")[0].removesuffix(".py"))
    if not (file := getattr(module, "__file__", None)):
        return
    place = Path(file).parents["/" in name] / name
    try:
        present = sha256(module.__loader__.get_data(str(place))).hexdigest()
    except (OSError, ImportError):  # the latter of an archive that was replaced since
        present = ""
    if present != digest:
        message = f"{place}, imported in this process, {_differs(present, digest)}; load the model in a process of its own"
        raise _error("MismatchError", message)


def file_digest(file: Path) -> str:
    """Hex SHA-256 of a file; empty if there is no such file."""
    return sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _differs(present: str, digest: str) -> str:
    return f"has SHA-256 {present[:12]}…, but {digest[:12]}… was logged" if present else "is missing"


def _error(kind: str, message: str) -> Exception:
    """An error of `pipelines.errors` if this process has imported it, else one of the same name: an import could run altered code."""
    imported = getattr(sys.modules.get("pipelines.errors"), kind, None)
    return (imported or type(kind, (Exception,), {}))(message)


set_model(RawRows())
