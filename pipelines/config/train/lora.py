"""`train.lora`: low-rank changes of some layers in place of their weights. Imports no torch."""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from pipelines.config.section import Section, Text


class Lora(Section):
    """Low-rank adaptation (Hu et al. 2021): of the linear layers that match, a product of two small matrices is trained in place of the
    weight, and added to it at the end. The logged model is an ordinary one."""

    rank: PositiveInt = 8
    """Columns of the one matrix, and rows of the other."""
    alpha: PositiveFloat = 16.0
    """The product is multiplied by alpha / rank."""
    targets: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Names of linear layers, or patterns of them such as `*.attention.self.query`."""
