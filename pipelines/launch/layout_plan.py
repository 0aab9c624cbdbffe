"""The layouts that a plan offers a training, for whoever runs it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelines.config import Config
from pipelines.config.messages.words import show_count
from pipelines.planning.candidates import PlanCandidate


@dataclass(frozen=True)
class LayoutPlan:
    """Layouts in which the model is the same, the fastest by the plan first."""

    candidates: Sequence[PlanCandidate]
    place: Callable[[PlanCandidate], Config]
    """The config that trains in a candidate's layout."""
    replans: bool = False
    """Whether the run goes on in a layout that turns out to be better."""

    @property
    def config(self) -> Config:
        """The config of the first layout."""
        return self.place(self.candidates[0])

    def describe(self, position: int) -> str:
        """A candidate by its workers and its layout."""
        layout = self.candidates[position].layout
        return f"{show_count(layout.workers, 'worker')} ({layout.describe()})"
