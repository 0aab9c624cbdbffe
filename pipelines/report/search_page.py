"""The page of a search of settings: its winner beside the config, the settings of all trials, their curves, and what was saved."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.config.train.changes import CHANGES, changes_text
from pipelines.config.tuning import Dimension
from pipelines.errors import TrackingError
from pipelines.report.figures.canvas import UndefinedError
from pipelines.report.figures.searches import importance_bars, parallel_coordinates, trial_curves
from pipelines.report.fold_metrics import describe_mean
from pipelines.report.rendering import Best, Code, Facts, Figure, Note, PageTable, Picture, percentage, readable, render
from pipelines.tracking.history import History, history, run_tags
from pipelines.tracking.search_files import SEARCH_FILE, SearchFiles, TrialResult, lineage, read_search_files

MOST_TRIALS = 200
"""Of the table."""
DrawSearch = Callable[[SearchFiles], tuple[bytes, str]]
"""Returns the SVG, and what it shows. Raises UndefinedError."""


def search_page(uri: str, run_id: str) -> str:
    """The page of the run that holds the trials of a search. Raises TrackingError if it has not ended, or if MLflow cannot be reached."""
    run, files = history(uri, run_id), read_search_files(uri, run_id)
    if files is None:
        raise TrackingError(
            f"run {run_id} is a search without {SEARCH_FILE}: it has not ended; run the same lockstep tune again, which goes on with it"
        )
    try:
        winner_tags = run_tags(uri, _winner(files).run_id)
    except TrackingError:  # somebody has removed it since
        winner_tags = {}
    return render_search(run, files, winner_tags)


def render_search(run: History, files: SearchFiles, winner_tags: Mapping[str, str]) -> str:
    """The page, of files that are read already, and of the tags of the winner's training."""
    trials = order_trials(files)
    return render(
        "search.html",
        title=run.name,
        lead=f"run {run.run_id} of experiment {run.experiment}: a search of settings",
        state=Note(f"This search has ended, with {len(trials)} trials.", "good"),
        headline=_headline(files),
        settings=_settings_table(files),
        winner_facts=_winner_facts(winner_tags, files),
        coordinates=_figure(parallel_coordinates, files),
        curves=_figure(trial_curves, files),
        importance=_figure(importance_bars, files),
        savings=_savings_table(files),
        savings_facts=_savings_facts(files),
        trials=_trials_table(files, trials),
        errors=[[trial.number, trial.error] for trial in trials if trial.error],
        decisions=[[place, job["trial"], job["epochs"]] for place, job in enumerate(files.search["jobs"], 1)],
        config=json.dumps(files.config, indent=1, ensure_ascii=False),
    )


def order_trials(files: SearchFiles) -> list[TrialResult]:
    """The trials, those that came furthest first, and of these the best first."""
    sign = -1 if files.search["direction"] == "max" else 1
    return sorted(files.trials, key=lambda trial: (trial.score is None, -trial.rung, sign * (trial.score or 0.0), trial.number))


def _figure(draw: DrawSearch, files: SearchFiles) -> Figure:
    """A figure, or a note that says why there is none."""
    try:
        svg, caption = draw(files)
    except UndefinedError as reason:
        return Figure(Note(f"There is no figure: {reason}."))
    return Figure(Picture(svg, caption, "svg+xml"), caption)


def _first(files: SearchFiles) -> TrialResult | None:
    """The trial of the config as it stood, if it is one."""
    return files.trials[0] if files.search.get("begins_with_config") else None


def _winner(files: SearchFiles) -> TrialResult:
    return next(trial for trial in files.trials if trial.number == files.search["winner"])


def _best_score(files: SearchFiles) -> float | None:
    chosen = files.search.get("chosen")
    score: float | None = files.search["alternatives"][chosen - 1]["score"] if chosen else _winner(files).score
    return score


def _headline(files: SearchFiles) -> Facts:
    metric, first, fresh = files.search["metric"], _first(files), files.search["fresh"]
    best = f"alternative {files.search['chosen']}" if files.search.get("chosen") else "the winner"
    tiles: Facts = [(f"validation {metric} of {best}", _best_score(files))] if files.search.get("chosen") else []
    tiles += [(f"validation {metric} of the winner, trial {files.search['winner']}", _winner(files).score)]
    tiles += [(f"validation {metric} of the config, trial 1", first.score)] if first else []
    tiles += [
        (
            f"{split} {metric} of {best} with {len(fresh[split])} fresh {'seed' if len(fresh[split]) == 1 else 'seeds'}",
            describe_mean(fresh[split]),
        )
        for split in ("validation", "test")
        if fresh[split]
    ]
    if combined := files.search.get("combined"):
        split = "test" if combined["test"] is not None else "validation"
        tiles += [(f"{split} {metric} of the average of {len(combined['of'])} models", combined[split])]
    return [*tiles, ("epochs saved of the full grid", percentage(files.search["saved_share"]))]


def _settings_table(files: SearchFiles) -> PageTable:
    """The settings that vary, with the values of the config and of the winner."""
    first, best = _first(files), _winner(files)
    space = {name: Dimension(**values) for name, values in files.config.get("tune", {}).get("space", {}).items()}
    rows = [
        [name, _range_text(dimension), *([_text(first.params.get(name))] if first else []), Best(_text(best.params.get(name)))]
        for name, dimension in space.items()
    ]
    return PageTable(["setting", "searched", *(["config"] if first else []), "winner"], rows)


