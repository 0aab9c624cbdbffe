"""The simulated Burgers equation: its exact solution by Cole and Hopf, the order of its time steps, the same bits whoever asks."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from pipelines.applications.science.burgers import last_mode, random_field, simulate, solve

VISCOSITY = 0.02


def exact(initial: np.ndarray, viscosity: float, time: float, fine: int = 4096) -> np.ndarray:
    """u = −2ν ∂(ln φ)/∂x, where φ solves the heat equation from exp(−∫u / 2ν) (Cole 1951, Hopf 1950); by Fourier series on a finer grid.

    The integral is periodic, as the initial condition has no constant mode."""
    spectrum, waves = np.fft.rfft(initial, norm="forward"), 2j * np.pi * np.arange(fine // 2 + 1)
    integral = np.zeros(fine // 2 + 1, np.complex128)
    integral[1 : len(spectrum)] = spectrum[1:] / waves[1 : len(spectrum)]
    heat = np.fft.rfft(np.exp(-np.fft.irfft(integral, fine, norm="forward") / (2 * viscosity))) * np.exp(viscosity * waves**2 * time)
    slope, value = np.fft.irfft(waves * heat, fine), np.fft.irfft(heat, fine)
    return (-2 * viscosity * slope / value)[:: fine // len(initial)]


def error(initial: np.ndarray, steps: int, time: float = 0.5) -> float:
    true = exact(initial, VISCOSITY, time)
    return float(np.linalg.norm(solve(initial, VISCOSITY, time, steps) - true) / np.linalg.norm(true))


def sine(points: int = 256) -> np.ndarray:
    return np.sin(2 * np.pi * np.arange(points) / points)


def test_a_steepening_sine_is_that_of_cole_and_hopf() -> None:
    assert abs(exact(sine(), VISCOSITY, 0.5)).max() > 0.3, "a wave, and no flat line"
    assert error(sine(), 256) < 1e-9


def test_half_the_step_has_a_sixteenth_of_the_error() -> None:
    errors = [error(sine(), steps) for steps in (16, 32, 64)]
    orders = [np.log2(large / small) for large, small in pairwise(errors)]
    assert min(orders) > 3.7 and max(orders) < 4.5, errors


@pytest.mark.parametrize("seed", range(3))
def test_a_row_of_the_pipeline_is_that_of_cole_and_hopf(seed: int) -> None:
    row = simulate(seed)
    assert {name: (values.shape, values.dtype) for name, values in row.items()} == {name: ((1024,), np.dtype("f8")) for name in row}
    true = exact(row["initial"], 0.1, 1.0)
    assert np.linalg.norm(row["final"] - true) < 1e-6 * np.linalg.norm(true)


def test_finer_points_change_nothing_but_their_number() -> None:
    coarse = random_field(0, 64, 25.0, 5.0)
    fine = np.fft.irfft(np.fft.rfft(coarse, norm="forward"), 256, norm="forward")
    np.testing.assert_allclose(solve(fine, 0.1, 0.2, 64)[::4], solve(coarse, 0.1, 0.2, 64), rtol=0, atol=1e-6)


def test_initial_conditions_have_the_spectrum_of_the_paper() -> None:
    fields = np.stack([random_field(seed, 64, 25.0, 5.0) for seed in range(2_000)])
    spectra = np.fft.rfft(fields, norm="forward")
    powers = (abs(spectra) ** 2).mean(0)[1:4]
    np.testing.assert_allclose(powers, 625 / ((2 * np.pi * np.arange(1, 4)) ** 2 + 25) ** 2, rtol=0.1)
    assert abs(spectra[:, 0]).max() < 1e-15 and abs(spectra[:, last_mode(64) + 1 :]).max() < 1e-15


def test_another_process_has_the_same_bits() -> None:
    code = "from pipelines.applications.science.burgers import simulate; row = simulate(5); print(row['initial'].tobytes().hex(), "
    code += "row['final'].tobytes().hex())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    simulate(4)
    row = simulate(5)
    assert printed == [row["initial"].tobytes().hex(), row["final"].tobytes().hex()]
