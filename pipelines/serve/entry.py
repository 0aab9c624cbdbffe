"""MLflow copies this file beside the weights and runs it to load the model. Nothing imports it."""

from mlflow.models import set_model

from pipelines.serve import RawRows

set_model(RawRows())
