"""Finds the kinds of `train.strategy`: each is a class of settings in a folder of its own, of this project or of somebody else."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, SerializeAsAny, ValidationInfo

from pipelines.config.kinds import Kinds
from pipelines.config.train.base import Training
from pipelines.config.train.strategy import StrategySettings

DEFAULT_KIND = "ddp"
STRATEGIES = Kinds(StrategySettings, "kind", "lockstep.strategies", "pipelines.train", example=DEFAULT_KIND, has_default=True)


def strategy_kinds_with(attribute: str) -> list[str]:
    """The known kinds whose settings say so of themselves, as by `balances`."""
    return [kind for kind, settings in STRATEGIES.by_name.items() if getattr(settings, attribute)]


class Unavailable(StrategySettings):
    """A strategy that a run has recorded, and that this machine does not have. Its model can be used, and not be trained."""

    model_config = ConfigDict(extra="allow")
    implementation = ""

    def implementation_for(self, train: Training) -> str:
        return STRATEGIES.class_for(self.kind).implementation  # which raises, unless it has been installed since


def _parse_settings(value: Any, validation: ValidationInfo) -> Any:
    """The section as settings of the kind that it names. With `recorded` in the context, of a kind that there is no more too."""
    section = STRATEGIES.expand(value)
    if validation.context and validation.context.get("recorded") and isinstance(section, dict):
        try:
            STRATEGIES.class_for(section["kind"])
        except ValueError:
            return Unavailable.model_validate(section)
    return STRATEGIES.parse(section, validation)


NamedStrategy = Annotated[SerializeAsAny[StrategySettings], BeforeValidator(_parse_settings)]
