"""Series of unequal length: their encoder, in ETL as in an exported folder, and the networks that take them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipelines.applications.series.encoders import Series
from pipelines.applications.series.settings import SeriesSettings, SeriesTaskSettings
from pipelines.applications.series.task import OverSeries, SeriesTask, limit_deviations
from pipelines.data.features import Encoders, refusal_kind
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import TensorColumn, to_numpy
from pipelines.errors import ConfigError
from pipelines.tasks.data import Data

ONE, TWO = pa.list_(pa.float64()), pa.list_(pa.list_(pa.float64()))
LABEL = TensorColumn(name="label", dtype="int64", role="target", cardinality=3)


def encode(values: list[Any], kind: pa.DataType = ONE, **settings: Any) -> tuple[np.ndarray, list[bool]]:
    """The encoded rows, shape (rows, channels + 1, steps), and which are refused."""
    encoder = Series(SeriesSettings(**{"steps": 4, **settings}), {})
    encoded = encoder.encode(pa.array(values, kind))
    return to_numpy(encoder.column("series", "feature"), encoded.fill_null(bytes(encoded.type.byte_width))), encoded.is_null().to_pylist()


def test_a_series_begins_at_the_first_step_and_its_mask_says_how_long_it_is() -> None:
    encoded, refused = encode([[1, 2], [1, 2, 3, 4], [5]])
    assert encoded.tolist() == [
        [[1, 2, 0, 0], [1, 1, 0, 0]],
        [[1, 2, 3, 4], [1, 1, 1, 1]],
        [[5, 0, 0, 0], [1, 0, 0, 0]],
    ]
    assert refused == [False] * 3


@pytest.mark.parametrize(("keep", "expected"), [("last", [3, 4, 5, 6]), ("first", [1, 2, 3, 4])])
def test_a_longer_series_is_cut(keep: str, expected: list[int]) -> None:
    assert encode([[1, 2, 3, 4, 5, 6]], keep=keep)[0][0].tolist() == [expected, [1] * 4]


def test_a_missing_number_is_that_of_its_channel_before_it_or_after_it() -> None:
    nan = float("nan")
    encoded, refused = encode([[[None, 1], [2, nan], [nan, 3]], [[7, None], [None, None], [None, 9]]], TWO, channels=2)
    assert encoded[:, :2].tolist() == [[[2, 2, 2, 0], [1, 1, 3, 0]], [[7, 7, 7, 0], [9, 9, 9, 0]]]
    assert refused == [False, False]
    assert encode([[1, None, 3, None, None, None]])[0][0, 0].tolist() == [3, 3, 3, 3], "numbers before the cut are known"


REASONS = {
    "it has no step": ([], 1),
    "its steps have another number of channels": ([[1.0, 2.0, 3.0]], 2),
    "its steps have not all the same channels": ([[1.0, 2.0], [3.0]], 2),
    "a channel has no number": ([[1.0, None], [2.0, None]], 2),
    "it has ±∞, or a number beyond [1e15]": ([1.0, float("inf")], 1),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_series_that_is_none_is_refused_with_its_reason(reason: str) -> None:
    values, channels = REASONS[reason]
    kind = TWO if channels == 2 else ONE
    encoded, refused = encode([values, [[0.0] * channels] if channels == 2 else [0.0]], kind, channels=channels)
    assert refused == [True, False] and encoded[1, -1].tolist() == [1, 0, 0, 0]
    assert Series(SeriesSettings(steps=4, channels=channels), {}).fault(values) == reason


@pytest.mark.parametrize(
    ("values", "kind", "channels"),
    [
        ([None, None], ONE, 1),
        ([float("nan")], ONE, 1),
        ([[None, None]], TWO, 2),
        ([[], []], TWO, 2),
        ([None], TWO, 2),
        ([[None], [None]], TWO, 1),
        ([2**63, None], pa.list_(pa.uint64()), 2),
    ],
)
def test_series_without_numbers_are_rows_for_the_quarantine(values: Any, kind: pa.DataType, channels: int) -> None:
    fitted = FittedEncoder(
        feature=SeriesSettings(steps=4, channels=channels).model_dump(mode="json"),
        inputs=("s",),
        column=Series(SeriesSettings(steps=4, channels=channels), {}).column("s", "feature"),
        state={},
    )
    _, (reason,) = Encoders({"s": fitted}).encode(pa.table({"s": pa.array([values], kind)}))
    assert reason.as_py().startswith("s: series cannot encode [")
    fault = Series(SeriesSettings(steps=4, channels=channels), {}).fault(values)
    assert fault and refusal_kind(reason.as_py()) == f"s: series cannot encode a value: {fault}"


def test_of_first_steps_none_is_filled_by_a_later_one() -> None:
    encoded, refused = encode([[None, 1, None, None, 7], [None, None, None, None, 7]], keep="first")
    assert encoded[0, 0].tolist() == [1, 1, 1, 1] and refused == [False, True]


def test_null_and_1e300_are_refused_and_zero_has_no_sign() -> None:
    assert encode([None, [1e300], [-0.0]])[1] == [True, True, False]
    assert not np.signbit(encode([[-0.0]])[0]).any()
    assert encode([[[1.0, 2.0], None]], TWO, channels=2)[1] == [True], "a step that is NULL has no channels"


def test_a_row_that_is_refused_has_a_reason() -> None:
    draw = np.random.default_rng(0)
    rows: list[Any] = [draw.normal(size=(length, 2)).round(3).tolist() for length in draw.integers(1, 9, 40)]
    rows[3][0][1] = None
    rows += [values for values, channels in REASONS.values() if channels == 2] + [[], None, [[1.0, 2.0], None]]
    _, refused = encode(rows, TWO, channels=2)
    reasons = [Series(SeriesSettings(steps=4, channels=2), {}).fault(row) for row in rows]
    assert sum(refused) == 6
    assert [bool(reason) for reason in reasons] == [is_refused and row is not None for row, is_refused in zip(rows, refused, strict=True)]


@pytest.mark.parametrize(
    ("kind", "channels", "says"),
    [
        (pa.float64(), 1, "it takes arrays of numbers"),
        (pa.list_(pa.string()), 1, "it takes arrays of numbers"),
        (ONE, 2, "with 2 channels it takes arrays of arrays of 2 numbers"),
        (ONE, 1, ""),
        (TWO, 1, ""),
        (pa.list_(pa.list_(pa.int32())), 3, ""),
    ],
)
def test_columns_of_other_types_are_refused(kind: pa.DataType, channels: int, says: str) -> None:
    refusal = Series.refusal(SeriesSettings(steps=4, channels=channels), kind)
    assert refusal.startswith(says) and bool(refusal) == bool(says)


@pytest.mark.parametrize(("kind", "channels"), [(ONE, 1), (TWO, 1), (TWO, 3)])
def test_its_example_can_be_encoded(kind: pa.DataType, channels: int) -> None:
    encoder = Series(SeriesSettings(steps=4, channels=channels), {})
    assert encoder.encode(pa.array([encoder.example(kind)], kind)).null_count == 0


def task(channels: int = 2, steps: int = 60, **settings: Any) -> SeriesTask:
    column = TensorColumn(name="series", dtype="float32", shape=(channels + 1, steps))
    return SeriesTask(SeriesTaskSettings(**settings), Data((column, LABEL), classes=("a", "b", "c")))


def waves(rows: int, steps: int = 60, seed: int = 0) -> dict[str, torch.Tensor]:
    """Waves of three frequencies, each class its own, of 20 to 60 steps, beside noise, at any level."""
    draw = np.random.default_rng(seed)
    series, labels = [], draw.integers(0, 3, rows)
    for label in labels:
        length = draw.integers(20, steps + 1)
        wave = np.sin((0.3, 0.5, 0.8)[label] * np.arange(length) + draw.uniform(0, 6)) + draw.normal(0, 0.5, length)
        values = np.stack([wave, draw.normal(size=length)], 1) * draw.uniform(0.5, 20) + draw.normal(0, 50)
        encoder = Series(SeriesSettings(steps=steps, channels=2), {})
        series.append(to_numpy(encoder.column("series", "feature"), encoder.encode(pa.array([values.tolist()], TWO)))[0])
    return {"series": torch.tensor(np.stack(series)), "label": torch.tensor(labels)}


@pytest.mark.parametrize("settings", [{"kernels": 300}, {"network": "convolution", "filters": [16, 16]}])
def test_a_network_learns_frequencies_at_any_level_and_length(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    learner = task(**settings)
    model, train, test = learner.model(), waves(300), waves(300, seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(12):
        for rows in torch.randperm(300).split(30):
            total, weight = learner.loss(model, {name: values[rows] for name, values in train.items()})
            optimizer.zero_grad()
            (total / weight).backward()
            optimizer.step()
    assert (model.eval()(test).argmax(1) == test["label"]).double().mean() > 0.8


@pytest.mark.parametrize("settings", [{"kernels": 50}, {"network": "convolution", "filters": [4, 4]}])
def test_padding_changes_nothing(settings: dict[str, Any]) -> None:
    """What lies beyond a series is not seen, whatever it holds and however long it is, in training neither."""
    torch.manual_seed(0)
    model = task(**settings).model().eval()
    batch = waves(8)
    filled = batch["series"].clone()
    filled[:, :2] = torch.where(filled[:, 2:] > 0, filled[:, :2], 1e6)
    torch.testing.assert_close(model({"series": filled}), model({"series": batch["series"]}))
    more_room = torch.nn.functional.pad(batch["series"], (0, 200))
    for training in (False, True):
        torch.testing.assert_close(model.train(training)({"series": more_room}), model({"series": batch["series"]}), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("scale", "offset"), [(1e-9, 0.0), (1.0, 1e5), (1e12, 0.0)])
def test_a_series_looks_alike_at_any_scale_and_level(scale: float, offset: float) -> None:
    class Recorder(torch.nn.Module):
        features = 1

        def forward(self, standard: torch.Tensor, is_step: torch.Tensor) -> torch.Tensor:
            self.standard = standard
            return is_step.sum(2)

    network, batch = Recorder(), waves(6)["series"]
    model = OverSeries("series", 2, network, 1, 0.0).eval()
    model({"series": batch})
    expected = network.standard
    deviation = expected.square().sum(2) / batch[:, 2].sum(1, keepdim=True)
    torch.testing.assert_close(deviation, torch.ones(6, 2))
    moved = torch.cat([batch[:, :2] * scale + offset * batch[:, 2:], batch[:, 2:]], 1)
    model({"series": moved})
    torch.testing.assert_close(network.standard, expected, atol=5e-2 if offset else 1e-4, rtol=1e-3)


def test_a_level_that_never_varied_decides_little_later() -> None:
    """All series of training have one length."""
    model = task(kernels=50).model()
    batch = torch.randn(16, 3, 60)
    batch[:, 2] = 1
    for _ in range(200):
        model({"series": batch})
    batch[:, 2, 30:] = 0
    assert model.eval().levels(torch.full((1, 9), 50.0)).abs().max() > 100, "it would be far away"
    assert limit_deviations(model.levels(torch.full((1, 9), 50.0))).abs().max() == 10


def test_a_constant_series_has_a_finite_output() -> None:
    model = task(kernels=50).model().eval()
    constant = torch.full((2, 3, 60), 1e8)
    constant[:, 2] = 1
    assert model({"series": constant}).isfinite().all()
    largest = constant * 1e7
    largest[:, 2] = 1
    largest[0, :2, ::2] *= -1
    model.train()
    assert model({"series": largest}).isfinite().all() and model.levels.running_var.isfinite().all()


def test_the_kernels_are_drawn_from_the_seed_and_reach_over_the_series() -> None:
    first, second = [], []
    for buffers in (first, second):
        torch.manual_seed(5)
        buffers += [buffer for name, buffer in task(kernels=101, steps=200).model().named_buffers() if "weights" in name]
    assert sum(len(weights) for weights in first) == 101
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert {weights.shape[2] for weights in first} == {7, 9, 11}
    assert all((weights.sum(2).abs() < 1e-4).all() for weights in first), "a kernel does not see the level"
    assert all((weights != 0).any(2).any(1).all() for weights in first), "each sees a channel"
    assert task(steps=3, kernels=10).model()({"series": torch.ones(2, 3, 3)}).shape == (2, 3)


def test_a_column_of_another_encoder_is_refused() -> None:
    flat = TensorColumn(name="x", dtype="float32", shape=(4,))
    with pytest.raises(ConfigError, match=r"task.kind is series, which takes one column of the encoder series, but got x \(4,\)"):
        SeriesTask(SeriesTaskSettings(), Data((flat, LABEL), classes=("a", "b", "c")))
    sound = TensorColumn(name="x", dtype="float32", shape=(8, 20))
    fitted = {"x": FittedEncoder(feature={"encoder": "log_mel"}, inputs=("x",), column=sound, state={})}
    with pytest.raises(ConfigError, match=r"which takes one column of the encoder series, but got x \(8, 20\)"):
        SeriesTask(SeriesTaskSettings(), Data((sound, LABEL), classes=("a", "b", "c"), encoders=fitted))
