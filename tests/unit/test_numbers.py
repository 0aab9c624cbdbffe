"""Encoders of one number, against the formulas and scikit-learn, and on input that has nothing to teach."""

from decimal import Decimal
from math import inf, isfinite, log, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fitting import fit_encoder
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import QuantileTransformer

from pipelines.errors import ConfigError

NUMBERS = ("standardize", "minmax", "log1p", "quantile", "normal_quantile", "robust", "identity")
MODERATE = st.floats(-1e6, 1e6)


def encode(settings: Any, fitted_to: list, values: list | None = None) -> list:
    encoder = fit_encoder(settings, pa.array(fitted_to, pa.float64()))
    return encoder.encode(pa.array(fitted_to if values is None else values, pa.float64())).to_pylist()


def test_standardize() -> None:
    assert encode("standardize", [1.0, 3.0], [1.0, 3.0, 5.0]) == [-1.0, 1.0, 3.0]


def test_minmax() -> None:
    assert encode("minmax", [1.0, 5.0], [1.0, 2.0, 7.0]) == [0.0, 0.25, 1.5]


def test_log1p_is_odd() -> None:
    assert encode("log1p", [0.0, 9.0, -9.0]) == pytest.approx([0.0, log(10), -log(10)])


def test_quantile_numbers_bins_of_equal_shares() -> None:
    assert encode({"encoder": "quantile", "bins": 4}, [float(n) for n in range(8)]) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_quantile_gives_equal_edges_one_bin_and_null_a_bin_of_its_own() -> None:
    encoder = fit_encoder({"encoder": "quantile", "bins": 4}, pa.array([0.0] * 9 + [1.0, 2.0, 3.0]))
    assert encoder.encode(pa.array([-1.0, 0.0, 1.0, 99.0, None, nan])).to_pylist() == [0, 0, 1, 1, 2, 2]
    assert encoder.column("x", "feature").cardinality == 3


def test_quantile_imputed_has_no_bin_for_null() -> None:
    encoder = fit_encoder({"encoder": "quantile", "bins": 2, "impute": "mean"}, pa.array([0.0, 1.0, 9.0]))
    assert encoder.encode(pa.array([None, 0.0])).to_pylist() == [1, 0]
    assert encoder.column("x", "feature").cardinality == 2


def test_normal_quantile_agrees_with_scikit_learn_but_in_the_tails() -> None:
    values = np.random.default_rng(0).lognormal(size=20_000)
    scikit_values = QuantileTransformer(n_quantiles=1_000, output_distribution="normal", subsample=None).fit_transform(values[:, None])[
        :, 0
    ]
    values_here = np.array(encode("normal_quantile", values.tolist()))
    assert np.abs(values_here - scikit_values)[np.abs(scikit_values) < 2.5].max() < 0.02
    assert np.abs(values_here).max() < 4.5  # one row of 20,000 is no outlier of 5.2 deviations


def test_normal_quantile_gives_ties_their_middle_rank_and_clips() -> None:
    assert encode("normal_quantile", [0.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 7.0]) == [0.0, 0.0, 0.0]
    low, middle, high = encode("normal_quantile", [0.0, 5.0, 5.0, 9.0], [-100.0, 5.0, 100.0])
    assert (middle, high) == (0.0, -low)
    assert high == pytest.approx(1.150349)  # the deviate at 7/8


@pytest.mark.parametrize("encoder", NUMBERS)
def test_a_constant_column_is_encoded_without_nan(encoder: str) -> None:
    assert len(set(encode(encoder, [7.0, 7.0, 7.0]))) == 1
    assert None not in encode(encoder, [7.0, 7.0, 7.0])


@pytest.mark.parametrize("encoder", ["standardize", "minmax", "robust"])
def test_a_constant_column_becomes_zero(encoder: str) -> None:
    assert encode(encoder, [0.1] * 7) == [0.0] * 7


@pytest.mark.parametrize("encoder", ["standardize", "minmax", "quantile", "normal_quantile", "robust"])
@pytest.mark.parametrize("values", [[None, None], [nan, inf], []])
def test_a_column_without_numbers_is_an_error(encoder: str, values: list) -> None:
    with pytest.raises(ConfigError, match=r"dataset.features.feature: column a has no number in the training split"):
        encode(encoder, values)


