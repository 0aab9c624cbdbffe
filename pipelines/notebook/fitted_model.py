"""A fitted model, as a notebook uses it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
from mlflow import MlflowClient
from mlflow.pyfunc import PyFuncModel
from pandas import DataFrame

from pipelines.config import Config
from pipelines.data.versions.manifest import Manifest
from pipelines.launch.training_run import Result
from pipelines.notebook.frames import plain_table
from pipelines.report.filing import REPORT
from pipelines.runtime.notebook_html import html_summary, metrics_table
from pipelines.serving.model import load_model
from pipelines.serving.model.predictor import insert_refused
from pipelines.tracking import browse_line


@dataclass(frozen=True)
class FittedModel:
    """The result of `api.fit`."""

    config: Config
    """The settings that were chosen, and given."""
    dataset: Manifest
    """The dataset version that the model was trained on."""
    result: Result

    @property
    def run_id(self) -> str:
        """ID of the training in MLflow."""
        return self.result.run_id

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the best epoch by name, such as `test/auc`; without those that are not defined."""
        return self.result.metrics

    @cached_property
    def model(self) -> PyFuncModel:
        """The model, as MLflow loads it: `model.predict` takes raw rows."""
        return load_model(self.config.tracking.uri, self.result.model)

    def predict(self, frame: Any) -> DataFrame:
        """Predict the rows of a frame, raw as those that the model was fitted on, in their order; the target may be missing. A model that
        takes the query's columns gets them from Spark, by the query that made them.

        Raises SourceError for a frame that no table can hold. A row that cannot be encoded has its reason in the column `refused`."""
        rows = plain_table(frame)
        inputs = self.model.metadata.get_input_schema().input_names()
        reasons = pa.nulls(len(rows), pa.string())
        if self.dataset.served_query is None:
            from pipelines.notebook.frame_query import frame_query, query_session  # noqa: PLC0415, it imports Spark

            with query_session(self.config) as spark:
                query = frame_query(spark, self.config)
                if not query.is_plain:
                    (batch,) = rows.to_batches()
                    rows, reasons = query.apply(spark, batch, inputs)
        values = rows.select([name for name in inputs if name in rows.column_names]).to_pandas()
        return insert_refused(cast(DataFrame, self.model.predict(values)), reasons)

    @cached_property
    def page(self) -> str:
        """Where the run's page is: a file, or the address of the artifact."""
        artifacts = MlflowClient(self.config.tracking.uri).get_run(self.run_id).info.artifact_uri
        folder = unquote(artifacts.removeprefix("file://")) if artifacts.startswith("file:") else artifacts
        return str(Path(folder) / REPORT) if folder.startswith("/") else f"{artifacts}/{REPORT}"

    def _repr_html_(self) -> str:
        """The table of metrics that a notebook shows."""
        counts = ", ".join(f"{split} {summary.rows:,}" for split, summary in self.dataset.splits.items())
        lines = (f"model {self.result.model}", f"rows: {counts}", f"page: {self.page}", browse_line(self.config))
        return html_summary(self.config.name, metrics_table(self.metrics), lines)
