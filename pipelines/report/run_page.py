"""The page of one run."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pipelines.config.strategies import section_of
from pipelines.report.cost import end_of, kilowatt_hours, worker_hours
from pipelines.report.curves import phases, system_charts, training_charts
from pipelines.report.events import events, marks
from pipelines.report.page import Html, Part, contents, element, facts, folded, grid, note, page, section, table, tiles
from pipelines.report.pictures import Figures, pictures, worst_tables
from pipelines.report.run_data import Material
from pipelines.report.tables import class_tables, slice_tables
from pipelines.tasks.values import Value, value_of
from pipelines.tracking.history import History
from pipelines.tracking.training import REMARKS, reasons

Section = tuple[str, list[Part]]


def run_page(material: Material, figures: Figures | None = None, *, finishing: bool = False) -> Html:
    """The file, with `figures` if they are drawn already. The run itself files its page just before its end: `finishing` is true then."""
    run = material.run
    parts = [one for one in _sections(material, figures) if one[1]]
    said = f"run {run.run_id} of experiment {run.experiment}; page made {_moment(datetime.now(UTC).timestamp())}"
    remarks = [note(line, kind="warning") for line in run.tags.get(REMARKS, "").splitlines()]
    body = [_state(material, finishing), *remarks, tiles(_headline(material)), contents(title for title, _ in parts)]
    return page(run.name, [*body, *(section(title, inner) for title, inner in parts)], said)


def _sections(material: Material, figures: Figures | None) -> Iterator[Section]:
    found = events(material)
    yield "What was trained", [facts(trained(material))]
    yield "Results", [_results(material)] if final_values(material.run) else []
    charts = [] if material.is_baseline else training_charts({"": material.run}, marks(found))
    yield "Curves", [grid(charts)] if charts else [] if material.is_baseline else [note("The run has logged no points.")]
    where = phases(material.run)
    yield "Where the time goes", [table(["phase", "seconds per step", "of the worst worker", "which is"], where)] if where else []
    happened = [[_moment(event.seconds) if event.seconds else None, event.step, event.what] for event in found]
    yield "What happened", [table(["when", "step", "what"], happened)] if happened else []
    missing = "The run has no figures: its evaluation has not ended, its task has none, or it is from before there were any."
    of_linear = [""] if material.is_baseline else []
    yield "Pictures", [*pictures(material.splits, figures, *of_linear)] or [note(missing)]
    yield "Classes and slices", [*slice_tables(material.splits), *class_tables(material.splits)]
    yield "Most wrong rows", [*worst_tables(material.splits, material.config.get("dataset", {}).get("key", ()))]
    yield "Samples", [part for name, text in material.samples.items() for part in (element("h3", name), element("pre", text))]
    nodes = system_charts(material.run)
    yield "Cost", [facts(_cost(material)), *([folded("Nodes: processor, memory, disk, network", grid(nodes))] if nodes else [])]
    config = json.dumps(material.config, indent=1, ensure_ascii=False)
    yield "Settings", [folded("Config", element("pre", config)), folded("Tags", _tags(material.run))]


def trained(material: Material) -> list[tuple[str, Part]]:
    """What was trained, on what, by which code."""
    run, config, manifest = material.run, material.config, material.manifest
    task = config.get("task", {})
    splits = {name: split.get("rows") for name, split in manifest.get("splits", {}).items()}
    pairs: list[tuple[str, Part]] = [
        ("task", f"{task.get('kind', '?')}, target {', '.join(config.get('dataset', {}).get('target', {})) or 'none'}"),
        ("dataset", f"{config.get('dataset', {}).get('path', '?')}, version {run.tags.get('dataset.version', '?')}"),
        ("digest of its rows", element("code", run.tags.get("dataset.digest", "?"))),
        ("rows", ", ".join(f"{name} {rows:,}" for name, rows in splits.items() if rows is not None)),
        ("rows refused by ETL", sum(manifest.get("quarantined", {}).values()) if manifest else None),
        ("sources", _sources(manifest)),
        ("made by ETL run", element("code", run.tags.get("dataset.run_id", "") or "none")),
        ("code", element("code", run.tags.get("git.commit", "") or "no git checkout")),
        *(_linear(run) if material.is_baseline else _by_steps(run, config.get("train", {}))),
        ("versions that made the rows", ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())),
    ]
    return [(name, value) for name, value in pairs if value not in ("", None)]


def _by_steps(run: History, train: Mapping[str, Any]) -> list[tuple[str, Part]]:
    """How a training came to its weights."""
    kind = section_of(train.get("strategy", "?")).get("kind", "?")
    return [
        ("strategy", f"{kind}, {train.get('workers', '?')} workers, {train.get('shards', '?')} shards"),
        ("optimizer", f"{train.get('optimizer', '?')}, rate {train.get('lr', '?')}, {train.get('global_batch', '?')} rows per step"),
        ("seed", train.get("seed")),
        ("began from", element("code", train["init_from"]) if train.get("init_from") else "random weights"),
        ("digest of the model", element("code", run.tags["model.digest"]) if "model.digest" in run.tags else "none yet"),
    ]


def _linear(run: History) -> list[tuple[str, Part]]:
    """The model of a baseline."""
    strength = run.params.get("regularisation", "?")
    return [("model", f"{run.params.get('model', '?')} of Spark ML, a linear baseline"), ("regularisation", strength)]


def final_values(run: History) -> dict[str, Value]:
    """The last value of each metric of validation and test, or why it has none."""
    curves = {name: points for name, points in run.curves.items() if name.startswith(("validation/", "test/")) and points}
    numbers = {name: value_of(points[-1].value) for name, points in curves.items() if name != "validation/epoch"}
    return {**reasons(run.tags), **numbers}


def shown(value: Value | None) -> Part:
    """A metric in a table."""
    return f"undefined: {value}" if isinstance(value, str) else value


def difference(one: Value | None, other: Value | None) -> float | None:
    """Of two metrics, if both have a value."""
    return one - other if isinstance(one, float) and isinstance(other, float) else None


def _results(material: Material) -> Html:
    """Metrics of the test, and of the last validation; beside those of the run that gave the initial weights."""
    own, parent = final_values(material.run), final_values(material.parent) if material.parent else {}
    best = {name.removeprefix("validation/"): value for name, value in best_validation(material).items()}
    names = sorted({name.split("/", 1)[1] for name in own})
    bar = {name.removeprefix("baseline/"): points[-1].value for name, points in material.run.curves.items() if name.startswith("baseline/")}
    header: list[Part] = ["metric", "test", *(["of the trivial predictor"] if bar else []), "best epoch's validation", "last validation"]
    header += ["of the trivial predictor"] if bar else []
    header += [f"test of its parent {material.parent.run_id[:8]}", "difference"] if material.parent else []
    rows = []
    for name in names:
        test, before = own.get(f"test/{name}"), parent.get(f"test/{name}")
        row: list[Part] = [name, shown(test), *([bar.get(f"test/{name}")] if bar else [])]
        row += [*map(shown, (best.get(name), own.get(f"validation/{name}"))), *([bar.get(f"validation/{name}")] if bar else [])]
        if material.parent:
            row += [shown(before), difference(test, before)]
        rows.append(row)
    if material.is_baseline:
        return table(["metric", "test", "validation"], [row[:3] for row in rows])
    return table(header, rows)


def best_validation(material: Material) -> dict[str, Value]:
    """The metrics of the best epoch on the validation split, `validation/…`; empty if they were not kept."""
    return {
        f"validation/{name}": value for split in material.splits if split.name == "validation" for name, value in _metrics(split.summary)
    }


def _metrics(summary: Any) -> list[tuple[str, Value]]:
    return [(name, value if isinstance(value, str) else value_of(float(value))) for name, value in summary.get("metrics", {}).items()]


def _state(material: Material, finishing: bool) -> Html:
    run = material.run
    if finishing or run.status == "FINISHED":
        return note("This run is finished.", kind="good")
    until = f"The page has what it logged up to step {material.steps:,}."
    if run.is_alive:
        return note(f"This run is still training. {until}")
    if run.status == "RUNNING":
        return note(f"MLflow says RUNNING, but the process of this run has ended. {until} The same command resumes it.", kind="warning")
    return note(f"This run is {run.status}. {until} The same command resumes it.", kind="warning")


def _headline(material: Material) -> list[tuple[str, Part]]:
    run, hours = material.run, worker_hours(material)
    final = final_values(run)
    tests = {name: value for name, value in final.items() if name.startswith("test/")} or final
    seconds = end_of(material) - run.started
    pairs: list[tuple[str, Part]] = [
        *((name, shown(value)) for name, value in list(tests.items())[:4]),
        *([] if material.is_baseline else [("steps", material.steps)]),
        ("from begin to end", duration(seconds)),
    ]
    return [*pairs, *([("worker hours", hours)] if hours is not None else [])]


def _cost(material: Material) -> list[tuple[str, Part]]:
    run, energy = material.run, kilowatt_hours(material)
    pairs: list[tuple[str, Part]] = [
        ("began", _moment(run.started)),
        ("from begin to end", duration(end_of(material) - run.started)),
        *([("worker hours", hours)] if (hours := worker_hours(material)) is not None else []),
        *((f"energy of {kind}, kWh", value) for kind, value in energy.items()),
    ]
    return pairs if energy else [*pairs, ("energy", "not measured: no power meter could be read (NVML, RAPL)")]


def _sources(manifest: Any) -> Html | str:
    found = manifest.get("sources", {})
    rows = [[name, one.get("files"), one.get("bytes"), element("code", str(one.get("digest", ""))[:16])] for name, one in found.items()]
    return table(["table", "files", "bytes", "digest"], rows) if rows else ""


def _tags(run: History) -> Html:
    return table(["tag", "value"], [[name, value] for name, value in sorted(run.tags.items()) if not name.startswith("mlflow.log-model")])


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 5_400 else f"{whole // 3_600} h {whole % 3_600 // 60} min"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
