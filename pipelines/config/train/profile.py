"""`train.profile`: which steps of which workers torch's profiler records."""

from typing import Annotated

from pydantic import NonNegativeInt, PositiveInt, model_validator

from pipelines.config.effects import OnlyWith, is_given
from pipelines.config.section import Section

MOST_STEPS = 1_000
_WITH_STEPS = OnlyWith(".steps", fits=is_given, remedy="set train.profile.steps to the first and the last, such as [50, 60]")


class Profile(Section):
    """Steps that torch's profiler records. The model does not depend on it."""

    steps: tuple[PositiveInt, PositiveInt] | None = None
    """The first and the last step to record, counted from 1, such as [50, 60]: traces for Perfetto, and a table of the operators that
    take longest, are filed in the run. By default none is recorded."""
    ranks: Annotated[tuple[NonNegativeInt, ...], _WITH_STEPS] = (0,)
    """Ranks of the workers whose steps are recorded."""
    memory: Annotated[bool, _WITH_STEPS] = False
    """Records memory in these steps as well: on a GPU, a snapshot of torch's allocator; without one, the peak of resident memory in each
    phase of a step."""

    @model_validator(mode="after")
    def _steps_are_a_range(self) -> "Profile":
        if self.steps is None:
            return self
        first, last = self.steps
        if last < first:
            raise ValueError(f"steps is {[first, last]}; write the smaller number first")
        if last - first >= MOST_STEPS:
            raise ValueError(
                f"steps is {[first, last]}, {last - first + 1:,} steps; record at most {MOST_STEPS:,}, whose trace fits a browser"
            )
        return self
