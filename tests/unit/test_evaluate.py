"""What an evaluation keeps for figures fails no training."""

from pathlib import Path
from typing import Any

import pytest
from groups import run_group
from trainings import open_dataset, training

from pipelines.tasks.bind import build_task
from pipelines.tasks.details import ClassDetails, EvaluationData
from pipelines.tasks.supervised import target_kind
from pipelines.train.evaluate import Evaluation
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

METHODS = ("__init__", "update", "merge", "result")


def evaluate_failing(
    context: WorkerContext, home: Path, method: str, rank: int
) -> tuple[dict[str, float] | None, list[EvaluationData | None]]:
    """Metrics, and the details of two evaluations, where a method fails at its second call on one worker."""
    config = training(home, shards=4)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    calls = []

    class Failing(ClassDetails):
        pass

    def failing(*arguments: Any) -> Any:
        calls.append(method)
        if len(calls) == 2 and context.rank == rank:
            raise RuntimeError("planted")
        return getattr(ClassDetails, method)(*arguments)

    setattr(Failing, method, failing)
    task.details = lambda: Failing(task.settings, task.data, target_kind(task.data))  # type: ignore[attr-defined, method-assign]
    evaluation = Evaluation(config.train, version, "validation", task, strategy)
    evaluation()
    first = evaluation.evaluation_data
    return evaluation(), [first, evaluation.evaluation_data]


@pytest.mark.parametrize("method", METHODS)
def test_an_error_in_the_details_leaves_metrics_and_no_figures(tmp_path: Path, method: str, caplog: pytest.LogCaptureFixture) -> None:
    metrics, details = evaluate_failing(WorkerContext(), tmp_path, method, rank=-1)
    assert metrics and details[1]
    failed, missing = evaluate_failing(WorkerContext(), tmp_path, method, rank=0)
    assert failed == metrics and missing[1] is None
    assert caplog.text.count("the run has no figures of its validation split: RuntimeError: planted") == 1


@pytest.mark.slow
def test_details_that_one_worker_lacks_are_not_taken_for_whole(tmp_path: Path) -> None:
    training(tmp_path, shards=4)
    (metrics, details), (other_metrics, nothing) = run_group(2, tmp_path / "group", evaluate_failing, tmp_path, "update", 1)
    assert metrics == other_metrics and details == nothing == [None, None]
