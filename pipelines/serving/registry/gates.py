"""Gates: a measured value, the config's condition, and whether that holds; and which gates were not checked, and why.

Those that need the test rows have models predict them, each in a process of its own with its own code.
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from pipelines.config import Config
from pipelines.config.messages.words import name_list
from pipelines.config.serving import GateName, Registry
from pipelines.data.sources.base import raw_tables
from pipelines.data.sources.source_errors import source_errors
from pipelines.data.sources.tables import read_tables
from pipelines.data.versions.manifest import Manifest
from pipelines.errors import ConfigError, DatasetError
from pipelines.etl.identity import check_unchanged, collect_sources, version_name
from pipelines.etl.judge import judge
from pipelines.etl.query import analyse, run_query
from pipelines.etl.refusals import accepted_rows
from pipelines.etl.splits.split_assignment import INTERNAL, ROW, SPLIT, TEST, content_order
from pipelines.serving.model.column_casts import misfits, schema_of_values
from pipelines.serving.model.process import ModelProcess
from pipelines.serving.registry.champion_comparison import ComparisonTarget, bootstrap_comparison
from pipelines.spark.session import suit_columns
from pipelines.tasks.metrics.table import Value, format_value, to_value

_BATCH_ROWS = 8_192
_WARM_UP, _REQUESTS = 10, 100


@dataclass(frozen=True)
class Gate:
    """One condition of a promotion."""

    name: str
    holds: bool
    value: float | str | None
    condition: str
    gate: str = ""
    """Which of the config's gates it belongs to."""

    def __str__(self) -> str:
        value = f"{self.value:.6g}" if isinstance(self.value, float) else "missing" if self.value is None else str(self.value)
        return f"{self.name} is {value}, and {self.condition} is wanted"

    def record(self) -> dict[str, Any]:
        return {"name": self.name, "holds": self.holds, "found": self.value, "wanted": self.condition, "gate": self.gate}


@dataclass
class Judgement:
    """All conditions that were checked, the gates that were not, and other measurements."""

    conditions: list[Gate] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)
    """The reason, by gate: also of one that was checked in part, such as on some slices."""
    numbers: dict[str, Any] = field(default_factory=dict)

    def add(self, gate: GateName, conditions: Iterable[Gate], otherwise: str) -> None:
        """Add the conditions of a gate; `otherwise` says why it is not checked if there are none."""
        labelled = [replace(condition, gate=gate) for condition in conditions]
        self.conditions += labelled
        if not labelled:
            self.not_checked[gate] = otherwise

    def failures(self, required: Iterable[str]) -> list[str]:
        """The conditions that do not hold, and the required gates that are not checked."""
        unchecked = [f"{gate} is required and not checked ({self.not_checked[gate]})" for gate in required if gate in self.not_checked]
        return [str(condition) for condition in self.conditions if not condition.holds] + unchecked

    @property
    def passed_gates(self) -> list[str]:
        """The gates of which every condition was checked and holds."""
        not_passed = self.not_checked.keys() | {condition.gate for condition in self.conditions if not condition.holds}
        return [gate for gate in dict.fromkeys(condition.gate for condition in self.conditions) if gate not in not_passed]

    def __str__(self) -> str:
        not_checked = ", ".join(f"{gate} ({why})" for gate, why in self.not_checked.items())
        return f"held: {', '.join(self.passed_gates) or 'none'}; not checked: {not_checked or 'none'}"

    def record(self) -> dict[str, Any]:
        failed = sorted({condition.gate for condition in self.conditions if not condition.holds})
        states = {"held": self.passed_gates, "failed": failed, "not_checked": self.not_checked}
        return {"gates": [condition.record() for condition in self.conditions], **states, "measured": self.numbers}


def skip_reasons(settings: Registry, no_rival: str | None) -> dict[str, str]:
    """The reasons for gates that need rows and would not be checked anyway, by gate. `no_rival` says why there is no comparison."""
    reasons = {
        "champion": no_rival,
        "slices": None if settings.slices else "registry.slices is empty",
        "latency": "registry.latency_ms is not set" if settings.latency_ms is None else None,
    }
    return {gate: reason for gate, reason in reasons.items() if reason is not None}


def at_most(name: str, value: Value | None, bound: float, unit: str = "") -> Gate:
    """A gate that does not hold without a value, or if `value` is the reason why there is none."""
    return Gate(name, not isinstance(value, str | None) and value <= bound, value_in_json(value), f"at most {bound:g}{unit}")


def at_least(name: str, value: Value | None, bound: float) -> Gate:
    return Gate(name, not isinstance(value, str | None) and value >= bound, value_in_json(value), f"at least {bound:g}")


def value_in_json(value: Value | None) -> Value | None:
    """The value as JSON can record it: a text in place of an undefined number."""
    return format_value(value) if isinstance(value, str) else value


