"""The degrees of `train.parallel`: what a task supports, and the workers as torch's device mesh."""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pipelines.collectives.context import WorkerContext
from pipelines.config.parallel import Degrees
from pipelines.config.train import Train
from pipelines.errors import ConfigError
from pipelines.tasks.base import Task

DATA_PARALLEL = ("replicate", "shard")
"""The degrees whose workers compute different rows; any model supports them."""


def check_degrees(settings: Train, task: Task, model: nn.Module) -> None:
    """Raise ConfigError for a degree that the task does not support; `model` is the task's, with or without values."""
    supported = _supported(task, model)
    for name, degree in settings.parallel.degrees(settings.max_workers)._asdict().items():
        if degree > 1 and name not in supported:
            raise ConfigError(
                f"train.parallel.{name} is {degree}, but task {type(task).__name__} supports only {', '.join(supported)}; set {name} to 1"
            )


def _supported(task: Task, model: nn.Module) -> tuple[str, ...]:
    return DATA_PARALLEL + (("pipeline",) if type(task).stages is not Task.stages else ())


def device_mesh(degrees: Degrees, context: WorkerContext) -> DeviceMesh:
    """The workers as a mesh with a dimension for each degree above 1, by name, and always one for `shard`. Collective."""
    named = {name: degree for name, degree in degrees._asdict().items() if degree > 1 or name == "shard"}
    return init_device_mesh(context.device.type, tuple(named.values()), mesh_dim_names=tuple(named))


def data_parallel(mesh: DeviceMesh) -> DeviceMesh:
    """The part of the mesh over which parameters are spread and gradients summed."""
    return mesh[tuple(name for name in DATA_PARALLEL if name in (mesh.mesh_dim_names or ()))]
