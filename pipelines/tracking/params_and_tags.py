"""Params and tags of runs: the settings that decide one, and where its data come from."""

import re
from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Param

from pipelines.config import Config
from pipelines.config.effects import has_effect
from pipelines.config.messages.words import name_list
from pipelines.data.versions.versions import Version
from pipelines.tracking.descriptions import GIT_COMMIT, git_commit

_PARAMS_PER_CALL, _PARAM_LENGTH = 100, 6_000
_ERASURES = 300
"""The last ones of a version, as many as a tag has room for; manifest.json, which every run has, names all."""
_USUAL: Any = {"strategy": {"kind"}, **dict.fromkeys(("optimizer", "lr", "global_batch", "epochs", "seed", "shards"), True)}
"""Settings of `train` that every training logs, as pydantic includes them."""


def origin_tags(config: Config, version: Version) -> dict[str, str]:
    """Tags that record the origin of the results of a run. Names of erasures prove that its rows are without those that were erased."""
    names = [erasure.certificate for erasure in version.manifest.erasures]
    erasures = {"dataset.erasures": ", ".join(names[-_ERASURES:])} if names else {}
    return {
        **erasures,
        **config.tracking.tags,
        "dataset.digest": version.digest,
        "dataset.version": version.manifest.version,
        "dataset.run_id": version.manifest.run_id,
        GIT_COMMIT: git_commit(),
    }


def key(name: str) -> str:
    """The name with `_` in place of what MLflow does not allow in keys: other characters, and parts between slashes as in a path."""
    parts = re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII).split("/")
    return "/".join(re.sub(r"^(|\.|\.\..*)$", lambda part: f"_{part[0][2:]}", part) for part in parts)


def log_params(client: MlflowClient, run_id: str, settings: Mapping[str, Any]) -> None:
    """Log settings as parameters. All of them are in config.json, which every run has."""
    params = [Param(name, value) for name, value in param_values(settings).items()]
    for start in range(0, len(params), _PARAMS_PER_CALL):
        client.log_batch(run_id, params=params[start : start + _PARAMS_PER_CALL], synchronous=True)


def param_values(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as MLflow's parameters, by their keys there; two patterns of columns may have one key."""
    return {key(name)[:250]: str(value)[:_PARAM_LENGTH] for name, value in settings.items()}


def training_settings(config: Config) -> dict[str, Any]:
    """Settings that decide a training, by dotted names such as `train.lr`: the usual ones, and all that the config gives of `task` and
    `train`, without those that have no effect or no value."""
    explicit = config.model_dump(mode="json", by_alias=True, include={"task", "train"}, exclude=config.placement, exclude_unset=True)
    usual = config.model_dump(mode="json", include={"task": {"kind"}, "train": _USUAL})
    settings = flatten(usual) | flatten(explicit)
    return {name: value for name, value in settings.items() if value not in (None, "") and has_effect(config, name)}


def etl_settings(config: Config) -> dict[str, Any]:
    """Settings that decide a dataset version: source and dataset as the config gives them, the columns as their number."""
    explicit = config.model_dump(
        mode="json", by_alias=True, include={"source", "dataset"}, exclude={"dataset": {"features"}}, exclude_unset=True
    )
    features = config.dataset.features
    return {**flatten(explicit), "dataset.features": len(features) if config.dataset.is_resolved else name_list(features)}


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings into one mapping with dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) and value else {prefix + name: value})
    return flat
