"""Encoders fitted to small tables, without Spark: what ETL's fit stage does, in one process."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config.dataset.dataset import Dataset
from pipelines.config.features.base import is_pattern
from pipelines.data.features import check_columns, fit_encoders, needs
from pipelines.data.features.auto.choice import Choice, choose, settle
from pipelines.data.features.auto.patterns import name_columns
from pipelines.data.features.base import COUNTED, MOMENTS, Encoder
from pipelines.data.features.encoding import restore_encoder
from pipelines.data.features.raw import is_number, missing_values
from pipelines.data.features.statistics import Accumulator, Statistics, statistics_from_summary
from pipelines.data.features.text_pieces import term_rule
from pipelines.data.versions.manifest import FittedEncoder


def column_statistics(values: pa.Array, needed: frozenset[str]) -> Statistics:
    """One column's statistics, gathered in one partition."""
    accumulator = Accumulator(needed)
    accumulator.add(values, np.random.Philox(key=0).random_raw(len(values)))
    terms = {need: accumulator.drain(need) for need in needed if term_rule(need)}
    return statistics_from_summary(accumulator.summary(), accumulator.drain() if COUNTED & needed else None, terms)


def fit(features: Mapping[str, Any], target: Mapping[str, Any], raw: pa.Table) -> dict[str, FittedEncoder]:
    """Fitted encoders; features and target as a YAML file has them."""
    dataset = Dataset.model_validate({"path": "data", "features": features, "target": target})
    check_columns(dataset, raw.schema)
    return fit_encoders(dataset, gather_statistics(dataset, raw), raw.schema)


def choose_in_memory(features: Mapping[str, Any], target: Mapping[str, Any], raw: pa.Table) -> Choice:
    """The settled choice of `auto`, where all rows are in the sample and in the training split."""
    dataset = Dataset.model_validate({"path": "data", "features": features, "target": target})
    choice = choose(name_columns(dataset, raw.schema), [name for name in features if not is_pattern(name)], raw)
    numbers = {column for column in raw.column_names if is_number(raw.schema.field(column).type)}
    statistics = {
        column: column_statistics(raw.column(column).combine_chunks(), needed | ({MOMENTS} if column in numbers else set()))
        for column, needed in needs(choice.dataset).items()
    }
    missing = {column: missing_values(raw.column(column).combine_chunks()) for column in choice.columns_read}
    return settle(choice, statistics, missing, len(raw))


def gather_statistics(dataset: Dataset, raw: pa.Table) -> dict[str, Statistics]:
    """Statistics of the columns that encoders read."""
    return {column: column_statistics(raw.column(column).combine_chunks(), needed) for column, needed in needs(dataset).items()}


def fit_encoder(settings: Any, *columns: pa.Array) -> Encoder:
    """One fitted encoder over the columns a, b, …"""
    names = [chr(ord("a") + number) for number in range(len(columns))]
    raw = pa.table({**dict(zip(names, columns, strict=True)), "target": pa.array(range(len(columns[0])), pa.int64())})
    settings = {"encoder": settings} if isinstance(settings, str) else settings
    placed = {**settings, "columns": names} if settings["encoder"] == "fourier" else {**settings, "column": "a"}
    return restore_encoder(fit({"feature": placed}, {"target": "identity"}, raw)["feature"])
