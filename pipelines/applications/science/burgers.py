"""The viscous Burgers equation on a periodic interval of length 1, by a pseudo-spectral method: ∂u/∂t + u ∂u/∂x = ν ∂²u/∂x².

Space is discretised by Fourier modes, of which the product keeps the lower two thirds (Orszag 1971). Time goes by ETDRK4, an exponential
Runge-Kutta method of fourth order (Cox and Matthews 2002), with the coefficients as contour integrals (Kassam and Trefethen 2005).
Everything is float64 in one thread, by NumPy's own FFT.
"""

from functools import lru_cache

import numpy as np
from numpy.fft import irfft, rfft

Arrays = dict[str, np.ndarray]
_CONTOUR_POINTS = 32
"""Of a circle of radius 1, on which the coefficients are averaged: rounding then costs no digits near 0."""


def simulate(
    seed: int,
    points: int = 1024,
    viscosity: float = 0.1,
    duration: float = 1.0,
    steps: int = 256,
    deviation: float = 25.0,
    rate: float = 5.0,
) -> Arrays:
    """A random initial condition, and the solution after `duration`: float64 arrays `initial` and `final`, both of shape (points,).

    The defaults are those of Li et al. 2021, "Fourier neural operator for parametric partial differential equations".
    """
    initial = random_field(seed, points, deviation, rate)
    return {"initial": initial, "final": solve(initial, viscosity, duration, steps)}


def random_field(seed: int, points: int, deviation: float, rate: float) -> np.ndarray:
    """A draw from the normal distribution N(0, deviation² (−Δ + rate²)⁻²), float64 of shape (points,), without the constant mode.

    It has only modes that the solver keeps, so that it is what the solver starts from.
    """
    modes = np.arange(1, last_mode(points) + 1)
    cosines, sines = np.random.default_rng(seed).standard_normal((2, len(modes)))
    deviations = np.sqrt(2) * deviation / ((2 * np.pi * modes) ** 2 + rate**2)
    spectrum = np.zeros(points // 2 + 1, np.complex128)
    spectrum[1 : len(modes) + 1] = deviations * (cosines - 1j * sines) / 2
    return irfft(spectrum, points, norm="forward")


def solve(initial: np.ndarray, viscosity: float, duration: float, steps: int) -> np.ndarray:
    """The solution after `duration` from an initial condition, both float64 of shape (points,) at the places 0, 1 / points, …"""
    points = len(initial)
    half, decay, average, first, middle, last = _coefficients(points, viscosity, duration / steps)
    derivative = -0.5j * _wave_numbers(points)
    derivative[last_mode(points) + 1 :] = 0

    def change(spectrum: np.ndarray) -> np.ndarray:
        """Spectrum of −½ ∂(u²)/∂x, without the modes that the product's aliases reach."""
        return derivative * rfft(irfft(spectrum, points) ** 2)

    spectrum = rfft(initial)
    spectrum[last_mode(points) + 1 :] = 0
    for _ in range(steps):
        start = change(spectrum)
        to_middle = half * spectrum + average * start
        second = change(to_middle)
        third = change(half * spectrum + average * second)
        fourth = change(half * to_middle + average * (2 * third - start))
        spectrum = decay * spectrum + first * start + middle * (second + third) + last * fourth
    return irfft(spectrum, points)


def last_mode(points: int) -> int:
    """The highest mode of which the square of a function on so many points has no alias below it."""
    return (points - 1) // 3


def _wave_numbers(points: int) -> np.ndarray:
    return 2 * np.pi * np.arange(points // 2 + 1)


@lru_cache(maxsize=8)
def _coefficients(points: int, viscosity: float, step: float) -> tuple[np.ndarray, ...]:
    """Coefficients of ETDRK4 by mode: factors of half a step and of a whole one, and weights of the four evaluations."""
    linear = -viscosity * _wave_numbers(points) ** 2 * step
    circle = np.exp(1j * np.pi * (np.arange(_CONTOUR_POINTS) + 0.5) / _CONTOUR_POINTS)
    z = linear[:, None] + circle

    def mean(values: np.ndarray) -> np.ndarray:
        return step * values.mean(1).real

    return (
        np.exp(linear / 2),
        np.exp(linear),
        mean((np.exp(z / 2) - 1) / z),
        mean((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3),
        mean(2 * (2 + z + np.exp(z) * (-2 + z)) / z**3),
        mean((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3),
    )
