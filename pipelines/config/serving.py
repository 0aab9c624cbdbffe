"""Sections for a finished model: `registry`, which it must pass to become the champion, `export` for other software and hardware, and
`endpoint`, which `cluster/serve.py` serves over HTTP."""

import re
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationInfo, model_validator

from pipelines.config.effects import OnlyWith, is_given
from pipelines.config.section import Section, Seed, Text, extend
from pipelines.config.slices import folders_with_settings, inner_packages

EXPORTS = "pipelines.exports"
"""The package of targets: each is a folder with a module `target`, and, if it has settings, a module `settings`."""
EXPORTS_GROUP = "lockstep.exports"
GateName = Literal["bounds", "size", "latency", "lineage", "commit", "sources", "skew", "champion", "slices"]
Confidence = Annotated[float, Field(ge=0.5, lt=1)]
_COMPARED = OnlyWith(".compare", (True,))
_WITH_SLICES = OnlyWith(".slices", fits=is_given, remedy="name columns in registry.slices")
_WITH_ALIAS = OnlyWith(
    ".model", fits=lambda model, _: not model or "@" in model, remedy="set endpoint.model to an alias, models:/NAME@ALIAS"
)


@cache
def export_targets() -> dict[str, str]:
    """The function that writes each target, `module:function`, by name: of the core, of folders in EXPORTS, and those that other packages
    register by entry points of the group `lockstep.exports`. None of these takes a name of the project's own."""
    core = {"onnx": "pipelines.serving.export.onnx:write", "onnx-int8": "pipelines.serving.export.onnx:write_int8"}
    targets = core | {name: f"{EXPORTS}.{name}.target:write" for name in inner_packages(EXPORTS)}
    return targets | {target.name: target.value for target in entry_points(group=EXPORTS_GROUP) if target.name not in targets}


class Export(Section):
    """Settings of `jobs/export.py`."""

    path: str = "exports"
    """Folder in which every run and target gets a folder of its own."""
    max_batch_rows: PositiveInt = 256
    """Rows of a batch during the comparison with the model in MLflow. What `stablehlo` writes takes exactly so many, that of `executorch`
    at most."""
    calibration_rows: PositiveInt = 1_000
    """Rows of the training split from which `onnx-int8` measures the ranges of activations."""
    least_equal_decisions: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Least share of decisions that must be those of the model in MLflow, or nothing is written. A number of a quantity is equal if it
    differs by no more than a tenth of its standard deviation over the rows."""

    @model_validator(mode="before")
    @classmethod
    def _run_may_have_targets_that_are_gone(cls, values: Any, validation: ValidationInfo) -> Any:
        if not isinstance(values, dict) or not (validation.context and validation.context.get("recorded")):
            return values
        return {name: value for name, value in values.items() if name in cls.model_fields or not isinstance(value, dict)}


if not TYPE_CHECKING:  # with the section of each target that has settings
    _modules = {folder.rpartition(".")[2]: import_module(f"{folder}.settings") for folder in folders_with_settings(EXPORTS)}
    _sections = {name: (module.Settings, Field(module.Settings(), description=module.__doc__)) for name, module in _modules.items()}
    Export = extend(Export, __module__=__name__, **_sections)


def _check_model(uri: str) -> str:
    if uri and not re.fullmatch(r"models:/[^/@]+(/\d+|@[^/@]+)?", uri):
        raise ValueError("must be models:/NAME@ALIAS, models:/NAME/VERSION or models:/m-… of a logged model")
    return uri


class Endpoint(Section):
    """The HTTP endpoint of a model."""

    model: Annotated[str, AfterValidator(_check_model)] = ""
    """URI of the model; by default models:/NAME@champion, NAME being that of the pipeline. An alias is followed: when it moves to another
    version, the endpoint serves that one."""
    follow_seconds: Annotated[PositiveFloat, _WITH_ALIAS] = 5.0
    """How often each replica asks MLflow where the alias points."""
    host: str = "127.0.0.1"
    """Address to listen on. One that other machines can reach requires a token."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """Port to listen on."""
    token_file: str = ""
    """File with the token that clients send as `Authorization: Bearer TOKEN`; LOCKSTEP_TOKEN contains it otherwise. Without either, no
    token is required."""
    replicas: PositiveInt = 1
    """Processes that predict, each with one CPU and its own copy of the model."""
    max_batch_rows: PositiveInt = 1_024
    """Maximum number of rows, of any number of requests, that a replica predicts together. It takes those that wait, and does not wait
    for more."""
    waiting_requests: PositiveInt = 256
    """Requests that a replica holds, predicting or waiting; further ones are answered 503."""
    rows_per_request: PositiveInt = 10_000
    """Maximum number of rows of a request; more are answered 413."""
    bytes_per_request: PositiveInt = 8 * 2**20
    """Maximum size of a request; more are answered 413."""
    request_seconds: PositiveFloat = 30.0
    """Time for a request to arrive, headers and body; slower ones are answered 408 and cut off."""
    answer_seconds: PositiveFloat = 120.0
    """Time for a replica to answer a request that has arrived; then HAProxy answers 504."""


class Registry(Section):
    """Gates of `jobs/promote.py`, all of which a model must pass."""

    required: tuple[GateName, ...] = ()
    """Gates that must be checked: where one cannot be, or another setting turns it off, the model is refused."""
    model: str = ""
    """Name of the registered model in MLflow; by default, the name of the pipeline."""
    at_least: dict[Text, float] = {}
    """Lower bounds of test metrics, as in `{auc: 0.92}`."""
    at_most: dict[Text, float] = {}
    """Upper bounds of test metrics, as in `{loss: 0.3}`."""
    compare: bool = True
    """Whether to compare with the present champion, which predicts the test rows again."""
    metric: Annotated[str, OnlyWith(".compare", (True,), unless=lambda config: bool(config.registry.slices))] = ""
    """Metric of this comparison and of slices: auc, accuracy, loss, rmse, mae or mse; by default, the one that selects the best epoch."""
    tolerance: Annotated[NonNegativeFloat, _COMPARED] = 0.01
    """How much worse than the champion the model may be, as a share of the champion's value."""
    confidence: Annotated[Confidence, _COMPARED] = 0.95
    """Probability with which it must not be worse than that, by a paired bootstrap over the test rows."""
    resamples: Annotated[PositiveInt, _COMPARED] = 1_000
    """Samples of the bootstrap."""
    seed: Annotated[Seed, _COMPARED] = 1
    """Seed of the bootstrap."""
    slices: tuple[Text, ...] = ()
    """Columns of the query: the rows of each value are a slice."""
    slice_bound: Annotated[float | None, _WITH_SLICES] = None
    """The worst value of `metric` that a slice may have. Required for slices."""
    slice_rows: Annotated[PositiveInt, _WITH_SLICES] = 50
    """Slices with fewer rows are not judged."""
    latency_ms: PositiveFloat | None = None
    """Upper bound of the 95th percentile, in milliseconds, of the time to predict a single row in a process on this machine."""
    size_mb: PositiveFloat | None = None
    """Upper bound of the size of the model's files, in 10^6 bytes."""
    clean_git: bool = True
    """Whether the code must have been that of a commit."""
    most_rows: PositiveInt = 200_000
    """Maximum number of test rows to predict, which must fit in the driver's memory. Of more, a fixed sample is taken."""
