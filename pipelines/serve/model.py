"""A run's model in MLflow: what is filed, and what runs when it is loaded."""

import json
from collections.abc import Mapping
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import Model
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipelines.config import Config, TaskSettings
from pipelines.config.task import settings_class
from pipelines.dataset.manifest import Manifest, parse_manifest
from pipelines.serve.predictor import Predictor, to_arrow
from pipelines.serve.signature import example_of, signature_of

FILES = {"config": "config.json", "manifest": "manifest.json", "weights": "weights.safetensors"}
# What this package imports to predict, by the names of their distributions.
DISTRIBUTIONS = (
    "mlflow", "numpy", "pandas", "pillow", "pyarrow", "pydantic", "PyYAML", "safetensors", "tokenizers", "torch", "torchmetrics", "tyro",
)  # fmt: skip


class RawRows(PythonModel):
    """What `mlflow.pyfunc.load_model` and `mlflow models serve` run."""

    def load_context(self, context: PythonModelContext) -> None:
        config, manifest, weights = (Path(context.artifacts[name]) for name in FILES)
        task = json.loads(config.read_bytes())["task"]
        settings = settings_class(task["kind"]).model_validate(task)
        self._predictor = Predictor(settings, parse_manifest(manifest.read_bytes(), str(manifest)), load_file(weights))

    def predict(self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """The signature's inputs to its outputs, with the same index."""
        return self._predictor.predict(to_arrow(model_input, self._predictor.inputs)).set_axis(model_input.index)


def log_model(config: Config, manifest: Manifest, weights: Mapping[str, Tensor], run_id: str, step: int = 0) -> str:
    """File a run's model and return its URI, `models:/…`. Metrics that the run has at `step` are shown with it.

    `weights` are the state dict of the task's model. MLflow's address is that of `config.tracking`.
    """
    mlflow.set_tracking_uri(config.tracking.uri)
    client = mlflow.MlflowClient()
    model = client.create_logged_model(client.get_run(run_id).info.experiment_id, name="model", source_run_id=run_id)
    code, requirements = software_of(config.task)
    with TemporaryDirectory() as folder:
        files = {name: Path(folder, file) for name, file in FILES.items()}
        files["config"].write_text(config.model_dump_json(indent=1))
        files["manifest"].write_bytes(manifest.to_json())
        save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}, files["weights"])
        logged = Model.log(
            None,
            mlflow.pyfunc,
            name="model",
            run_id=run_id,
            model_id=model.model_id,  # else MLflow files the model in whichever experiment is the current one
            step=step,
            python_model=str(Path(__file__).with_name("entry.py")),
            artifacts={name: str(path) for name, path in files.items()},
            code_paths=code,
            pip_requirements=requirements,
            signature=signature_of(Predictor(config.task, manifest, weights), manifest),
            input_example=example_of(manifest),
        )
    return logged.model_uri


def software_of(settings: TaskSettings) -> tuple[list[str], list[str]]:
    """Paths of the code that is filed with the model, and what must be installed beside it, as pip writes it.

    This package is filed, and a user's task too unless it is of an installed distribution.
    """
    installed = packages_distributions()
    names, code = set(DISTRIBUTIONS), set()
    for module in (__name__, type(settings).__module__, settings.implementation):
        package = module.partition(":")[0].partition(".")[0]
        if package in installed and package != __name__.partition(".")[0]:
            names.update(installed[package])
        elif spec := find_spec(package):
            code.add(next(iter(spec.submodule_search_locations or ()), spec.origin))
    # A build's local version, as in 2.13.0+cpu, is known to no package index.
    return sorted(map(str, code)), [f"{name}=={version(name).partition('+')[0]}" for name in sorted(names)]