def equal(name: str, value: str, expected: str) -> Gate:
    return Gate(name, value == expected, value, expected)


def bounds(settings: Registry, metrics: Mapping[str, float], reasons: Mapping[str, str] | None = None) -> list[Gate]:
    """The absolute bounds of test metrics; `metrics` are those of a run in MLflow, `reasons` say why others have no value."""
    values = {**(reasons or {}), **{name: to_value(number) for name, number in metrics.items()}}
    lower = [at_least(f"test/{name}", values.get(f"test/{name}"), bound) for name, bound in settings.at_least.items()]
    return lower + [at_most(f"test/{name}", values.get(f"test/{name}"), bound) for name, bound in settings.at_most.items()]


def test_rows(spark: SparkSession, config: Config, manifest: Manifest, max_rows: int) -> tuple[pa.Table, Gate]:
    """The query's columns of at most `max_rows` rows of the test split, always the same rows in the same order, and the gate that the
    sources are those of the version with this `manifest`. If they are not, there are no rows. Raises SourceError if a source changed during
    reading."""
    tables = raw_tables(config.source)
    before = collect_sources(config.source, tables, lambda table: table.state())
    is_deterministic = not analyse(spark, config, tables)
    identities = collect_sources(config.source, tables, lambda table: table.identity(spark))
    name = version_name(config, tables, identities, spark, manifest.parent_digest)
    gate = equal("the version that the sources, by their checksums, would make", name, manifest.version)
    if not gate.holds:
        return pa.table({}), gate
    with source_errors(config.source):
        read_tables(spark, tables, suit_columns)
        rows = accepted_rows(judge(run_query(spark, config, is_deterministic), config, is_deterministic)).where(f"{SPLIT} = {TEST}")
        table = rows.orderBy(ROW, *content_order(rows)).limit(max_rows).drop(*INTERNAL).toArrow()
    check_unchanged(tables, before)
    return table, gate


@dataclass(frozen=True)
class PredictedRows:
    """Rows with their true values, and a model's predictions of them."""

    rows: pa.Table
    truth: NDArray[Any]
    table: pa.Table

    def filter(self, mask: NDArray[np.bool_]) -> "PredictedRows":
        return PredictedRows(self.rows.filter(pa.array(mask)), self.truth[mask], self.table.filter(pa.array(mask)))


def check_slices(settings: Registry, names: list[str]) -> None:
    """Raises ConfigError unless every slice is a column and has a bound."""
    if missing := [name for name in settings.slices if name not in names]:
        raise ConfigError(f"registry.slices: the query gives no column {', '.join(missing)}; it gives {name_list(names, missing[0])}")
    if settings.slices and settings.slice_bound is None:
        raise ConfigError("registry.slice_bound: slices need one: the worst value of registry.metric that a slice may have")


def size_gates(settings: Registry, folder: Path) -> list[Gate]:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    return [] if settings.size_mb is None else [at_most("the size", size, settings.size_mb, " MB")]


def judge_predictions(
    settings: Registry,
    target: ComparisonTarget,
    rows: pa.Table,
    logged: float | None,
    candidate: Path,
    champion: Path | None,
    no_check: Mapping[str, str] | None = None,
) -> Judgement:
    """The gates that need predictions of the test rows. `logged` is the run's test metric `target.skew.metric` if `rows` are the entire
    split; `no_check` says why `skew` or `champion` are not checked. Raises ConfigError or DatasetError if the champion cannot predict
    them."""
    no_check = {"skew": "the run has no such metric", "champion": "registry.compare is false", **(no_check or {})}
    judgement = Judgement()
    with ModelProcess(candidate, "query") as model:
        latency = [] if settings.latency_ms is None else [at_most("the latency", _latency_ms(model, rows), settings.latency_ms, " ms")]
        judgement.add("latency", latency, "registry.latency_ms is not set")
        table, is_accepted = _predict(model, rows)
    truth, is_known = target.truth(rows)
    predictions = PredictedRows(rows, truth, table).filter(is_accepted & is_known)
    judgement.numbers = {"rows": len(predictions.truth)}
    if not len(predictions.truth):
        judgement.add("skew", [at_least("the number of test rows that the model predicts", 0, 1)], "")
        no_rival = None if champion is not None and settings.compare else no_check["champion"]
        judgement.not_checked |= dict.fromkeys(("champion", "slices"), "the model predicts no test row") | skip_reasons(settings, no_rival)
        return judgement
    judgement.numbers[target.metric] = value_in_json(target.value(predictions.truth, predictions.table))
    judgement.add("skew", [] if logged is None else [_reproduces_logged_metric(target.skew, predictions, logged)], no_check["skew"])
    if champion is None or not settings.compare:
        judgement.add("champion", [], no_check["champion"])
    else:
        judgement.add("champion", [_is_no_worse(settings, target, predictions, champion, judgement.numbers)], "")
    _judge_slices(settings, target, predictions, judgement)
    return judgement


