"""Translates a config into a Ray Train trainer, which also restarts the workers after a death, as often as train.max_failures says."""

import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Any

from ray.train import LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.data.versions.versions import Version
from pipelines.launch.assignment import PACKAGES, Assignment
from pipelines.launch.own_ray import is_own
from pipelines.launch.worker_failures import DeathRecorder, restart_policy
from pipelines.runtime.compat.ray_train import ElasticScalingPolicy, FixedScalingPolicy, ScalingPolicy, local_controller
from pipelines.runtime.environment import installed_versions
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.strategy import strategy_class
from pipelines.train.workers import COLLECTIVE_SHARE

_START_SECONDS = 5
"""How long Ray waits, before it tries again, for resources that its cluster does not have yet."""
_STOP_SECONDS = 2.0
"""Time for a controller in this process to take its last step, before its Ray ends."""
_NOT_NEEDED = ("DatasetsCallback", "PlacementGroupCleanerCallback")


class Trainer(TorchTrainer):
    """A trainer that leaves machines out, and is without actors that are not needed here, each of which uses 1 % of a core while idle.

    One distributes Ray Data's datasets. One frees the machines of a controller that died before its driver, and polls the
    dashboard for that, which a Ray of our own does not have. On a Ray of our own, the third one requests machines, and the controller runs
    in this process.
    """

    def __init__(self, *arguments: Any, left_out: Sequence[str] = (), **settings: Any) -> None:
        """`left_out` are ids of nodes that get no worker."""
        super().__init__(*arguments, **settings)
        self._left_out = left_out
        self._must_stop, self._has_ended = Event(), Event()
        self._has_ended.set()

    def stop(self) -> None:
        """Make a controller in this process end at its next step, and wait for it. One in an actor ends with the driver."""
        self._must_stop.set()
        self._has_ended.wait(_STOP_SECONDS)

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()  # type: ignore[misc]  # typed as Train v1 has it
        return [callback for callback in callbacks if type(callback).__name__ not in _NOT_NEEDED]

    def _initialize_and_run_controller(self, **parts: Any) -> Any:
        may_grow = bool(os.environ.get("RAY_ADDRESS"))  # no machine joins a cluster that we start
        if type(parts["scaling_policy"]) is FixedScalingPolicy and not may_grow:
            parts["scaling_policy"] = _scaling_on_existing_machines(self.scaling_config)
        if self._left_out and self.scaling_config.elasticity_enabled:  # type: ignore[attr-defined]  # as below
            parts["scaling_policy"] = _scaling_without(self._left_out, self.scaling_config)
        run_controller = local_controller() if is_own() else None
        if run_controller is None:
            return super()._initialize_and_run_controller(**parts)  # type: ignore[misc]
        os.environ.setdefault("RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING", "0")  # `RayOutput` keeps what it logs
        self._has_ended.clear()
        try:
            return run_controller(parts, self._must_stop.is_set)
        finally:
            self._has_ended.set()


def _scaling_on_existing_machines(scaling: Any) -> ScalingPolicy:
    class OnExistingMachines(FixedScalingPolicy):  # a local class is pickled by value: Ray's controller need not import this package
        def after_controller_start(self, train_run_context: Any) -> None:
            pass

        def _maybe_send_resource_request(self) -> None:
            pass

    return OnExistingMachines(scaling)


def _scaling_without(left_out: Sequence[str], scaling: Any) -> ScalingPolicy:
    """Return a policy with an elastic number of workers. It counts no machine of `left_out`; Ray's own ignores the workers' labels."""

    class Elastic(ElasticScalingPolicy):
        def _count_possible_workers(self, reserved_resources: Any) -> int:
            counted = {node: resources for node, resources in reserved_resources.items() if node not in left_out}
            return super()._count_possible_workers(counted)

    return Elastic(scaling)


def create_trainer(
    work: Callable[[dict[str, Any]], dict[str, Any]],
    config: Config,
    version: Version,
    run_id: str,
    directory: RunDirectory,
    gpus: bool,
    left_out: Sequence[str] = (),
    pause_epoch: int | None = None,
    is_local: bool = False,
    **worker_arguments: Any,
) -> Trainer:
    """Create a trainer whose workers call `work` with a dict of `worker_arguments` and, under `assignment`, an Assignment.

    No worker is placed on the machines of `left_out`, which are ids of Ray's nodes. If it `is_local`, this process is the only worker.
    """
    settings = config.train
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # `training_watch` asks Ray without an actor and a barrier
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")  # how soon Ray sees that workers died or are done
    # Short, since a group that shrinks may first be started on a machine that has just disappeared.
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(_START_SECONDS))
    strategy = strategy_class(settings)  # raises here if it cannot be imported, before any worker starts
    environment = dict(strategy.environment) if gpus else {}  # set in workers before CUDA starts, which happens before our code runs
    versions = installed_versions((*PACKAGES, *config.task.distributions))
    # Saving in the background needs a process group on the CPU, even if gradients are summed on GPUs.
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    values = config.model_dump(mode="json", by_alias=True)
    assignment = Assignment(
        values, version, run_id, directory.uri, socket.gethostname(), versions, pause_epoch, backend if is_local else ""
    )
    return Trainer(
        # Ray's controller would unpickle a `train_loop_config`, and import for it all that a worker needs.
        partial(work, {"assignment": assignment, **worker_arguments}),
        torch_config=TorchConfig(backend, timeout_s=max(1, round(COLLECTIVE_SHARE * settings.timeout_seconds))),
        scaling_config=ScalingConfig(num_workers=0, use_gpu=gpus) if is_local else _scaling(settings, gpus, left_out),
        run_config=_run(settings, directory, environment),
        left_out=left_out,
    )


def _scaling(settings: Train, gpus: bool, left_out: Sequence[str]) -> ScalingConfig:
    # Ray's types are still those of Train v1.
    return ScalingConfig(
        num_workers=settings.workers if isinstance(settings.workers, int) else settings.workers_range,  # type: ignore[arg-type]
        use_gpu=gpus,
        resources_per_worker={"CPU": settings.cpus_per_worker, **({"GPU": 1} if gpus else {})},
        elastic_resize_monitor_interval_s=settings.resize_seconds,  # type: ignore[call-arg]
        label_selector={"ray.io/node-id": f"!in({','.join(left_out)})"} if left_out else None,
    )


def _run(settings: Train, directory: RunDirectory, environment: dict[str, str]) -> RunConfig:
    parent, _, name = directory.path.rpartition("/")
    return RunConfig(  # type: ignore[call-arg]  # as in _scaling
        name=name,
        storage_path=parent,
        storage_filesystem=directory.filesystem,
        logging_config=LoggingConfig(log_level="WARNING"),
        callbacks=[DeathRecorder(directory.uri)],  # type: ignore[list-item]  # as in _scaling
        failure_config=restart_policy(settings),
        worker_runtime_env={"env_vars": environment} if environment else None,
    )
