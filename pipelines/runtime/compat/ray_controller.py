"""Ray Train's controller in a thread of the driver. As Ray's actor it would import Ray Train and torch once more, for three seconds of
processor time, before the first worker starts."""

import asyncio
import gc
import logging
import os
from typing import Any

import ray
from ray._private import auto_init_hook
from ray.exceptions import RaySystemError
from ray.runtime_context import RuntimeContext
from ray.train import Result
from ray.train.v2._internal.execution.controller.controller import TrainController
from ray.train.v2._internal.execution.worker_group.worker import Worker
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

from pipelines.runtime.compat import present, replacement

LOGGER = logging.getLogger("ray.train")
"""To which the controller writes."""

present(TrainController, "worker_group_cls", "run", "get_result", "_run_control_loop_iteration")
present(WorkerGroup, "_init_train_context_on_workers", "_get_worker_runtime_env")


class _WorkerGroup(WorkerGroup):
    def _init_train_context_on_workers(self, workers: list[Worker], *context: Any) -> None:
        for worker in workers:
            worker.actor.execute.remote(gc.disable)  # while the context imports torch, as in `runtime.imports`
        with replacement(RuntimeContext, "current_actor", None):  # a handle by which workers would ask for reported checkpoints
            super()._init_train_context_on_workers(workers, *context)
        for worker in workers:
            worker.actor.execute.remote(gc.enable)


class _WorkerGroupOfEqualEnvironment(_WorkerGroup):
    """Workers that have inherited the driver's environment. With one of their own, they could not be the idle processes that Ray starts
    for a new driver."""

    @staticmethod
    def _get_worker_runtime_env(custom_runtime_env: Any) -> dict[str, Any]:
        return dict(custom_runtime_env)


class _Controller(TrainController):
    def __init__(self, is_environment_equal: bool, **parts: Any) -> None:
        self.worker_group_cls = _WorkerGroupOfEqualEnvironment if is_environment_equal else _WorkerGroup
        self._node_id = ray.get_runtime_context().get_node_id()
        super().__init__(**parts)

    async def _run_control_loop_iteration(self) -> None:
        """Raises RaySystemError if the driver has left the Ray in which this began."""
        if not ray.is_initialized() or ray.get_runtime_context().get_node_id() != self._node_id:
            raise RaySystemError("the driver has left Ray")
        await super()._run_control_loop_iteration()


def run_controller(is_environment_equal: bool, **parts: Any) -> Result:
    """Train with the parts of a controller, and return its result. `is_environment_equal` says that workers inherit this process's
    environment.

    If the driver leaves Ray meanwhile, this ends with an error instead of starting another Ray, as Ray's functions would.
    """
    os.environ.setdefault("RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING", "0")  # it would set up this process's log
    with replacement(auto_init_hook, "enable_auto_connect", False):
        controller = _Controller(is_environment_equal, **parts)
        asyncio.run(controller.run())
        return controller.get_result()
