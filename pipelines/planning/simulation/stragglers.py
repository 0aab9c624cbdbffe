"""Workers that are slower than others: all the time, or in some steps."""

from dataclasses import dataclass

import numpy as np

from pipelines.errors import ConfigError
from pipelines.planning.simulation.random_numbers import STEP_SPEED, WORKER_SPEED, normals, uniforms


@dataclass(frozen=True)
class SpeedVariation:
    """A worker computes for longer by a factor of its own, and by another in every step. Both are lognormal of median 1."""

    worker_sigma: float = 0.0
    """Standard deviation of the logarithm of a worker's own factor."""
    step_sigma: float = 0.0
    """The same of a step's factor."""
    slow_share: float = 0.0
    """Share of the workers, drawn by the seed, that are slower still."""
    slow_factor: float = 1.0

    def __post_init__(self) -> None:
        if min(self.worker_sigma, self.step_sigma) < 0 or not 0 <= self.slow_share <= 1 or self.slow_factor < 1:
            raise ConfigError(f"{self}: sigmas are not negative, slow_share is from 0 to 1, and slow_factor at least 1; set them so")


EQUAL_WORKERS = SpeedVariation()


def worker_factors(stragglers: SpeedVariation, workers: int, seed: int) -> np.ndarray:
    """Each worker's own factor, float64 of shape (workers,)."""
    factors = np.ones(workers)
    if stragglers.worker_sigma:
        factors *= np.exp(stragglers.worker_sigma * normals(workers, seed, WORKER_SPEED))
    slow = round(stragglers.slow_share * workers)
    if slow:
        factors[np.argsort(uniforms(workers, seed, WORKER_SPEED, 1))[:slow]] *= stragglers.slow_factor
    return factors


def step_factors(stragglers: SpeedVariation, workers: int, seed: int, step: int) -> np.ndarray:
    """The workers' factors of one step, without their own, float64 of shape (workers,)."""
    if not stragglers.step_sigma:
        return np.ones(workers)
    return np.exp(stragglers.step_sigma * normals(workers, seed, STEP_SPEED, step))