@pytest.mark.parametrize("encoder", NUMBERS)
def test_infinity_and_what_float32_cannot_hold_is_refused(encoder: str) -> None:
    is_compressed = encoder in ("quantile", "normal_quantile", "robust", "log1p")
    values = encode(encoder, [0.0, 1.0], [inf, -inf, 1e300])
    assert [value is None for value in values] == [True, True, not is_compressed]


@pytest.mark.parametrize("encoder", ["standardize", "minmax", "log1p", "normal_quantile", "robust", "identity"])
def test_null_is_refused_unless_imputed(encoder: str) -> None:
    assert encode(encoder, [1.0, None, nan, 3.0])[1:3] == [None, None]


@pytest.mark.parametrize("encoder", ["standardize", "minmax", "log1p", "normal_quantile", "robust", "identity"])
def test_missing_numbers_are_kept_as_one_nan(encoder: str) -> None:
    settings = {"encoder": encoder, "impute": "keep"}
    negative = np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0]
    encoded = encode(settings, [1.0, 2.0, 9.0], [None, nan, negative, 2.0, inf])
    assert [None if value is None else isfinite(value) for value in encoded] == [False, False, False, True, None]
    bits = {np.float32(value).tobytes() for value in encoded[:3]}
    assert bits == {np.float32(nan).tobytes()}, "equal rows have equal bytes"
    assert encode(settings, [5.0, 5.0, None])[2] != 0, "also of a column with one value"
    assert encoded[3] == encode(encoder, [1.0, 2.0, 9.0], [2.0])[0]


def test_whole_numbers_that_may_be_missing_are_floats() -> None:
    encoder = fit_encoder({"encoder": "identity", "impute": "keep"}, pa.array([1, None, 4], pa.int32()))
    column = encoder.column("x", "feature")
    assert (column.dtype, column.missing) == ("float32", True)
    assert str(encoder.encode(pa.array([None, 7], pa.int32())).to_pylist()) == "[nan, 7.0]"
    assert not fit_encoder("identity", pa.array([1], pa.int32())).column("x", "feature").missing
    assert "missing" not in fit_encoder("standardize", pa.array([1.0, 2.0])).column("x", "feature").to_values()


@pytest.mark.parametrize(("impute", "stands_for"), [("mean", 4.0), ("median", 2.0), (-1, -1.0), (0.5, 0.5)])
@pytest.mark.parametrize("encoder", NUMBERS)
def test_impute(encoder: str, impute: Any, stands_for: float) -> None:
    settings = {"encoder": encoder, "impute": impute}
    fitted_to = [1.0, None, 2.0, nan, 9.0]
    values = encode(settings, fitted_to, [None, nan, stands_for])
    assert values[0] is not None
    assert values[0] == values[1] == values[2]


@pytest.mark.parametrize(
    ("kind", "values", "dtype"),
    [
        (pa.int8(), [1, -2], "int8"),
        (pa.int64(), [2**60 + 1, 0], "int64"),
        (pa.bool_(), [True, False], "uint8"),
        (pa.float64(), [0.5, 1.5], "float32"),
        (pa.decimal128(5, 2), [Decimal("0.50"), Decimal("1.50")], "float32"),
    ],
)
def test_identity_keeps_whole_numbers(kind: pa.DataType, values: list, dtype: str) -> None:
    encoder = fit_encoder("identity", pa.array(values, kind))
    output = encoder.encode(pa.array([*values, None], kind))
    assert output.type == encoder.column("x", "feature").field.type
    assert (encoder.column("x", "feature").dtype, output.to_pylist()) == (dtype, [*values, None])


def test_identity_imputes_a_whole_number() -> None:
    encoder = fit_encoder({"encoder": "identity", "impute": "mean"}, pa.array([1, None, 4, 4], pa.int32()))
    assert encoder.encode(pa.array([None, 7], pa.int32())).to_pylist() == [3, 7]
    with pytest.raises(ConfigError, match="column a is int8, which cannot hold impute: 300"):
        fit_encoder({"encoder": "identity", "impute": 300}, pa.array([1], pa.int8()))


@given(st.lists(MODERATE, min_size=2, max_size=30))
def test_decoding_undoes_encoding(values: list[float]) -> None:
    raw = pa.array(values)
    span = max(values) - min(values)
    for name in ("standardize", "minmax", "log1p", "identity"):
        encoder = fit_encoder(name, raw)
        back = encoder.decode(encoder.encode(raw).to_numpy())
        assert back == pytest.approx(np.array(values), rel=1e-5, abs=1e-6 * max(span, 1.0)), name


