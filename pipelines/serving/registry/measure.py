"""Has models predict the test rows, each in a process of its own with its own code, for the gates that need predictions."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.config import Config
from pipelines.config.did_you_mean import some_of
from pipelines.config.registry import Registry
from pipelines.data.features import Encoders
from pipelines.data.features.raw import numbers
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.schema import to_numpy
from pipelines.errors import ConfigError, DatasetError
from pipelines.serving.model.columns import misfits
from pipelines.serving.model.process import ModelProcess
from pipelines.serving.registry.gates import Gate, Judgement, at_least, at_most, recordable, turned_off
from pipelines.serving.registry.scores import HIGHER_IS_BETTER, OF_CLASSES, OF_QUANTITIES, Metric, class_metric, compared, quantity_metric
from pipelines.tasks.bind import task_of
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.values import NOT_A_NUMBER, ONE_CLASS, Value

_ROWS_AT_ONCE = 8_192
_WARM_UP, _REQUESTS = 10, 100
_NOTHING: Mapping[str, str] = {}
WITHOUT_ROWS = "registry.compare to false, registry.slices to [] and registry.latency_ms to null"
"""What leaves out every gate that needs rows."""


@dataclass(frozen=True)
class Target:
    """What the models predict, and the metric that compares them."""

    metric: str
    column: str
    """Of the query."""
    manifest: Manifest
    classes: tuple[str, ...]
    """Empty for a quantity."""

    @property
    def higher(self) -> bool:
        return HIGHER_IS_BETTER[self.metric]

    @property
    def checked(self) -> str:
        """The metric that the model must reproduce from raw rows. For classes it is the accuracy, not the loss: a probability cannot
        express how far beyond 1 - 1e-16 an output is."""
        return "accuracy" if self.classes else self.metric


def target_of(config: Config, manifest: Manifest) -> Target:
    """Raises ConfigError if the metric cannot be computed from the predictions of rows."""
    task = task_of(config.task, manifest)
    classes = task.data.classes or tuple(map(str, range(manifest.target.cardinality or 0))) if isinstance(task, Supervised) else ()
    known: tuple[str, ...] = ()
    if isinstance(task, Supervised):
        known = (("auc",) if len(classes) == 2 else ()) + OF_CLASSES if classes else OF_QUANTITIES
    metric = config.registry.metric or task.monitor[0]
    if metric not in known:
        choice = f", or choose {', '.join(known)}" if known else ""
        raise ConfigError(f"registry.metric: {metric} cannot be computed from a row's prediction; set {WITHOUT_ROWS}{choice}")
    return Target(metric, manifest.encoders[manifest.target.name].inputs[0], manifest, classes)


def check_slices(settings: Registry, names: list[str]) -> None:
    """Raises ConfigError unless every slice is a column and has a bound."""
    if missing := [name for name in settings.slices if name not in names]:
        raise ConfigError(f"registry.slices: the query gives no column {', '.join(missing)}; it gives {some_of(names, missing[0])}")
    if settings.slices and settings.slice_bound is None:
        raise ConfigError("registry.slice_bound: slices need one: the worst value of registry.metric that a slice may have")


def of_files(settings: Registry, folder: Path) -> list[Gate]:
    """The gate of the model's size."""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    return [] if settings.size_mb is None else [at_most("the size", size, settings.size_mb, " MB")]


def of_rows(
    settings: Registry,
    target: Target,
    rows: pa.Table,
    logged: float | None,
    candidate: Path,
    champion: Path | None,
    otherwise: Mapping[str, str] = _NOTHING,
) -> Judgement:
    """The gates that need predictions of the test rows. `logged` is the run's test metric `target.checked` if `rows` are the whole
    split; `otherwise` says why `skew` or `champion` are not checked. Raises ConfigError or DatasetError if the champion cannot predict
    them."""
    found = Judgement()
    with ModelProcess(candidate, "query") as model:
        bound = settings.latency_ms
        latency = [] if bound is None else [at_most("the latency", _latency(model, rows), bound, " ms")]
        found.add("latency", latency, "registry.latency_ms is not set")
        ours, accepted = _predicted(model, rows)
    rows, ours = rows.filter(pa.array(accepted)), ours.filter(pa.array(accepted))
    truth, known = _truth(target, rows)
    rows, ours, truth = rows.filter(pa.array(known)), ours.filter(pa.array(known)), truth[known]
    if not len(truth):
        found.numbers = {"rows": 0}
        found.add("skew", [at_least("the number of test rows that the model predicts", 0, 1)], "")
        no_rival = None if champion is not None and settings.compare else otherwise.get("champion", "registry.compare is false")
        found.not_checked |= dict.fromkeys(("champion", "slices"), "the model predicts no test row") | turned_off(settings, no_rival)
        return found
    ones = np.ones(len(truth))
    found.numbers = {"rows": len(truth), target.metric: recordable(_value(target, truth, ours))}
    reached = []
    if logged is not None:
        reached = [_reproduced(target.checked, _metric(replace(target, metric=target.checked), truth, ours)(ones), logged)]
    found.add("skew", reached, otherwise.get("skew", "the run has no such metric"))
    if champion is None or not settings.compare:
        found.add("champion", [], otherwise.get("champion", "registry.compare is false"))
    else:
        found.add("champion", [_not_worse(settings, target, rows, truth, ours, champion, found.numbers)], "")
    _judge_slices(settings, target, rows, truth, ours, found)
    return found


