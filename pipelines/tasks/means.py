"""Means over rows that declare `higher_is_better`, which `train.monitor` requires of a metric."""

from torchmetrics import MeanMetric


class Loss(MeanMetric):
    """A mean for which lower is better. NaN values are not skipped."""

    higher_is_better = False  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(nan_strategy="disable")


class Score(MeanMetric):
    """A mean for which higher is better. NaN values are not skipped."""

    higher_is_better = True  # type: ignore[assignment]  # declared as None in MeanMetric

    def __init__(self) -> None:
        super().__init__(nan_strategy="disable")
