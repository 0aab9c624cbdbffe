"""Runs Ray Train's controller in the driver's process. Ray runs it in an actor, whose process takes seconds to import what it needs.

Only for a Ray of our own. Its processes have the driver's environment, so workers need no runtime environment, which no process that
Ray starts ahead would have.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ray._private import auto_init_hook
from ray.runtime_context import RuntimeContext
from ray.train.v2._internal.execution.checkpoint import sync_actor
from ray.train.v2._internal.execution.controller.controller import TrainController
from ray.train.v2._internal.execution.worker_group import worker_group
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

from pipelines.runtime.compat import present, replacement
from pipelines.runtime.imports import NO_PRELOAD

present(TrainController, "worker_group_cls", "run", "get_result", "_step")
present(WorkerGroup, "_get_worker_runtime_env")
present(worker_group, "SynchronizationActor")
present(RuntimeContext, "current_actor")
present(auto_init_hook, "enable_auto_connect")


class _WorkerGroup(WorkerGroup):
    @staticmethod
    def _get_worker_runtime_env(custom_runtime_env: Any) -> dict[str, Any]:
        """Return the runtime environment of a worker: without Ray Train's own variables, which it has from the driver."""
        return dict(custom_runtime_env)


class _SynchronizationActor:
    """Ray Train's actor for barriers, with a runtime environment: it takes none of the processes that wait for workers."""

    def __init__(self, actor_class: Any) -> None:
        self._actor_class = actor_class

    def options(self, **options: Any) -> Any:
        return self._actor_class.options(runtime_env={"env_vars": {NO_PRELOAD: "1"}}, **options)


class _Controller(TrainController):
    worker_group_cls = _WorkerGroup

    def __init__(self, must_stop: Callable[[], bool], **parts: Any) -> None:
        self._must_stop = must_stop
        super().__init__(**parts)

    async def _step(self) -> Any:
        if self._must_stop():
            raise asyncio.CancelledError  # not an Exception, which Ray Train would take for a reason to start the group again
        return await super()._step()


def run_controller(parts: dict[str, Any], must_stop: Callable[[], bool]) -> Any:
    """Run a controller made of `parts` until the training ends, and return Ray's result.

    Raises CancelledError at the controller's next step once `must_stop` says so.
    """
    barriers = _SynchronizationActor(sync_actor.SynchronizationActor)
    with (
        replacement(worker_group, "SynchronizationActor", barriers),
        replacement(RuntimeContext, "current_actor", None),  # workers get the controller's handle, and never use it
        replacement(auto_init_hook, "enable_auto_connect", False),  # the driver may shut Ray down meanwhile
    ):
        controller = _Controller(must_stop, **parts)
        asyncio.run(controller.run())
        return controller.get_result()