def _reproduced(metric: str, value: float, logged: float) -> Gate:
    near = abs(value - logged) <= 1e-3 * max(1.0, abs(logged))
    return Gate(f"{metric} of the model from raw rows", near, value, f"the run's test/{metric}, {logged:.6g},")


def _not_worse(
    settings: Registry, target: Target, rows: pa.Table, truth: NDArray[Any], ours: pa.Table, champion: Path, numbers_found: dict[str, Any]
) -> Gate:
    """Only rows that both models accept count; how many those are is recorded."""
    with ModelProcess(champion, "query") as model:
        if told := misfits(model.inputs, rows.schema):
            raise ConfigError(
                f"the champion cannot predict the rows of this config: they have {some_of(told)}; set registry.compare to false"
            )
        theirs, both = _predicted(model, rows)
    kept = pa.array(both)
    if not both.any():
        raise DatasetError("the champion refuses all of the test rows, so the models cannot be compared; set registry.compare to false")
    undefined = _value(target, truth[both], ours.filter(kept))
    if isinstance(undefined, str):
        wanted = "a comparison with the champion (choose another registry.metric, or more test rows)"
        return Gate(f"{target.metric} of the {int(both.sum())} test rows", False, recordable(undefined), wanted)
    mine, other = (_metric(target, truth[both], predicted.filter(kept)) for predicted in (ours, theirs))
    found = compared(mine, other, target.higher, int(both.sum()), settings.confidence, settings.resamples, settings.seed)
    allowed = settings.tolerance * abs(found.champion)
    numbers_found["comparison"] = {
        "rows": int(both.sum()), "candidate": found.candidate, "champion": found.champion, "lower": found.lower, "allowed": allowed,
    }  # fmt: skip
    name = (
        f"{target.metric} minus the champion's, {found.candidate:.6g} and {found.champion:.6g} on the same rows, at confidence "
        f"{settings.confidence:g}"
    )
    return Gate(name if target.higher else name.replace("minus", "below"), found.lower >= -allowed, found.lower, f"at least {-allowed:.6g}")


def _judge_slices(settings: Registry, target: Target, rows: pa.Table, truth: NDArray[Any], ours: pa.Table, found: Judgement) -> None:
    bound = at_least if target.higher else at_most
    gates, undefined, numbers_of_slices = [], [], {}
    for column in settings.slices:
        places: dict[Any, list[int]] = {}
        for row, value in enumerate(rows[column].to_pylist()):
            places.setdefault(str(value), []).append(row)
        for value, listed in sorted(places.items()):
            if len(listed) < settings.slice_rows:
                continue
            taken = np.array(listed)
            measured = _value(target, truth[taken], ours.take(pa.array(taken)))
            numbers_of_slices[f"{column} {value}"] = {"rows": len(taken), target.metric: recordable(measured)}
            if isinstance(measured, str):
                undefined.append(f"{column} {value}")
            else:
                name = f"{target.metric} of the {len(taken)} rows with {column} {value}"
                gates.append(bound(name, measured, settings.slice_bound or 0.0))
    found.numbers["slices"] = numbers_of_slices
    found.add("slices", gates, f"no value has {settings.slice_rows} rows" if settings.slices else "registry.slices is empty")
    if undefined:
        found.not_checked["slices"] = f"{target.metric} of {some_of(undefined)} is not defined"


def _predicted(model: ModelProcess, rows: pa.Table) -> tuple[pa.Table, NDArray[np.bool_]]:
    """The predictions, and whether each row was accepted."""
    batches = [model.predict(batch) for batch in rows.combine_chunks().to_batches(max_chunksize=_ROWS_AT_ONCE)]
    table = pa.Table.from_batches(batches, model.outputs)
    return table, table["refused"].is_null().to_numpy()


def _truth(target: Target, rows: pa.Table) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The number of the class, or the value in the query's units, of each row, and whether it is known."""
    if not target.classes:
        found = numbers(rows[target.column].combine_chunks())
        return found, np.isfinite(found)
    fitted = target.manifest.encoders[target.manifest.target.name]
    encoded, reasons = Encoders({target.manifest.target.name: fitted}).encode(rows)
    known = reasons.is_null().to_numpy(zero_copy_only=False)
    truth = np.zeros(len(rows), np.int64)
    truth[known] = to_numpy(fitted.column, encoded.column(0).combine_chunks())
    return truth, known


def _value(target: Target, truth: NDArray[Any], predicted: pa.Table) -> Value:
    """The metric of all these rows, or why it has none: only the AUC needs more than a row."""
    number = _metric(target, truth, predicted)(np.ones(len(truth)))
    return number if not np.isnan(number) else ONE_CLASS if target.metric == "auc" else NOT_A_NUMBER


def _metric(target: Target, truth: NDArray[Any], predicted: pa.Table) -> Metric:
    if not target.classes:
        return quantity_metric(target.metric, truth, predicted["prediction"].to_numpy())
    # A class that a model does not know has the probability 0.
    names = [f"probability_{name}" for name in target.classes]
    columns = [predicted[name].to_numpy() if name in predicted.column_names else np.zeros(len(truth)) for name in names]
    return class_metric(target.metric, truth, np.stack(columns, axis=1))


def _latency(model: ModelProcess, rows: pa.Table) -> float:
    """Milliseconds of the 95th percentile of single rows."""
    (row,) = rows.slice(0, 1).combine_chunks().to_batches()
    seconds = []
    for _ in range(_WARM_UP + _REQUESTS):
        began = time.perf_counter()
        model.predict(row)
        seconds.append(time.perf_counter() - began)
    return float(np.percentile(seconds[_WARM_UP:], 95) * 1e3)
