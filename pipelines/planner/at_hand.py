"""Chooses the layout of a training by a plan for the devices at hand, as `train.parallel: auto` asks.

Only what a run may resume with is chosen, so that the model stays the one of the config: the number of workers, and the settings of the
strategy that decide where the model is computed.
"""

import os
import re
from functools import partial
from pathlib import Path

import ray
import torch

from pipelines.config import Config, home
from pipelines.config.train.train import Train
from pipelines.data.versions.folds import fold_config, smallest_training, training_version
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import ConfigError
from pipelines.launch.cluster import cluster
from pipelines.launch.layout_plan import LayoutPlan
from pipelines.planner.plan import PlanRequest, make_plan
from pipelines.planning.candidates import PlanCandidate
from pipelines.planning.hardware import HERE, Cluster, Hardware, read_hardware, sheet_paths
from pipelines.runtime.progress import Progress

_CPU_SHEET = "cpu2"
"""Of a machine without GPUs that was not measured."""
_ACCELERATOR = "accelerator_type:"
"""Before the name of a GPU, in the name of one of Ray's resources."""


def choose_layout(config: Config, version: Version) -> LayoutPlan:
    """The layouts in which the config's strategy trains that version on the devices at hand, the fastest of them chosen. Raises ConfigError
    if there is none, or if the GPU has no data sheet."""
    device, count = find_devices(config.train)
    is_given = "workers" in config.train.model_fields_set
    counts = [config.train.max_workers] if is_given else [number for number in range(1, count + 1) if count % number == 0]
    hardware = device_hardware(device, count)
    clusters = [Cluster(hardware, number) for number in counts]
    plan = make_plan(PlanRequest(folder=_folder(), keep_compile=True), config, clusters, version)
    candidates = [candidate for candidate in plan.candidates if _keeps_the_model(config, candidate)]
    if not candidates:
        raise ConfigError(
            f"train.parallel is auto, but no layout of strategy {config.train.strategy.kind} fits {count} {device or 'cores'}; set "
            "train.parallel to fixed, or see what lockstep plan lists"
        )
    best = candidates[0]
    Progress().say(
        f"layout {best.layout.describe()} on {best.cluster.name}: {best.step.step_seconds:.3g} s a step expected, "
        f"{best.step.memory_gib:.2g} GiB of a worker: the fastest of {len(candidates)}"
    )
    if config.train.parallel.replan and len(candidates) == 1:
        Progress().say("train.parallel.replan has nothing to change to: the config leaves one layout on these devices")
    return LayoutPlan(candidates, partial(_place, config), config.train.parallel.replan)


def choose_layout_of_folds(config: Config) -> Config:
    """The config of a cross-validation, in the layout that is chosen for the fold with the fewest rows. Raises what `choose_layout` does,
    and ConfigError for `replan`, which a fold cannot have of its own."""
    if config.train.parallel.replan:
        raise ConfigError("train.parallel.replan is true, but all folds are trained in one layout; set it to false")
    version = open_version(config.dataset.path, config.data_identity)
    folds = version.manifest.folds
    assert folds is not None, "the config has folds, which is part of the identity of a version"
    fold = smallest_training(folds)
    config = fold_config(config, fold)
    chosen = choose_layout(config, training_version(config, version)).config
    return fold_config(chosen, None)


def find_devices(settings: Train) -> tuple[str, int]:
    """The name of the devices at hand, empty for CPUs, and their number: GPUs if there are some, or else as many as workers have cores."""
    if os.environ.get("RAY_ADDRESS"):
        with cluster(settings):
            resources = ray.cluster_resources()
        names = [name.removeprefix(_ACCELERATOR) for name in resources if name.startswith(_ACCELERATOR)]
        gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    else:
        gpus, cores = torch.cuda.device_count(), len(os.sched_getaffinity(0))
        names = [torch.cuda.get_device_name()] if gpus else []
    if gpus and settings.use_gpu is not False:
        return names[0] if names else "GPU", gpus
    return "", max(1, cores // settings.cpus_per_worker)


def device_hardware(device: str, count: int) -> Hardware:
    """The data sheet of a device: for CPUs that of this machine, if it was measured. Raises ConfigError for a GPU without one."""
    names = sheet_paths(_folder())
    if not device:
        hardware = read_hardware(HERE if HERE in names else _CPU_SHEET, _folder())
        return hardware.model_copy(update={"devices_per_machine": max(count, hardware.devices_per_machine)})
    words = {re.sub(r"^(\d+g)$", r"\1b", word) for word in re.split("[^a-z0-9]+", device.lower())}  # Ray says A100-40G
    matching = sorted((name for name in names if words.issuperset(name.split("_"))), key=len)
    if not matching:
        raise ConfigError(f"train.parallel is auto, but {device} has no data sheet; write {_folder() / 'NAME.yaml'}, or set it to fixed")
    return read_hardware(matching[-1], _folder())


def _folder() -> Path:
    return home() / "conf" / "hardware"


def _keeps_the_model(config: Config, candidate: PlanCandidate) -> bool:
    """Whether a layout is one of the config's strategy, with its passes, so that a run may go on in it."""
    train, layout = config.train, candidate.layout
    if layout.readers > train.shards:
        return False
    if train.strategy.rows_per_pass(train):
        return True
    return layout.accumulation == train.grad_accum_steps and train.strategy.settings_for_layout(layout) is not None


def _place(config: Config, candidate: PlanCandidate) -> Config:
    """The config with the layout's workers, and the settings of its strategy that decide where the model is computed."""
    train = config.train
    values = train.model_dump(mode="json", exclude_unset=True, exclude={"parallel"})
    own = train.strategy.model_dump(mode="json", exclude_unset=True, exclude=set(train.strategy.placement))
    chosen = train.strategy.settings_for_layout(candidate.layout) or {}
    placed = {name: value for name, value in chosen.items() if name in train.strategy.placement}
    values |= {"workers": candidate.layout.workers, "strategy": {"kind": train.strategy.kind, **own, **placed}}
    return config.model_copy(update={"train": Train.model_validate(values)})
