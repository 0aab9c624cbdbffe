"""Fetches a run's initial weights from another run, and checks that they fit the model, before anything else starts."""

from safetensors import SafetensorError

from pipelines import tracking
from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import TrainingError
from pipelines.runtime.weights import from_bytes, model_digest, to_bytes
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.run_directory import INITIAL, RunDirectory
from pipelines.train.strategies import check_weights_fit, meta_model


def initial_weights(config: Config, version: Version) -> bytes | None:
    """The safetensors file of the run that `train.init_from` names; None if it names none.

    Raises TrackingError if MLflow has no such run or no weights of it. Raises TrainingError if the weights cannot be read, lack
    the logged digest, or do not fit this model.
    """
    origin = config.train.init_from
    if not origin:
        return None
    contents, digest = tracking.download_weights(config.tracking.uri, origin)
    try:
        weights = {name: tensor for content in contents for name, tensor in from_bytes(content).items()}
    except SafetensorError as error:
        raise TrainingError(f"train.init_from is {origin}, whose weights cannot be read: {error}; train that run again") from error
    if digest and (weights_digest := model_digest(weights)) != digest:
        raise TrainingError(
            f"train.init_from is {origin}, whose weights are not the ones that it logged "
            f"(digest {weights_digest[:12]}, and not {digest[:12]}); train that run again"
        )
    check_weights_fit(meta_model(build_task(config.task, version.manifest)), weights, origin)
    return contents[0] if len(contents) == 1 else to_bytes(weights)


def has_initial_weights(config: Config, version: Version) -> bool:
    """Whether this command resumes a run whose directory already has its initial weights."""
    directory = tracking.resumable_folder(config, version) if config.train.init_from else ""
    return bool(directory) and RunDirectory(directory).has(INITIAL)


def write_initial_weights(content: bytes | None, directory: RunDirectory) -> None:
    """Write the initial weights into the run's directory for the workers, unless it has some."""
    if content is not None and not directory.has(INITIAL):
        directory.put_with_checksum(INITIAL, content)
