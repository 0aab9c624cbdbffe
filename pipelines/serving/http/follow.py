"""Loads the model that an alias points to, and another one when it moves."""

import logging
from collections.abc import Callable
from threading import Event

from pipelines.errors import LockstepError
from pipelines.serving.http.served_model import ServedModel, example_row
from pipelines.serving.model import Predictor
from pipelines.serving.model.model import read_model
from pipelines.serving.model.signature import input_example
from pipelines.tracking.registered_models import registered_model_files, resolve_version

log = logging.getLogger(__name__)


def load_served_model(tracking_uri: str, model: str, version: str) -> ServedModel:
    """Load a version, and predict one row of zeros with it. Raises TrackingError if it is not there, CorruptError if it was altered."""
    with registered_model_files(tracking_uri, model, version) as folder:
        settings, manifest, weights, digest = read_model(folder)
    return ServedModel(Predictor(settings, manifest, weights), version, digest, example_row(input_example(manifest)))


def follow(
    tracking_uri: str, model: str, present: str, seconds: float, swap: Callable[[ServedModel], None], fail: Callable[[], None], stop: Event
) -> None:
    """Call `swap` with the loaded model when the alias points to another version than the `present` one, until `stop` is set.

    A model that cannot be loaded, an alias that was removed and a server that is away leave the present model in place: then
    `fail` is called, and the next round tries again.
    """
    while not stop.wait(seconds):
        try:
            version = resolve_version(tracking_uri, model)
            if version != present:
                swap(load_served_model(tracking_uri, model, version))
                present = version
        except Exception as error:  # a model of other code may raise anything; the present one is served on
            fail()
            reason = error if isinstance(error, LockstepError) else repr(error)
            log.warning("still serving version %s, since the alias cannot be followed: %s", present, reason)
