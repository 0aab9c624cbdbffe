"""`registry`: what a model must reach before it becomes the champion."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from pipelines.config.section import Section, Seed, Text

GateName = Literal["bounds", "size", "latency", "lineage", "commit", "sources", "skew", "champion", "slices"]
Confidence = Annotated[float, Field(ge=0.5, lt=1)]


class Registry(Section):
    """Gates of `jobs/promote.py`, all of which a model must pass."""

    required: tuple[GateName, ...] = ()
    """Gates that must be checked: where one cannot be, or another setting turns it off, the model is refused."""
    model: str = ""
    """Name of the registered model in MLflow; by default, the name of the pipeline."""
    at_least: dict[Text, float] = {}
    """Lower bounds of test metrics, as in `{auc: 0.92}`."""
    at_most: dict[Text, float] = {}
    """Upper bounds of test metrics, as in `{loss: 0.3}`."""
    compare: bool = True
    """Whether to compare with the present champion, which predicts the test rows again."""
    metric: str = ""
    """Metric of this comparison and of slices: auc, accuracy, loss, rmse, mae or mse; by default, the one that selects the best epoch."""
    tolerance: NonNegativeFloat = 0.01
    """How much worse than the champion the model may be, as a share of the champion's value."""
    confidence: Confidence = 0.95
    """Probability with which it must not be worse than that, by a paired bootstrap over the test rows."""
    resamples: PositiveInt = 1_000
    """Samples of the bootstrap."""
    seed: Seed = 1
    """Seed of the bootstrap."""
    slices: tuple[Text, ...] = ()
    """Columns of the query: the rows of each value are a slice."""
    slice_bound: float | None = None
    """The worst value of `metric` that a slice may have. Required for slices."""
    slice_rows: PositiveInt = 50
    """Slices with fewer rows are not judged."""
    latency_ms: PositiveFloat | None = None
    """Upper bound of the 95th percentile, in milliseconds, of the time to predict a single row in a process on this machine."""
    size_mb: PositiveFloat | None = None
    """Upper bound of the size of the model's files, in 10^6 bytes."""
    clean_git: bool = True
    """Whether the code must have been that of a commit."""
    most_rows: PositiveInt = 200_000
    """Maximum number of test rows to predict, which must fit in the driver's memory. Of more, a fixed sample is taken."""
