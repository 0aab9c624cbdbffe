"""`entry.py` as models have it that were logged when each module of the code was a file of its own, in `code/pipelines`.

Before all files are verified against their digests, only this file and `pipelines.errors` with its imports run.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from pipelines.errors import CorruptError, MismatchError

_REMEDY = "the model is not the one that was logged; download it again, or log it again with jobs/train.py"


class RawRows(PythonModel):
    """The model class for `mlflow.pyfunc.load_model` and `mlflow models serve`."""

    def load_context(self, context: PythonModelContext) -> None:
        digest = checked(Path(__file__).parent)
        from pipelines.serving.model import load_predictor, scoring

        self._predictor, self._scoring = load_predictor(context.artifacts, digest), scoring
        scoring.set_csv_types(self._predictor.inputs)

    def predict(self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predictions for rows with the columns of the signature, with the same index."""
        return self._scoring.answer(self._predictor, model_input)


def checked(folder: Path) -> str:
    """Verify the files of a model. Returns the digest of its weights.

    Raises CorruptError if a file was altered or removed, or if there is code that was not logged; MismatchError if this process has
    imported different code of the same name.
    """
    listed = folder / "digests.json"
    try:
        digests = json.loads(listed.read_bytes())
        filed, model = dict(digests["files"]), str(digests["model"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{listed} cannot be read: {error!r}; {_REMEDY}") from error
    for name, digest in filed.items():
        if (found := digest_of(folder / name)) != digest:
            raise CorruptError(f"{folder / name} {_differs(found, digest)}; {_REMEDY}")
    code = {file.relative_to(folder).as_posix() for file in (folder / "code").rglob("*") if file.is_file()}
    if extra := [name for name in sorted(code - filed.keys()) if "__pycache__" not in name]:
        raise CorruptError(f"{folder / extra[0]} was not logged with the model; {_REMEDY}")
    for name in filed.keys() & code:
        _check_at_work(folder, name.removeprefix("code/"), filed[name])
    return model


def _check_at_work(folder: Path, name: str, digest: str) -> None:
    """A module that was imported before is not imported again, so it must be identical."""
    module = sys.modules.get(name.partition("/")[0].removesuffix(".py"))
    file = getattr(module, "__file__", None)
    root = Path(file).parents["/" in name] if file else folder / "code"
    if root != folder / "code" and (found := digest_of(root / name)) != digest:
        raise MismatchError(f"{root / name}, imported in this process, {_differs(found, digest)}; load the model in a process of its own")


def digest_of(file: Path) -> str:
    """Hex SHA-256 of a file; empty if there is no such file."""
    return sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _differs(found: str, digest: str) -> str:
    return f"has SHA-256 {found[:12]}…, but {digest[:12]}… was logged" if found else "is missing"


set_model(RawRows())
