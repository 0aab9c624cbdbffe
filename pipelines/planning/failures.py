"""Hours of a training with failures: how often devices fail, what checkpoints and restarts cost, and the best time between checkpoints."""

from dataclasses import dataclass
from math import exp, expm1, inf, sqrt

from pipelines.errors import ConfigError

RESTART_SECONDS = 300.0
"""From a failure to the next step: assumed."""


@dataclass(frozen=True)
class FailureEstimate:
    """A training of `work_seconds` without failures."""

    work_seconds: float
    expected_seconds: float
    """With checkpoints, restarts, and work that is computed again."""
    failures: float
    """Expected number of them."""
    interval_seconds: float
    """Of work between two checkpoints."""

    @property
    def effective(self) -> float:
        """The part of the time that trains."""
        return self.work_seconds / self.expected_seconds


def failure_seconds(device_hours: float, devices: int) -> float:
    """Mean seconds between failures of any of the devices, when one alone fails every `device_hours`."""
    return device_hours * 3600 / devices


def daly_interval(checkpoint_seconds: float, between_failures: float) -> float:
    """Daly's higher-order estimate of those seconds (2006, equation 37), which also holds for long checkpoints."""
    if checkpoint_seconds >= 2 * between_failures:
        return between_failures
    ratio = checkpoint_seconds / (2 * between_failures)
    return sqrt(2 * checkpoint_seconds * between_failures) * (1 + sqrt(ratio) / 3 + ratio / 9) - checkpoint_seconds


def completion_seconds(
    work_seconds: float, interval: float, checkpoint_seconds: float, restart_seconds: float, between_failures: float
) -> float:
    """Expected seconds of work with a checkpoint after each interval and exponentially distributed failures, which may also hit checkpoints
    and restarts (Daly 2006, equation 20)."""
    if between_failures == inf:
        return work_seconds * (interval + checkpoint_seconds) / interval
    exponent = (interval + checkpoint_seconds) / between_failures
    if exponent > 700:
        return inf
    return between_failures * exp(restart_seconds / between_failures) * expm1(exponent) * work_seconds / interval


def estimate_failures(
    work_seconds: float, device_hours: float, devices: int, checkpoint_seconds: float = 10.0, restart_seconds: float = RESTART_SECONDS
) -> FailureEstimate:
    """The estimate with the best time between checkpoints. `checkpoint_seconds` are those in which training waits, and `restart_seconds`
    those from a failure to the next step. Raises ConfigError for seconds that are no times."""
    if min(work_seconds, device_hours, checkpoint_seconds) <= 0 or restart_seconds < 0 or devices < 1:
        raise ConfigError(
            f"failures: {work_seconds:g} s of work on {devices} devices with {device_hours:g} hours between failures, "
            f"{checkpoint_seconds:g} s a checkpoint and {restart_seconds:g} s a restart; set all of them above 0"
        )
    between = failure_seconds(device_hours, devices)
    interval = min(daly_interval(checkpoint_seconds, between), work_seconds)
    seconds = completion_seconds(work_seconds, interval, checkpoint_seconds, restart_seconds, between)
    return FailureEstimate(work_seconds, seconds, seconds / between, interval)


def available_interval(checkpoint_seconds: float, between_failures: float, restart_seconds: float = RESTART_SECONDS) -> float:
    """The seconds from one checkpoint to the next with which training goes on for the largest part of the time: with Ts seconds of a
    checkpoint, Tf between failures and Tr of a restart, Ts + sqrt(2 (Tf + Tr) Ts + Ts**2), where a failure loses half of an interval."""
    return checkpoint_seconds + sqrt(2 * (between_failures + restart_seconds) * checkpoint_seconds + checkpoint_seconds**2)
