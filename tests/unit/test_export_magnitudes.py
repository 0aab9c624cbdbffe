"""Exports of columns of every magnitude: the graph encodes raw numbers as the model in MLflow does, and decides the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from filed import fit_manifest
from torch import nn

from pipelines.applications.trees.forest import Forest, Tree
from pipelines.config import Config, parse
from pipelines.data.features import Encoders
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import schema_to_text, to_numpy
from pipelines.errors import ExportError
from pipelines.serving.export.export_folder import write_export
from pipelines.serving.export.onnx import FILE, runner, write_onnx
from pipelines.serving.export.predict_program import Model, check_examples, json_value
from pipelines.serving.export.subject import Subject, find_numeric
from pipelines.serving.export.targets import target_writer
from pipelines.serving.model import Predictor
from pipelines.tasks.bind import build_task
from pipelines.tasks.targets.decision import Decision

ROWS = 300
RANDOM = np.random.default_rng(3)


def column(kind: str) -> np.ndarray:
    """float64 of shape (ROWS,): a third of the rows has the very mean, or the value next to it."""
    scale, offset = {
        "tiny": (1e-9, 0.0), "small": (1e-4, 1e-3), "usual": (12.0, 26.0), "huge": (1e12, 0.0), "beyond_float32": (30.0, 2.0**24 + 1e4),
        "time": (30.0, 1.7e9), "far_time": (1e3, 1.7e12), "unit": (1.000001, 1e-9),
    }[kind]  # fmt: skip
    half = np.abs(RANDOM.normal(size=ROWS // 3)) * scale
    at_mean = np.where(RANDOM.random(ROWS // 3) < 0.5, offset, np.nextafter(offset, np.inf))
    return RANDOM.permutation(np.concatenate([offset - half, offset + half, at_mean]))


NUMBERS = {kind: column(kind) for kind in ("tiny", "small", "usual", "huge", "beyond_float32", "time", "far_time", "unit")}
MISSING = {f"{kind} or missing": kind for kind in ("tiny", "time")}
ALL_FEATURES: dict[str, Any] = {
    f"{kind} {encoder}": {"encoder": encoder, "column": kind, **({"impute": "mean"} if kind in MISSING else {})}
    for kind in (*NUMBERS, *MISSING)
    for encoder in ("standardize", "minmax", "log1p", "identity")
}
FEATURES = {name: ALL_FEATURES[name] for name in ALL_FEATURES if "standardize" in name} | {
    name: ALL_FEATURES[name] for name in ("tiny minmax", "small log1p", "unit identity")
}
SIGNAL = sum((values - values.mean()) / values.std() for values in NUMBERS.values())
TARGETS: dict[str, tuple[dict[str, Any], dict[str, Any], pa.Array]] = {
    "binary": ({"y": "binary"}, {}, pa.array(SIGNAL > 0)),
    "rare": ({"y": "binary"}, {}, pa.array(SIGNAL > 3)),
    "classes": ({"y": "label"}, {}, pa.array(np.array(["low", "mid", "top"])[np.digitize(SIGNAL, [-1, 1])])),
    "ordinal": ({"y": {"encoder": "label", "order": ["low", "mid", "top"]}}, {"loss": "ordinal"},
                pa.array(np.array(["low", "mid", "top"])[np.digitize(SIGNAL, [-1, 1])])),
    "labels": ({"y": "labels"}, {}, pa.array([[name for name, bar in (("a", 0), ("b", 1)) if value > bar] for value in SIGNAL])),
    "quantity": ({"y": "standardize"}, {}, pa.array(1.7e9 + SIGNAL)),
    "counts": ({"y": "count"}, {"loss": "poisson"}, pa.array(np.rint(np.abs(SIGNAL)).astype(int))),
    "quantiles": ({"y": "standardize"}, {"loss": "quantiles", "quantiles": [0.1, 0.5, 0.9]}, pa.array(SIGNAL * 1e-6)),
    "numbers": ({"y": {"encoder": "vector", "columns": ["y", "y2"]}}, {}, pa.array(SIGNAL)),
}  # fmt: skip

DECISIONS = {"rare": Decision(0.6, -0.4, 0.3).to_values()}
"""How targets are decided otherwise than by the more probable class."""


@dataclass(frozen=True)
class Case:
    config: Config
    subject: Subject
    raw: pa.Table


def make_case(folder: Path, kind: str, target: str, features: Mapping[str, Any] = FEATURES, hidden: Sequence[int] = (16,)) -> Case:
    """A model with random weights, or with trees that decide at the very numbers of rows, and its dataset version."""
    target_settings, task, values = TARGETS[target]
    config = parse(
        {
            "name": "magnitudes",
            "source": {"tables": {"t": {"format": "parquet", "path": "t"}}},
            "dataset": {"path": str(folder / "data"), "features": dict(features), "target": target_settings},
            "task": {"kind": kind, **({"hidden": list(hidden)} if kind == "tabular" else {"leaves": 8}), **task},
        },
        "test",
    )
    masked = {name: pa.array(NUMBERS[kind], mask=np.arange(ROWS) % 17 == 3) for name, kind in MISSING.items()}
    raw = pa.table({**NUMBERS, **masked, "y": values, "y2": values})
    fitted = fit_manifest(config.dataset, raw)
    encoded, reasons = Encoders(fitted.encoders).encode(raw)
    columns = {name: to_numpy(encoder.column, encoded[name].combine_chunks()) for name, encoder in fitted.encoders.items()}
    fields = {"identity": config.data_identity, "raw_schema": schema_to_text(raw.schema), "profile": fitted.profile}
    version = commit_arrays(config.dataset.path, {"train": [columns], "test": [columns]}, fitted.encoders, **fields)
    decision = DECISIONS.get(target, {})
    task_object = build_task(config.task, version.manifest, decision)
    torch.manual_seed(0)
    network = task_object.model()
    if isinstance(network, Forest):
        plant(network, {name: torch.from_numpy(np.array(values)) for name, values in columns.items()})
    manifest = version.manifest
    subject = Subject("models:/m-1", "0" * 32, "0" * 64, manifest, task_object, network.eval(), version, find_numeric(manifest), decision)
    assert reasons.null_count == ROWS
    return Case(config, subject, raw)


def plant(forest: Forest, columns: dict[str, torch.Tensor]) -> None:
    """Trees with two decisions each, whose thresholds are encoded values: rows on both sides differ in the last bit."""
    inputs = forest.inputs(columns)
    count = 60 * forest.outputs
    forest.reserve(count)
    forest.add([tree_at(inputs, forest) for _ in range(count)])


def tree_at(inputs: torch.Tensor, forest: Forest) -> Tree:
    feature = torch.from_numpy(RANDOM.integers(0, inputs.shape[1], 5))
    threshold = torch.tensor([float(inputs[RANDOM.integers(0, len(inputs)), number]) for number in feature])
    threshold[RANDOM.random(5) < 0.3] = 1e-35  # LightGBM's threshold beside 0, which is the mean of a standardized column
    itself = torch.arange(5)
    lower, upper = torch.tensor([1, 3, 2, 3, 4]), torch.tensor([2, 4, 2, 3, 4])
    is_leaf = lower == itself
    values = torch.where(is_leaf, torch.from_numpy(RANDOM.normal(size=5)), torch.zeros(5, dtype=torch.float64))
    nothing = torch.zeros(5, dtype=torch.bool)
    members = torch.zeros((5, forest.members.shape[2]), dtype=torch.bool)
    return Tree(feature, threshold, ~nothing, members, nothing, lower, upper, values, values * 0, torch.zeros(5, dtype=torch.int64), 2)


def row_dicts(raw: pa.Table) -> list[dict[str, Any]]:
    return [{name: json_value(value) for name, value in row.items()} for row in raw.select([*NUMBERS, *MISSING]).to_pylist()]


class SideBySide(nn.Module):
    """The encoded columns in the order of their names, shape (rows, columns)."""

    def forward(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([rows[name] for name in sorted(rows)], dim=1)


def test_the_graph_encodes_numbers_to_the_last_bit(tmp_path: Path) -> None:
    """Of a logarithm, which NumPy and onnxruntime compute by functions of their own, nearly always."""
    subject = make_case(tmp_path, "tabular", "binary", ALL_FEATURES).subject
    run = runner(write_onnx(replace(subject, network=SideBySide()), tmp_path / FILE))
    raw = {
        name: np.concatenate([values, values * (1 + 1e-9)])
        for name, values in subject.features(subject.numeric.raw(subject.first_rows("test", ROWS))).items()
    }
    encoded = subject.numeric.encode(raw)
    for number, name in enumerate(sorted(ALL_FEATURES)):
        ours = run(raw)[:, number]
        if name.endswith("log1p"):
            np.testing.assert_array_max_ulp(ours, encoded[name], 1)
            assert (ours == encoded[name]).mean() > 0.99
        else:
            np.testing.assert_array_equal(ours, encoded[name], err_msg=name)


OFTEN = (("tabular", "counts"), ("tabular", "rare"), ("trees", "binary"))


@pytest.mark.parametrize(
    ("kind", "target"),
    [pytest.param(*case, marks=[] if case in OFTEN else pytest.mark.full) for case in product(("tabular", "trees"), TARGETS)],
)
def test_a_script_decides_as_the_model_in_mlflow_for_columns_of_every_magnitude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, target: str
) -> None:
    monkeypatch.setattr(
        "pipelines.serving.export.export_folder.check_script", lambda folder, _: check_examples(folder, Model(folder).predict)
    )
    case, folder = make_case(tmp_path, kind, target), tmp_path / "onnx"
    folder.mkdir()
    report, notes = write_export(case.config, case.subject, "onnx", target_writer("onnx"), folder)
    assert notes[-1].endswith(" examples agree")
    assert report[1]["rows"] == ROWS and report[1]["other_rows"] == 1_000 - ROWS
    assert report[1]["equal_decisions"] == 1 and report[1]["max_difference"] < (1e-4 if kind == "tabular" else 1e-6)
    weights = case.subject.network.state_dict()
    expected = Predictor(case.subject.task.settings, case.subject.queried, weights, case.subject.decision).predict(case.raw)
    predictions = Model(folder).predict(row_dicts(case.raw))
    for name in expected:
        ours = [row[name] for row in predictions]
        if isinstance(expected[name][0], float):
            np.testing.assert_allclose(
                ours, expected[name], rtol=0, atol=1e-5 * float(np.abs(expected[name] - expected[name].mean()).max())
            )
        else:
            assert ours == expected[name].tolist()


@pytest.mark.parametrize("kind", ["tabular", pytest.param("trees", marks=pytest.mark.full)])
def test_eight_bits_that_decide_otherwise_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(
        "pipelines.serving.export.export_folder.check_script", lambda folder, _: check_examples(folder, Model(folder).predict)
    )
    case, folder = make_case(tmp_path, kind, "binary"), tmp_path / "onnx-int8"
    folder.mkdir()
    report, _ = write_export(case.config, case.subject, "onnx-int8", target_writer("onnx-int8"), folder)
    assert report[1]["equal_decisions"] > 0.95
    strict = case.config.model_copy(update={"export": case.config.export.model_copy(update={"least_equal_decisions": 1.0})})
    monkeypatch.setattr(
        "pipelines.serving.export.export_folder.compare_outputs", lambda *_, **__: [report[0], {**report[1], "equal_decisions": 0.5612}]
    )
    with pytest.raises(
        ExportError,
        match=r"^--to onnx-int8 decides as the model in MLflow in 56\.12% of 300 test rows and 700 others, and "
        r"export\.least_equal_decisions is 1; export to onnx, which computes in floats, or lower the setting",
    ):
        write_export(strict, case.subject, "onnx-int8", target_writer("onnx-int8"), folder)
