"""The driver of a cross-validation: trains the model of each fold, one after another, as runs inside one MLflow run.

A fold whose training is finished is not trained again: the same command goes on with the one that was interrupted.
"""

from dataclasses import dataclass

from pipelines import tracking
from pipelines.config import Config
from pipelines.data.versions.folds import fold_config, smallest_training, training_version
from pipelines.data.versions.versions import open_version
from pipelines.launch.checks import check_training
from pipelines.launch.cluster import cluster, job_tags
from pipelines.launch.initial_weights import fill_in_origins
from pipelines.launch.training_progress import TrainingProgress
from pipelines.launch.training_run import train
from pipelines.report.filing import REPORT, file_folds_page
from pipelines.report.fold_metrics import fold_table, metrics_line, summarize_metrics
from pipelines.runtime.notebook_html import html_summary, metrics_table
from pipelines.tracking.cross_validation_run import open_cross_validation


@dataclass(frozen=True)
class CrossValidation:
    """The result of training all folds."""

    run_id: str
    metrics: dict[str, float]
    """Mean and sample standard deviation over the folds, such as `test/auc_mean` and `test/auc_std`."""
    fold_runs: dict[int, str]
    """IDs of the trainings, by the number of the fold."""
    fold_metrics: dict[int, dict[str, float]]
    """Metrics of each model's best epoch, by the number of the fold."""

    def _repr_html_(self) -> str:
        return html_summary("cross-validation", metrics_table(self.metrics), (f"run {self.run_id} of {len(self.fold_runs)} trainings",))


def train_folds(config: Config) -> CrossValidation:
    """Train a model for each fold of the dataset version that the config describes, and log mean and deviation of their metrics.

    Resumes an interrupted run of the same settings and dataset. When a signal interrupts it, its run and that of the fold become KILLED.
    Raises what `train` does.
    """
    version = open_version(config.dataset.path, config.data_identity)
    config = fill_in_origins(config, version)
    folds = version.manifest.folds
    assert folds is not None, "the config has folds, which is part of the identity of a version"
    smallest = smallest_training(folds)
    config_of_smallest = fold_config(config, smallest)
    check_training(config_of_smallest, training_version(config_of_smallest, version))
    progress = TrainingProgress()
    with cluster(config.train) as output, tracking.tracked_run(lambda: open_cross_validation(config, version, job_tags())) as run:
        progress.say(f"run {run.run_id} {'resumes' if run.is_resumed else 'starts'}: {folds.trainings} trainings, one for each fold")
        runs = run.read_finished_runs()
        for fold in range(1, folds.trainings + 1):
            is_finished = fold in runs
            state = f" is finished: run {runs[fold]}" if is_finished else ""
            progress.say(f"fold {fold} of {folds.trainings}{state}", "fold", fold=fold, folds=folds.trainings, finished=is_finished)
            if not is_finished:
                runs[fold] = train(fold_config(config, fold), version, run.run_id, output).run_id
        metrics = {fold: run.final_metrics(run_id) for fold, run_id in sorted(runs.items())}
        results = CrossValidation(run.run_id, summarize_metrics(metrics), dict(sorted(runs.items())), metrics)
        lines = [line for split in ("test", "validation") if (line := metrics_line(metrics, split, len(folds.rows)))]
        run.log_metrics(results.metrics)
        file_folds_page(run)
        results_text = "  \n".join(f"**{line}**" for line in lines)
        run.describe("\n\n".join([results_text, fold_table(metrics, "test"), f"[page of the folds]({run.artifact_page(REPORT)})"]))
    lines.append(f"run {run.run_id} of experiment {config.experiment} in {config.tracking.uri}")
    progress.say("\n".join(lines), "result", run_id=run.run_id, metrics=results.metrics, folds=results.fold_metrics)
    return results
