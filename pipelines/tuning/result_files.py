"""Files the figures, the table of trials and the page of a search in its run, and words the remarks in the winner's config."""

import json
from dataclasses import asdict

from pipelines.tracking.search_run import SearchRun
from pipelines.tuning.search_result import SearchResult, describe_fresh, describe_params, describe_search

TRIALS, SEARCH = "trials.json", "search.json"
"""Artifacts of a search's run: a row for each trial, and everything else."""


def log_result(run: SearchRun, result: SearchResult) -> None:
    """Log the search's figures and its table of trials. Raises TrackingError."""
    rows = [asdict(trial) for trial in result.trials]
    run.file(TRIALS, json.dumps(rows, indent=1).encode())
    run.file(SEARCH, json.dumps({**result.values(), "jobs": [asdict(job) for job in result.jobs]}, indent=1).encode())
    fresh = result.fresh
    metrics = {"search/best_score": result.best.score, "search/epochs": float(result.epochs), "search/saved_share": result.saved_share}
    metrics |= {"search/epochs_trained": float(result.epochs_trained), "search/optimism": fresh.optimism}
    summaries = {f"{split}/{result.metric}": values for split, values in (("validation", fresh.validation), ("test", fresh.test)) if values}
    metrics |= {f"{name}_mean": sum(values) / len(values) for name, values in summaries.items()}
    run.log_metrics({name: value for name, value in metrics.items() if value is not None})
    run.tag({"best.trial": str(result.winner), "best.run_id": result.best.run_id, "best.params": describe_params(result.best.params)})
    run.describe("\n".join(["```", *describe_search(result), "```"]))


def winner_remarks(result: SearchResult) -> list[str]:
    """The first lines of the winner's file: where it comes from, and how well it does with fresh seeds."""
    best = result.best
    return [
        f"Trial {best.number} of {len(result.trials)} of the search {result.run_id}: {describe_params(best.params)}.",
        *(f"{line[0].upper()}{line[1:]}." for line in describe_fresh(result)),
    ]