def _reproduces_logged_metric(target: ComparisonTarget, predictions: PredictedRows, logged: float) -> Gate:
    value = target.metric_by_weights(predictions.truth, predictions.table)(np.ones(len(predictions.truth)))
    # A quantity has units: what is near follows them, down to the digits of its float32.
    absolute = 1e-3 if target.classes else 1e-5 * float(np.abs(predictions.truth).max(initial=0.0))
    is_near = math.isclose(value, logged, rel_tol=1e-3, abs_tol=absolute)
    return Gate(f"{target.metric} of the model from raw rows", is_near, value, f"the run's test/{target.metric}, {logged:.6g},")


def _is_no_worse(settings: Registry, target: ComparisonTarget, predictions: PredictedRows, champion: Path, numbers: dict[str, Any]) -> Gate:
    """The gate of the comparison with the champion, on the rows that both models accept; `numbers` get its values."""
    with ModelProcess(champion, "query") as model:
        if faults := misfits(model.inputs, schema_of_values(predictions.rows)):
            raise ConfigError(
                f"the champion cannot predict the rows of this config: they have {name_list(faults)}; set registry.compare to false"
            )
        champion_table, is_accepted = _predict(model, predictions.rows)
    if not is_accepted.any():
        raise DatasetError("the champion refuses all of the test rows, so the models cannot be compared; set registry.compare to false")
    shared, rows = predictions.filter(is_accepted), int(is_accepted.sum())
    undefined = target.value(shared.truth, shared.table)
    if isinstance(undefined, str):
        condition = "a comparison with the champion (choose another registry.metric, or more test rows)"
        return Gate(f"{target.metric} of the {rows} test rows", False, value_in_json(undefined), condition)
    tables = shared.table, champion_table.filter(pa.array(is_accepted))
    candidate_metric, champion_metric = (target.metric_by_weights(shared.truth, table) for table in tables)
    comparison = bootstrap_comparison(
        candidate_metric, champion_metric, target.is_higher_better, rows, settings.confidence, settings.resamples, settings.seed
    )
    allowed = settings.tolerance * abs(comparison.champion)
    numbers["comparison"] = {"rows": rows, **vars(comparison), "allowed": allowed}
    name = (
        f"{target.metric} {'minus' if target.is_higher_better else 'below'} the champion's, {comparison.candidate:.6g} and "
        f"{comparison.champion:.6g} on the same rows, at confidence {settings.confidence:g}"
    )
    return Gate(name, comparison.lower >= -allowed, comparison.lower, f"at least {-allowed:.6g}")


def _judge_slices(settings: Registry, target: ComparisonTarget, predictions: PredictedRows, judgement: Judgement) -> None:
    bound = at_least if target.is_higher_better else at_most
    gates, undefined = [], []
    numbers: dict[str, Any] = {}
    for column in settings.slices:
        texts = np.array([str(value) for value in predictions.rows[column].to_pylist()], object)
        for text, rows in sorted(Counter(texts).items()):
            if rows < settings.slice_rows:
                continue
            part = predictions.filter(texts == text)
            value = target.value(part.truth, part.table)
            numbers[f"{column} {text}"] = {"rows": rows, target.metric: value_in_json(value)}
            if isinstance(value, str):
                undefined.append(f"{column} {text}")
            else:
                gates.append(bound(f"{target.metric} of the {rows} rows with {column} {text}", value, settings.slice_bound or 0.0))
    judgement.numbers["slices"] = numbers
    judgement.add("slices", gates, f"no value has {settings.slice_rows} rows" if settings.slices else "registry.slices is empty")
    if undefined:
        judgement.not_checked["slices"] = f"{target.metric} of {name_list(undefined)} is not defined"


def _predict(model: ModelProcess, rows: pa.Table) -> tuple[pa.Table, NDArray[np.bool_]]:
    """The predictions, and whether each row was accepted."""
    batches = [model.predict(batch) for batch in rows.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)]
    table = pa.Table.from_batches(batches, model.outputs)
    return table, table["refused"].is_null().to_numpy()


def _latency_ms(model: ModelProcess, rows: pa.Table) -> float:
    """The 95th percentile of single rows."""
    (row,) = rows.slice(0, 1).combine_chunks().to_batches()
    seconds = []
    for _ in range(_WARM_UP + _REQUESTS):
        start = time.perf_counter()
        model.predict(row)
        seconds.append(time.perf_counter() - start)
    return float(np.percentile(seconds[_WARM_UP:], 95) * 1e3)