def test_robust_compresses_tails() -> None:
    values = [float(number) for number in range(1, 100)]  # quartiles 25, 50 and 75
    middle, quarter, far, farther = encode("robust", values, [50.0, 75.0, 1e9, -1e300])
    assert (middle, far, farther) == (0.0, 3.0, -3.0) and quarter == pytest.approx(0.5 / (1 + (0.5 / 3) ** 2) ** 0.5)
    assert encode("robust", [5.0] * 9 + [7.0])[0::9] == pytest.approx([0.0, 2 / (1 + (2 / 3) ** 2) ** 0.5]), "half the range is the scale"


def test_decoding_undoes_robust() -> None:
    values = np.random.default_rng(1).normal(7.0, 100.0, size=500)
    encoder = fit_encoder("robust", pa.array(values))
    assert encoder.decode(encoder.encode(pa.array(values)).to_numpy()) == pytest.approx(values, rel=1e-4, abs=1e-3)
    assert np.isfinite(encoder.decode(np.array([-9.0, 3.0, 4.0], np.float32))).all()


def test_decoding_undoes_normal_quantile() -> None:
    values = np.random.default_rng(1).lognormal(size=500)
    encoder = fit_encoder("normal_quantile", pa.array(values))
    assert encoder.decode(encoder.encode(pa.array(values)).to_numpy()) == pytest.approx(values, rel=1e-4)


def fourier(frequencies: int = 8, seed: int = 0, scale: float = 1.0, rows: int = 100) -> np.ndarray:
    """Vectors of shape (rows, 2 · frequencies), fitted to and made of two columns."""
    random = np.random.default_rng(0)
    columns = [pa.array(random.normal(50.0, 3.0, rows)), pa.array(random.normal(-4.0, 0.1, rows))]
    encoder = fit_encoder({"encoder": "fourier", "frequencies": frequencies, "seed": seed, "scale": scale}, *columns)
    assert encoder.column("x", "feature").shape == (2 * frequencies,)
    return np.frombuffer(b"".join(encoder.encode(*columns).to_pylist()), "<f4").reshape(rows, -1)


def test_fourier_is_sines_and_cosines_that_turn_with_the_seed() -> None:
    waves = fourier()
    assert np.allclose(waves[:, :8] ** 2 + waves[:, 8:] ** 2, 1, atol=1e-6)
    assert np.array_equal(waves, fourier())
    assert not np.allclose(waves, fourier(seed=1))
    assert np.abs(fourier(scale=1e-6)[:, :8]).max() < 1e-3


def test_fourier_frequencies_are_normal_and_known() -> None:
    columns = [pa.array([0.0, 1.0])]
    encoder = fit_encoder({"encoder": "fourier", "frequencies": 20_000, "scale": 2.0, "seed": 3}, *columns)
    frequencies = np.array(encoder.state["frequencies"])
    assert frequencies.shape == (1, 20_000)
    assert (frequencies.mean(), frequencies.std()) == pytest.approx((0.0, 2.0), abs=0.03)
    first_frequencies = fit_encoder({"encoder": "fourier", "frequencies": 2, "seed": 0}, *columns).state["frequencies"]
    assert first_frequencies[0] == pytest.approx([0.1165565154909856, -0.6835324004378501])


def test_fourier_imputes_in_each_column() -> None:
    columns = [pa.array([1.0, None, 3.0]), pa.array([2.0, 4.0, nan])]
    encoder = fit_encoder({"encoder": "fourier", "frequencies": 2, "impute": "mean"}, *columns)
    complete = [pa.array([1.0, 2.0, 3.0]), pa.array([2.0, 4.0, 3.0])]
    assert encoder.encode(*columns).equals(encoder.encode(*complete))
    median = fit_encoder({"encoder": "fourier", "frequencies": 2, "impute": "median"}, *columns)
    assert median.state["impute"] == [2.0, 3.0]


def test_fourier_refuses_a_row_with_a_missing_coordinate() -> None:
    columns = [pa.array([1.0, None, 3.0, inf]), pa.array([1.0, 2.0, nan, 4.0])]
    encoder = fit_encoder({"encoder": "fourier", "frequencies": 2}, *columns)
    assert [row is None for row in encoder.encode(*columns).to_pylist()] == [False, True, True, True]
