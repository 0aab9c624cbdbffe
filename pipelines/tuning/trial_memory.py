"""The memory that a trial's process is expected to take, so that no more of them begin than a machine has memory for.

It is that of any training, the rows that the loader keeps, copies of the model's state that are saved, and on a CPU all that a step needs,
by the planner's estimate: as if the worker had a full copy of the model, and AdamW. What a search varies decides the model too, so the
largest trial counts.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pipelines.config import Config
from pipelines.costs.config_costs import config_costs
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.memory import estimate_memory
from pipelines.tuning.search import Params
from pipelines.tuning.space import config_values, parse_trial

log = logging.getLogger(__name__)

PROCESS_BYTES = 900 * 2**20
"""Of a training without its rows and its model: Python, torch, Ray and MLflow. At most 737 MiB were resident of trials on small tables."""
_SAVED_BYTES = 16
"""Per parameter: a checkpoint's copy of it and of AdamW's two moments, and the weights of the best epoch. A perceptron of 16 million
parameters, whose step needs 312 MiB, had 1,364 MiB resident, and is estimated at 1,458."""
_MOST_VALUES = 8
"""Of a setting, whose models are counted: a count takes a tenth of a second, and some seconds for a large network."""
_OF_STEPS = ("train.global_batch", "train.grad_accum_steps", "train.precision")
"""Settings beside those of `task` that decide the memory of a step."""


def trial_bytes(config: Config, version: Version, on_gpu: bool, alternatives: Sequence[Config] = ()) -> int:
    """Bytes of a machine's memory that each worker of a trial takes, or one of the largest of `alternatives`. What a step needs is in the
    memory of a GPU, where there is one."""
    most = max([largest_model_bytes(config, version, on_gpu), *(model_bytes(other, version, on_gpu) for other in alternatives)])
    return PROCESS_BYTES + rows_bytes(config, version) + most


def rows_bytes(config: Config, version: Version) -> int:
    """Decoded rows that the loader of a worker keeps, and those that it reads ahead."""
    decoded = sum(split.decoded_bytes for split in version.manifest.splits.values())
    return min(decoded, config.train.cache_bytes) + min(decoded, config.train.prefetch_bytes)


def largest_model_bytes(config: Config, version: Version, on_gpu: bool = False) -> int:
    """The most that a model of the search takes in training: that of all values together that need most by themselves. 0 for a model that
    cannot be counted."""
    values, largest, most = config_values(config), Params(), model_bytes(config, version, on_gpu)
    for name, candidates in _values_to_count(config):
        counted = [(_params_bytes(values, {name: value}, version, on_gpu), place) for place, value in enumerate(candidates)]
        most_of_setting, place = max(counted)
        largest[name], most = candidates[place], max(most, most_of_setting)
    return max(most, _params_bytes(values, largest, version, on_gpu))


def model_bytes(config: Config, version: Version, on_gpu: bool = False) -> int:
    """The bytes of a worker's model, gradients, optimizer, activations and saved copies, of which a machine with a GPU has only the last;
    0 if they cannot be counted."""
    train = config.train
    precision = "fp32" if train.precision == "auto" else train.precision
    passes = train.grad_accum_steps * train.strategy.readers(train.min_workers)
    try:
        costs = config_costs(config, version)
    except Exception as error:  # a task of one's own may raise anything before its rows are there, and its training says what
        log.debug("the memory of %s is not counted: %s", config.name, error)
        return 0
    saved = _SAVED_BYTES * costs.parameters
    if on_gpu:
        return saved
    layout = ParallelLayout(full_copies=True, microbatch=-(-train.global_batch // passes), compile=train.compile)
    return saved + int(estimate_memory(costs, replace(layout, precision=precision)).total)


def _values_to_count(config: Config) -> Iterator[tuple[str, list[Any]]]:
    """The settings that may decide the size of a model, each with values to count: those of a choice, of many the first and the last ones,
    and the ends of whole numbers."""
    for name, dimension in config.tune.space.items():
        if not (name.startswith("task.") or name in _OF_STEPS):
            continue
        if dimension.choice is not None:
            choice, half = dimension.choice, _MOST_VALUES // 2
            yield name, list(choice if len(choice) <= _MOST_VALUES else (*choice[:half], *choice[-half:]))
        elif dimension.integers is not None:
            yield name, list(dimension.integers)


def _params_bytes(values: dict[str, Any], params: Params, version: Version, on_gpu: bool) -> int:
    """As `model_bytes`, of a trial; 0 for values that do not go together."""
    try:
        return model_bytes(parse_trial(values, params), version, on_gpu)
    except ConfigError:
        return 0
