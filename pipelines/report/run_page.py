"""The page of one run."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pipelines.config.messages.words import list_shapes, show_count
from pipelines.config.slices import slice_modules
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.strategy import STRATEGIES
from pipelines.report.charts import Mark
from pipelines.report.page_parts import (
    SplitFigures,
    class_tables,
    phases,
    slice_tables,
    split_pictures,
    system_charts,
    training_charts,
    worst_tables,
)
from pipelines.report.rendering import Code, Facts, Note, PageTable, render
from pipelines.report.run_data import RunData, end_seconds, kilowatt_hours, run_events, worker_hours
from pipelines.tasks.metrics.table import Value, to_value
from pipelines.tasks.targets.decision import describe_decision
from pipelines.tracking.history import History
from pipelines.tracking.training import BETTER_LAYOUT, MEASURED_SECONDS, ORIGIN_RUNS, PLANNED_LAYOUT, PLANNED_SECONDS, REMARKS, reasons


def run_page(data: RunData, figures: SplitFigures | None = None, *, is_finishing: bool = False) -> str:
    """The page, with `figures` if they are drawn already. A run files its page just before its end: `is_finishing` is true then."""
    run, events = data.run, run_events(data)
    marks = [Mark(event.step, event.text, event.colour) for event in events if event.step]  # the beginning is none
    application_tables = [tables for module in slice_modules("figures").values() for tables in getattr(module, "TABLES", ())]
    energy: Facts = [(f"energy of {kind}, kWh", value) for kind, value in kilowatt_hours(data).items()]
    return render(
        "run.html",
        title=run.name,
        lead=f"run {run.run_id} of experiment {run.experiment}; page made {_moment(datetime.now(UTC).timestamp())}",
        is_baseline=data.is_baseline,
        state=_state(data, is_finishing),
        remarks=run.tags.get(REMARKS, "").splitlines(),
        headline=_headline(data),
        training_facts=training_facts(data),
        results=_results(data),
        curves=[] if data.is_baseline else training_charts({"": run}, marks),
        phases=phases(run),
        events=[[_moment(event.seconds) if event.seconds else None, event.step, event.text] for event in events],
        pictures=split_pictures(data.splits, figures),
        class_and_slice_tables=[table for tables in (slice_tables, class_tables, *application_tables) for table in tables(data.splits)],
        worst_tables=worst_tables(data.splits, data.config.get("dataset", {}).get("key", ())),
        samples=data.samples,
        cost=[
            ("began", _moment(run.started)),
            *_times(data),
            *(energy or [("energy", "not measured: no power meter could be read (NVML, RAPL)")]),
        ],
        nodes=system_charts(run),
        config=json.dumps(data.config, indent=1, ensure_ascii=False),
        tags=[[name, value] for name, value in sorted(run.tags.items()) if not name.startswith("mlflow.log-model")],
    )


def training_facts(data: RunData) -> Facts:
    """The task, its dataset, and the code that trained it."""
    run, config, manifest = data.run, data.config, data.manifest
    dataset, rows = config.get("dataset", {}), {name: split.get("rows") for name, split in manifest.get("splits", {}).items()}
    sources = [
        [name, source.get("files"), source.get("bytes"), Code(str(source.get("digest", ""))[:16])]
        for name, source in manifest.get("sources", {}).items()
    ]
    facts: Facts = [
        ("task", f"{config.get('task', {}).get('kind', '?')}, target {', '.join(dataset.get('target', {})) or 'none'}"),
        ("dataset", f"{dataset.get('path', '?')}, version {run.tags.get('dataset.version', '?')}"),
        ("digest of its rows", Code(run.tags.get("dataset.digest", "?"))),
        ("rows", ", ".join(f"{name} {count:,}" for name, count in rows.items() if count is not None)),
        ("rows refused by ETL", sum(manifest.get("quarantined", {}).values()) if manifest else None),
        ("sources", PageTable(["table", "files", "bytes", "digest"], sources) if sources else None),
        ("made by ETL run", Code(run.tags.get("dataset.run_id", "") or "none")),
        ("weight of a row in the loss", config.get("task", {}).get("sample_weight")),
        ("label smoothing in training", config.get("task", {}).get("label_smoothing") or None),
        *_decision_facts(data),
        ("code", Code(run.tags.get("git.commit", "") or "no git checkout")),
        *_model_facts(data),
        ("versions that made the rows", ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())),
    ]
    return [(name, value) for name, value in facts if value not in ("", None)]


def _decision_facts(data: RunData) -> Facts:
    """How the model decides between two classes, with its calibration error on each split."""
    has_weights = data.config.get("task", {}).get("class_weights", "none") != "none"
    return [
        (f"decision, measured on {split.name}", describe_decision(split.summary["decision"], str(split.summary["classes"][1]), has_weights))
        for split in data.splits
        if split.summary.get("decision")
    ]


def _model_facts(data: RunData) -> Facts:
    """How the model was trained, or a baseline fitted."""
    run, train = data.run, data.config.get("train", {})
    if data.is_baseline:
        parameters = ((name, run.params.get(name)) for name in ("regularisation", "trees", "rounds", "depth"))
        return [("model", f"{run.params.get('model', '?')} of Spark ML, a baseline"), *parameters]
    workers, settings = train.get("workers", "?"), TASKS.by_name.get(data.config.get("task", {}).get("kind") or "")
    if isinstance(workers, Sequence) and not isinstance(workers, str):
        workers = " to ".join(map(str, workers))
    is_network = settings is None or not settings.needs_own_strategy
    optimizer = f"{train.get('optimizer', '?')}, rate {train.get('lr', '?')}, {show_count(train.get('global_batch', '?'), 'row')} per step"
    kind = STRATEGIES.expand(train.get("strategy", "?")).get("kind", "?")
    members = run.tags.get(ORIGIN_RUNS, "")
    return [
        ("strategy", f"{kind}, {show_count(workers, 'worker')}, {show_count(train.get('shards', '?'), 'shard')}"),
        *_plan_facts(run),
        ("optimizer", optimizer if is_network else None),
        ("rate", None if is_network or members else train.get("lr")),
        ("seed", train.get("seed")),
        *([("made of the models of", Code(members))] if members else _origin_facts(train, data.init_from)),
        ("digest of the model", Code(run.tags["model.digest"]) if "model.digest" in run.tags else "none yet"),
    ]


def _plan_facts(run: History) -> Facts:
    """The layout that a plan has chosen, with what it expected of a step, and one that would be faster."""
    tags = run.tags
    if PLANNED_LAYOUT not in tags:
        return []
    measured = f", {tags[MEASURED_SECONDS]} s measured" if MEASURED_SECONDS in tags else ""
    layout = f"{tags[PLANNED_LAYOUT]}: {tags.get(PLANNED_SECONDS, '?')} s a step expected{measured}"
    return [("planned layout", layout), ("a faster layout", tags.get(BETTER_LAYOUT))]


def _origin_facts(train: Mapping[str, Any], fit: Mapping[str, Any]) -> Facts:
    """The weights that a training began from, and the tensors of both sides that did not fit."""
    origin = train.get("init_from") or ""
    if isinstance(origin, Mapping):
        origin = next((origin[name] for name in ("run", "file", "folder") if origin.get(name)), "")
    facts: Facts = [("began from", Code(origin) if origin else "random weights")]
    names = {"initialised": "tensors that were initialised", "unused": "tensors that the model does not use"}
    facts += [(title, f"{len(fit[name])}: {list_shapes(fit[name])}") for name, title in names.items() if fit.get(name)]
    if frozen := train.get("freeze"):
        facts.append(("frozen parameters", ", ".join(frozen)))
    return facts


def final_values(run: History) -> dict[str, Value]:
    """The last value of each metric of validation and test, or why it has none."""
    curves = {name: points for name, points in run.curves.items() if name.startswith(("validation/", "test/")) and points}
    numbers = {name: to_value(points[-1].value) for name, points in curves.items() if name != "validation/epoch"}
    return {**reasons(run.tags), **numbers}


def metric_cell(value: Value | None) -> Value | None:
    """A metric in a table, or why it is undefined."""
    return f"undefined: {value}" if isinstance(value, str) else value


def difference(value: Value | None, base: Value | None) -> float | None:
    """The difference of two metrics, if both have a value."""
    return value - base if isinstance(value, float) and isinstance(base, float) else None


def _results(data: RunData) -> PageTable:
    """Metrics of the test and of the validation; beside those of the trivial predictor, and of the run that gave the initial weights."""
    final, best = final_values(data.run), best_validation(data)
    trivial = {name.removeprefix("baseline/"): points[-1].value for name, points in data.run.curves.items() if name.startswith("baseline/")}
    names = sorted({name.split("/", 1)[1] for name in final})

    def column(values: Mapping[str, Value], split: str) -> list[Value | None]:
        return [metric_cell(values.get(f"{split}/{name}")) for name in names]

    columns: list[tuple[str, Sequence[object]]] = [("metric", names), ("test", column(final, "test"))]
    if data.is_baseline:
        columns += [("validation", column(best, "validation"))]
    else:
        columns += [("of the trivial predictor", column(trivial, "test"))] if trivial else []
        columns += [("best epoch's validation", column(best, "validation")), ("last validation", column(final, "validation"))]
        columns += [("of the trivial predictor", column(trivial, "validation"))] if trivial else []
    if data.parent:
        parent = final_values(data.parent)
        columns += [
            (f"test of its parent {data.parent.run_id[:8]}", column(parent, "test")),
            ("difference", [difference(final.get(f"test/{name}"), parent.get(f"test/{name}")) for name in names]),
        ]
    return PageTable([title for title, _ in columns], list(zip(*(cells for _, cells in columns), strict=True)))


def best_validation(data: RunData) -> dict[str, Value]:
    """The metrics of the best epoch on the validation split, `validation/…`; empty if they were not kept."""
    return {
        f"validation/{name}": value if isinstance(value, str) else to_value(float(value))
        for split in data.splits
        if split.name == "validation"
        for name, value in split.summary.get("metrics", {}).items()
    }


def _state(data: RunData, is_finishing: bool) -> Note:
    run = data.run
    if is_finishing or run.status == "FINISHED":
        return Note("This run is finished.", "good")
    until = f"The page has what it logged up to step {data.steps:,}."
    if run.is_alive:
        return Note(f"This run is still training. {until}")
    if run.status == "RUNNING":
        return Note(f"MLflow says RUNNING, but the process of this run has ended. {until} The same command resumes it.", "warning")
    return Note(f"This run is {run.status}. {until} The same command resumes it.", "warning")


def _headline(data: RunData) -> Facts:
    final, monitors = final_values(data.run), {split.summary.get("monitor") for split in data.splits}
    tests = {name: value for name, value in final.items() if name.startswith("test/")} or final
    names = sorted(tests, key=lambda name: name.split("/", 1)[1] not in monitors)  # that which chose the epoch is the first
    return [
        *((name, metric_cell(tests[name])) for name in names[:4]),
        *([] if data.is_baseline else [("steps", data.steps)]),
        *_times(data),
    ]


def _times(data: RunData) -> Facts:
    hours = worker_hours(data)
    return [
        ("from begin to end", duration(end_seconds(data) - data.run.started)),
        *([("worker hours", hours)] if hours is not None else []),
    ]


def duration(seconds: float) -> str:
    rounded = round(seconds)
    if rounded < 90:
        return f"{rounded} s"
    return f"{rounded // 60} min {rounded % 60} s" if rounded < 5_400 else f"{rounded // 3_600} h {rounded % 3_600 // 60} min"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
