"""Points of consistency, which a strategy yields while it trains: there all workers agree on the state of the run."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.train.step_statistics import StepStatistics


@dataclass(frozen=True)
class Progress:
    """A point of consistency: all workers have taken the same steps, and their parts of the state fit together.

    At such a point, and at no other, the loop saves the state, deals shards to workers anew, or ends the run. Every worker yields the same.
    """

    steps: Sequence[StepStatistics] = ()
    """Finished steps that the strategy has not counted itself."""
    save: bool = False
    """The state should be saved now, unless the epoch ends here: then it is validated first."""
    stop: bool = False
    """A worker was asked to stop: the run ends here, and the state is saved."""
    is_written: bool = False
    """Every worker has written its part of the last save."""

    @classmethod
    def after(cls, steps: Sequence[StepStatistics], workers: int) -> "Progress":
        """The point after steps whose all-reduces have also summed the workers' flags."""
        is_save_due, is_stop_due = any(step.save for step in steps), any(step.stop for step in steps)
        return cls(steps, is_save_due, is_stop_due, steps[-1].written == workers)
