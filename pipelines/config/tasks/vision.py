"""Settings of the task `vision`. Imports no torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, model_validator

from pipelines.config.tasks.base import Probability, TaskSettings


class VisionSettings(TaskSettings):
    """A convolutional network for one column of images."""

    implementation: ClassVar[str] = "pipelines.tasks.images.vision:Vision"
    smooths_labels: ClassVar[bool] = True
    kind: Literal["vision"] = "vision"
    network: Literal["small", "fedavg", "resnet20", "resnet18", "resnet50"] = "small"
    """`small` has two 3x3 convolutions of 32 and 64 channels, and 128 hidden units; `fedavg` two of 5x5, and 512 hidden units, as in
    McMahan et al. 2017; the others are ResNets (He et al. 2016), of which `resnet20` is the small one for pictures of 32x32."""
    dropout: Probability = 0.0
    """Dropout probability between layers, in training."""
    shift_pixels: NonNegativeInt = 0
    """Augmentation in training: maximum number of pixels by which a picture is shifted along each axis; 0, which is black, comes in."""
    flips: Annotated[tuple[Annotated[int, Field(ge=0, le=1)], ...], AfterValidator(lambda axes: tuple(sorted(axes)))] = ()
    """Augmentation in training: axes along which half of the pictures are mirrored; 0 is upside down, 1 left for right."""
    masked_pixels: NonNegativeInt = 0
    """Augmentation in training: side of a square, at a random place, that is replaced by the mean colour of the picture."""
    mixup: Annotated[float, Field(ge=0.01, le=10)] | None = None
    """Augmentation in training: each picture is blended with another one, and their labels are mixed alike. Its share is drawn from the
    distribution Beta(mixup, mixup), with a number such as 0.2. By default, pictures are not blended."""

    @property
    def pairs_rows(self) -> bool:
        return self.mixup is not None

    @model_validator(mode="after")
    def _flips_name_each_axis_once(self) -> "VisionSettings":
        if len(set(self.flips)) < len(self.flips):
            raise ValueError(f"flips is {list(self.flips)}; name each axis once")
        return self
