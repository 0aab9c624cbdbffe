"""Encoders of single numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.serving.export.standalone.columns import Column, encoder, float_values, is_null


def fill_null(values: np.ndarray, fill: float | None) -> np.ndarray:
    return values if fill is None else np.where(np.isnan(values), fill, values)


def to_float32(settings: Mapping[str, Any], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values as float32, and a mask of those that it cannot hold: NaN is one, unless the settings keep it."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    refused = ~np.isfinite(narrow)
    return narrow, refused & ~np.isnan(values) if _keeps_missing(settings) else refused


def _keeps_missing(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("impute") == "keep")


@encoder("standardize")
def standardize(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(over="ignore"):
        return to_float32(settings, (fill_null(float_values(column), state["impute"]) - state["mean"]) / state["deviation"])


@encoder("minmax")
def minmax(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(over="ignore"):
        return to_float32(settings, (fill_null(float_values(column), state["impute"]) - state["minimum"]) / state["span"])


@encoder("log1p")
def log1p(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    values = fill_null(float_values(column), state["impute"])
    return to_float32(settings, np.copysign(np.log1p(np.abs(values)), values))


@encoder("identity")
def identity(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    if state["dtype"] == "float32":
        return to_float32(settings, fill_null(float_values(column), state["impute"]))
    instead = state["impute"]
    values = np.array([(instead or 0) if value is None else value for value in column.values], state["dtype"])
    return values, is_null(column) if instead is None else np.zeros(len(values), bool)


@encoder("quantile")
def quantile(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Bin b has edges[b − 1] ≤ x < edges[b]; without imputation, the last bin is for NULL."""
    values = fill_null(float_values(column), state["impute"])
    bins = np.searchsorted(state["edges"], values, side="right").astype(np.int32)
    if state["impute"] is None:
        bins[np.isnan(values)] = len(state["edges"]) + 1
    return bins, np.isinf(values)


@encoder("normal_quantile")
def normal_quantile(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    values = fill_null(float_values(column), state["impute"])
    deviates = np.interp(values, state["points"], state["deviates"])  # of NaN, that of the only point
    return to_float32(settings, np.where(np.isinf(values) | (np.isnan(values) & _keeps_missing(settings)), values, deviates))


@encoder("robust")
def robust(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    values = fill_null(float_values(column), state["impute"])
    with np.errstate(over="ignore"):
        scaled = np.clip((values - state["median"]) / state["scale"], -1e300, 1e300)
    return to_float32(settings, np.where(np.isinf(values), values, scaled / np.hypot(1.0, scaled / 3.0)))


@encoder("fourier")
def fourier(settings: Mapping[str, Any], state: Mapping[str, Any], *columns: Column) -> tuple[np.ndarray, np.ndarray]:
    turns = np.zeros((len(columns[0].values), settings["frequencies"]))
    with np.errstate(invalid="ignore", over="ignore"):
        for number, column in enumerate(columns):
            values = fill_null(float_values(column), state["impute"][number])
            standardised = (values - state["mean"][number]) / state["deviation"][number]
            turns += standardised[:, None] * np.array(state["frequencies"][number])
    refused = ~np.isfinite(turns).all(axis=1)
    turns[refused] = 0.0
    angles = 2 * np.pi * turns
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return waves.astype(np.float32), np.asarray(refused)
