"""Files the figures, the table of trials and the page of a search in its run, and words the remarks in the winner's config."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from pipelines.config.tuning import Dimension
from pipelines.report.filing import file_search_page
from pipelines.tracking.search_files import SEARCH_FILE, TRIALS
from pipelines.tracking.search_run import SearchRun
from pipelines.tuning.importance import SettingImportance, setting_importance
from pipelines.tuning.search_result import SearchResult, best_value, describe_fresh, describe_params, describe_search


def log_result(run: SearchRun, result: SearchResult, space: Mapping[str, Dimension]) -> None:
    """Log the search's figures, its table of trials and its page. Raises TrackingError."""
    importance = trial_importance(result, space)
    values = {**result.values(), "jobs": [asdict(job) for job in result.jobs], "importance": importance and asdict(importance)}
    run.file(TRIALS, json.dumps([asdict(trial) for trial in result.trials], indent=1).encode())
    run.file(SEARCH_FILE, json.dumps(values, indent=1).encode())
    fresh = result.fresh
    metrics = {"search/best_score": result.best_score, "search/epochs": float(result.epochs), "search/saved_share": result.saved_share}
    metrics |= {"search/epochs_trained": float(result.epochs_trained), "search/optimism": fresh.optimism}
    summaries = {f"{split}/{result.metric}": values for split, values in (("validation", fresh.validation), ("test", fresh.test)) if values}
    metrics |= {f"{name}_mean": sum(values) / len(values) for name, values in summaries.items()}
    run.log_metrics({name: value for name, value in metrics.items() if value is not None})
    place = {"best.alternative": str(result.chosen)} if result.chosen else {"best.trial": str(result.winner)}
    run.tag({**place, "best.run_id": result.best_run_id, "best.params": describe_params(result.best_params)})
    run.describe("\n".join(["```", *describe_search(result), "```"]))
    file_search_page(run)


def trial_importance(result: SearchResult, space: Mapping[str, Dimension]) -> SettingImportance | None:
    """The importance of each setting, by the scores of the first rung; None if they are too few. A trial that continues another one was
    not there."""
    epochs = result.rungs[0]
    scores = [(trial, best_value(trial.values[:epochs], result.direction)) for trial in result.trials if not (trial.error or trial.source)]
    return setting_importance(space, [(trial.params, score) for trial, score in scores if score is not None], epochs)


def winner_remarks(result: SearchResult) -> list[str]:
    """The first lines of the winner's file: where it comes from, and how well it does with fresh seeds."""
    best, search = result.best, f"of the search {result.run_id}"
    origin = f"Trial {best.number} of {len(result.trials)} {search}: {describe_params(best.params)}."
    return [
        f"Alternative {result.chosen} {search}, better than its {len(result.trials)} trials." if result.chosen else origin,
        *(f"{line[0].upper()}{line[1:]}." for line in describe_fresh(result)),
    ]
