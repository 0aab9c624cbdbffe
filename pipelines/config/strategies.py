"""The strategies by name: how workers share the computation of a step. `train.strategy` describes each."""

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from pipelines.config.did_you_mean import suggestion
from pipelines.config.plugins import is_path

STRATEGIES = {
    "ddp": "pipelines.train.ddp.ddp:DataParallel",
    "exact": "pipelines.train.exact.exact:Exact",
    "local_sgd": "pipelines.strategies.local_sgd.local_sgd:LocalSgd",
    "federated": "pipelines.strategies.federated.strategy:Federated",
    "sharded": "pipelines.strategies.sharded.sharded:Sharded",
    "parameter_server": "pipelines.strategies.parameter_server.strategy:Served",
}
"""`module:Class` of each `pipelines.train.strategy.Strategy` by name. Drivers and workers import it; reading a config does not."""


def _known(name: str) -> str:
    if name not in STRATEGIES and not is_path(name):
        remedy = suggestion(name, STRATEGIES)
        raise ValueError(f"must be one of {', '.join(STRATEGIES)}, or module:Class of your own{f'; {remedy}' if remedy else ''}")
    return name


StrategyName = Annotated[str, AfterValidator(_known), WithJsonSchema({"anyOf": [{"enum": [*STRATEGIES]}, {"const": "module:Class"}]})]
