"""The settings of the task that all eleven trainings name, whatever is planted in them."""

from typing import ClassVar

from pipelines.config.tasks.task import TabularSettings


class Visits(TabularSettings):
    implementation: ClassVar[str] = "benchmarks.planted.visits:Network"
    kind: str  # type: ignore[assignment]  # the import path of this class
