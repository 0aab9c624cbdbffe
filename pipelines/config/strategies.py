"""The strategies by name: how workers share the computation of a step. What each is for, `train.strategy` says."""

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from pipelines.config.did_you_mean import near
from pipelines.config.plugins import is_path

STRATEGIES = {"ddp": "pipelines.parallel.ddp:DataParallel", "exact": "pipelines.parallel.exact:Exact"}
"""By name the `module:Class` of the `pipelines.parallel.strategy.Strategy`; workers and drivers import it, a config does not."""


def _known(name: str) -> str:
    if name not in STRATEGIES and not is_path(name):
        remedy = near(name, STRATEGIES)
        raise ValueError(f"must be one of {', '.join(STRATEGIES)}, or module:Class of your own{f'; {remedy}' if remedy else ''}")
    return name


StrategyName = Annotated[str, AfterValidator(_known), WithJsonSchema({"anyOf": [{"enum": [*STRATEGIES]}, {"const": "module:Class"}]})]
