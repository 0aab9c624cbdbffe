"""Settings of the task that writes down what it trains on."""

from typing import ClassVar

from pipelines.config import TaskSettings


class Recorded(TaskSettings):
    implementation: ClassVar[str] = "chaos.task:Recorded"
    records: str
    """Folder for a file of each worker process."""
    step_seconds: float = 0.0
    """A worker sleeps so long in every step, so that a small training lasts."""
    evaluation_seconds: float = 0.0
    """And so long in every batch that is evaluated."""
    width: int = 32
    """Of the two hidden layers."""
