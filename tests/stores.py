"""MLflow's stores on SQLite for tests: a copy of one that was made once, since MLflow takes seconds to make another."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4


def new_store(folder: Path) -> str:
    """URI of the store in a folder, where an empty one is put if there is none."""
    path = folder / "mlflow.db"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        draft = folder / f"mlflow-{uuid4().hex}.db"
        draft.write_bytes(_empty())
        draft.rename(path)  # so that no process of a group sees a part of it
    return f"sqlite:///{path}"


@cache
def _empty() -> bytes:
    from mlflow import MlflowClient  # not above: each process of a group imports this file, and MLflow takes a second and a half

    with TemporaryDirectory() as folder:
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
        return Path(folder, "mlflow.db").read_bytes()
