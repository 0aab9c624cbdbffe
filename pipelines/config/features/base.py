"""Base of every encoder's settings."""

from typing import ClassVar

from pipelines.config.section import Section


class EncoderSettings(Section):
    """Base of every encoder's settings. An encoder of your own derives from it, in a module that imports no torch and no Arrow."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.features.base.Encoder` that these settings configure; imported by whoever encodes."""
    packs: ClassVar[bool] = False
    """Whether it makes rows of another number than it is given: windows of documents."""
    encoder: str
    """One of the built-in encoders, such as `standardize`, or `module:Class` of your own settings; alone, it may stand for its
    settings."""
    column: str = ""
    """Column of the query to encode; by default the one of the feature's own name."""

    @property
    def implemented_by(self) -> str:
        """The implementation, where settings decide which it is."""
        return self.implementation

    def inputs(self, feature: str) -> tuple[str, ...]:
        """The query's columns that this encoder reads, for the feature of that name."""
        return (self.column or feature,)

    def learns_from(self, feature: str) -> tuple[str, ...]:
        """The query's columns whose values in the training split decide its state; by default those it reads."""
        return self.inputs(feature)
