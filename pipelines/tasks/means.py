"""Means over rows that say which way is better, as every metric must that may pick the best epoch."""

from torchmetrics import MeanMetric


class Loss(MeanMetric):
    """A mean that is better when it is lower. Not-a-number is not left out."""

    higher_is_better = False  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(nan_strategy="disable")


class Score(MeanMetric):
    """A mean that is better when it is higher. Not-a-number is not left out."""

    higher_is_better = True  # type: ignore[assignment]  # whose type there is that of None

    def __init__(self) -> None:
        super().__init__(nan_strategy="disable")
