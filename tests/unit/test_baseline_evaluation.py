"""What is kept of a linear baseline beside its metrics, from the outputs that Spark gives of its rows. Starts no Spark."""

from pathlib import Path

import numpy as np
import pytest
import torch
from trainings import open_dataset, training

from pipelines.launch.spark_baseline import _evaluation_data, _part
from pipelines.tasks.bind import build_task
from pipelines.tasks.metrics.table import metric_values
from pipelines.tasks.supervised import Supervised


def test_a_baseline_s_evaluation_is_that_of_its_rows_in_their_order(tmp_path: Path) -> None:
    config = training(tmp_path, rows=400, numbered=True)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    assert isinstance(task, Supervised)
    groups = list(range(len(version.split_row_groups("test"))))
    batches = list(_part(version, "test", None, groups))
    rows, truth = (np.concatenate([batch.column(name).to_numpy() for batch in batches]) for name in ("row", "target"))
    assert rows.tolist() == list(range(version.rows("test")))
    outputs = torch.from_numpy((truth + np.random.default_rng(0).standard_normal(len(truth)))[:, None])
    metrics = task.metrics()
    task.update(metrics, outputs, {"label": torch.from_numpy(truth)})
    named = {f"test/{name}": value for name, value in metric_values(metrics).items()}
    (evaluation,) = _evaluation_data(config, version, task, named, {"test": outputs})
    assert (evaluation.split, evaluation.summary["rows"], evaluation.summary["monitor"]) == ("test", len(truth), "auc")
    assert evaluation.summary["areas"][0]["roc"] == pytest.approx(named["test/auc"], abs=1e-6)
    worst = evaluation.tables["worst"]
    assert worst["feature.x7"] == pytest.approx(worst["row"]), "the column that numbers the rows"
