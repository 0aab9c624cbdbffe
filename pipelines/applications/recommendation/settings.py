"""Settings of the tasks `recommendation` and `next_item`."""

from typing import Annotated, ClassVar, Literal

from pydantic import PositiveInt, model_validator

from pipelines.config.effects import OnlyWith
from pipelines.config.tasks.base import Probability, SequenceTaskSettings, TaskSettings, check_heads

_FACTORS = OnlyWith(".network", ("factors",))


class RecommendationSettings(TaskSettings):
    """Predicts how a user rates an item, from features of both."""

    implementation: ClassVar[str] = "pipelines.applications.recommendation.ratings:Recommendation"
    smooths_labels: ClassVar[bool] = True
    has_average: ClassVar[bool] = True
    kind: Literal["recommendation"] = "recommendation"
    network: Literal["factors", "dlrm"] = "factors"
    """`factors` is matrix factorization: biases, and the product of the vectors of user and item. `dlrm` computes the products of all
    pairs of features, followed by a perceptron."""
    user: Annotated[tuple[str, ...], _FACTORS] = ()
    """For `factors`: features whose vectors are summed to the vector of the user."""
    item: Annotated[tuple[str, ...], _FACTORS] = ()
    """For `factors`: features whose vectors are summed to the vector of the item."""
    width: PositiveInt = 32
    """Width of each vector."""
    hidden: Annotated[tuple[PositiveInt, ...], OnlyWith(".network", ("dlrm",))] = (64, 32)
    """For `dlrm`: widths of the hidden layers."""
    dropout: Probability = 0.0
    """Dropout probability between layers, in training."""


class NextItemSettings(SequenceTaskSettings):
    """Predicts the next item of a sequence by causal self-attention over the previous items (SASRec)."""

    implementation: ClassVar[str] = "pipelines.applications.recommendation.next_item:NextItem"
    kind: Literal["next_item"] = "next_item"
    width: PositiveInt = 50
    """Width of the vector of an item and of every layer."""
    blocks: PositiveInt = 2
    """Number of transformer blocks, each with self-attention and a perceptron."""
    heads: PositiveInt = 1
    """Attention heads in each block; they must divide `width`."""
    dropout: Probability = 0.5
    """Dropout probability between layers, in training."""
    negatives: PositiveInt = 256
    """Number of negative samples in the loss: items drawn for each row and epoch."""
    evaluation_negatives: PositiveInt = 100
    """Number of negative samples in evaluation: items outside the history of a row, drawn once, among which the right one is ranked."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "NextItemSettings":
        check_heads(self.width, self.heads)
        return self