def _range_text(dimension: Dimension) -> str:
    if dimension.choice is not None:
        return ", ".join(map(_text, dimension.choice))
    low, high = (readable(bound) for bound in dimension.bounds or ())
    kind = ", by orders of magnitude" if dimension.log is not None else ", whole" if dimension.integers is not None else ""
    return f"{low} to {high}{kind}"


def _text(value: Any) -> str:
    return readable(value) if isinstance(value, int | float | None) else str(value)


def _winner_facts(tags: Mapping[str, str], files: SearchFiles) -> Facts:
    search, best = files.search, _winner(files)
    fresh, metric = search["fresh"], search["metric"]
    facts: Facts = [
        ("training of the winner", Code(best.run_id)),
        *_alternative_facts(files),
        ("model", Code(search["model"])),
        ("its config", search["output"] or "in no file"),
        *([("its lineage", " → ".join(map(_lineage_text, line)))] if len(line := lineage(files.trials, best.number)) > 1 else []),
        ("dataset", f"version {tags.get('dataset.version', '?')}, digest {tags.get('dataset.digest', '?')[:16]}"),
    ]
    facts += [
        (f"{split} {metric} with fresh seeds", ", ".join(map(readable, fresh[split]))) for split in ("validation", "test") if fresh[split]
    ]
    if fresh["optimism"] is not None:
        gap = f"{fresh['optimism']:.2g}".replace("-", "−")
        facts += [
            (
                "optimism",
                f"the search's own {readable(_best_score(files))} is better than the mean of fresh seeds by {gap}: it is the best of many",
            )
        ]
    if combined := search.get("combined"):
        facts += [
            ("average of models, chosen by validation", Code(combined["model"])),
            ("its training", Code(combined["run_id"])),
            (f"its {metric} on validation, on test", f"{readable(combined['validation'])}, {readable(combined['test'])}"),
        ]
    return [*facts, ("trainings with fresh seeds", ", ".join(run_id[:12] for run_id in fresh["run_ids"]) or "none")]


def _alternative_facts(files: SearchFiles) -> Facts:
    """Each model of another kind, and whether it is better than the winner."""
    facts: Facts = []
    for number, alternative in enumerate(files.search.get("alternatives", ()), 1):
        verdict = "better than the winner, and the result" if number == files.search["chosen"] else "not the result"
        score = readable(alternative["score"]) if not alternative["error"] else f"failed: {alternative['error'].splitlines()[0]}"
        name = f"alternative {number}, {alternative['kind']}"
        facts.append((name, f"{score}, {verdict}; training {alternative['run_id'] or 'none'}"))
    return facts


def _savings_table(files: SearchFiles) -> PageTable:
    """How many trials came to each rung, and how many were stopped there."""
    rungs, rows = files.search["rungs"], []
    for rung, epochs in enumerate(rungs):
        reached = [trial for trial in files.trials if trial.rung >= rung and trial.source_epoch < epochs]
        stopped = sum(trial.rung == rung and not trial.error for trial in reached) if rung + 1 < len(rungs) else None
        failed = sum(trial.rung == rung and bool(trial.error) for trial in reached)
        rows.append([rung + 1, epochs, len(reached), stopped, failed])
    return PageTable(["rung", "epochs", "trials sent to it", "stopped after it", "failed"], rows)


def _savings_facts(files: SearchFiles) -> Facts:
    search = files.search
    trials = search["full_grid"] // search["rungs"][-1]  # of a population, without those that continue others
    return [
        ("epochs of all trials", search["epochs"]),
        ("of the full grid", f"{search['full_grid']:,}: each of the {trials} trials to the end"),
        ("saved", percentage(search["saved_share"])),
        ("trained by the last command", f"{search['epochs_trained']:,}; the others were in MLflow already"),
    ]


def _trials_table(files: SearchFiles, trials: Sequence[TrialResult]) -> PageTable:
    names = list(files.config.get("tune", {}).get("space", {}))
    has_lineage = any(trial.source for trial in files.trials)
    rows = []
    for trial in trials[:MOST_TRIALS]:
        score = "undefined: failed" if trial.score is None else trial.score
        origin = "another search, or by hand" if trial.is_linked else "this search"
        changes = [_source_text(trial), changes_text(trial.params.get(CHANGES, ()))] if has_lineage else []
        settings = [*(_text(trial.params.get(name)) for name in names), *changes]
        rows.append([trial.number, trial.epochs, score, *settings, Code(trial.run_id[:12]), origin])
    cut = f"; {MOST_TRIALS} of {len(trials)}, and the others in trials.json" if len(trials) > MOST_TRIALS else ""
    caption = f"Those that came furthest first, and of these the best first{cut}"
    columns = [*(name.partition(".")[2] or name for name in names), *(["continues", "changes"] if has_lineage else [])]
    header = ["trial", "epochs", files.search["metric"], *columns, "training", "begun by"]
    return PageTable(header, rows, caption)


def _source_text(trial: TrialResult) -> str:
    return f"trial {trial.source} from epoch {trial.source_epoch}" if trial.source else ""


def _lineage_text(trial: TrialResult) -> str:
    """A trial with what it has changed itself."""
    if not trial.source:
        return f"trial {trial.number}"
    return f"trial {trial.number}, {changes_text(trial.params.get(CHANGES, ())[-1:])}"
