"""Keys that have other places or names now. A file with one gets an error with today's; what a run has recorded is read.

Until November 2026 `train` had a section for each strategy beside `strategy: NAME`. Identities of datasets and runs keep that form and the
old names, so that a dataset is not made again, and a run which began before is continued.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import yaml

from pipelines.config.train.strategies import DEFAULT_KIND, strategy_section
from pipelines.errors import ConfigError

_DEFAULTS: dict[str, Any] = {
    "compression": {"kind": "none", "rank": 16, "start_step": 0, "share": 0.01},
    "local_sgd": {
        "outer": "average", "outer_lr": 0.7, "outer_momentum": 0.9, "replicas": 4, "inner_steps": 16, "deltas": "fp32",
    },
    "clients": {
        "outer": "average", "outer_lr": 0.7, "outer_momentum": 0.9, "by": "", "per_round": 10, "local_epochs": 5, "rounds_per_epoch": 1,
        "weighting": "rows", "proximal": 0.0, "clip": None, "noise": 0.0, "delta": 1e-05,
    },
    "parameter_server": {"servers": 1, "mode": "sync", "staleness": None, "backups": 0},
    "threads_per_shard": 1,
}  # fmt: skip
"""What every run has recorded, whatever its strategy. `parallel`, which decides no weights, is no part of an identity."""
_KINDS: dict[str, tuple[str, ...]] = {
    "compression": ("ddp",),
    "local_sgd": ("local_sgd",),
    "clients": ("federated",),
    "parallel": ("sharded",),
    "parameter_server": ("parameter_server",),
    "threads_per_shard": ("exact", "local_sgd", "federated", "parameter_server"),
}
"""The strategies whose settings a key of `train` was, or held."""
_SETTINGS = ("compression", "threads_per_shard")
"""Keys that were settings; the others were sections of settings."""
_RENAMED = {
    "train": {"accumulate": "grad_accum_steps", "window": "shuffle_window", "step_factor": "lr_gamma"},
    "dataset": {"carried": "passthrough"},
    "export": {"rows_at_once": "max_batch_rows"},
    "endpoint": {"rows_at_once": "max_batch_rows"},
}
"""Keys of a section with another name now."""
_NAMES = {"clients": {"by": "client_column"}}
"""Settings of a strategy with another name now."""


def from_recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded config, as plain values, with today's keys; one with today's keys does not change."""
    for section, names in _RENAMED.items():
        if isinstance(values := config.get(section), Mapping):
            config = {**config, section: {names.get(name, name): value for name, value in values.items()}}
    task, train = config.get("task"), config.get("train")
    if isinstance(task, Mapping) and isinstance(train, Mapping) and task.get("kind") == "trees" and "lr" in train:
        config = {**config, "task": {"learning_rate": train["lr"], **task}}
    if not isinstance(train, Mapping) or not _KINDS.keys() & train.keys():
        return dict(config)
    shared_settings = {name: value for name, value in train.items() if name not in _KINDS}
    return {**config, "train": {**shared_settings, "strategy": _section(train)}}


def restore_old_names(section: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a section with the names of keys that identities have had since the first."""
    old = {new: name for name, new in _RENAMED[section].items()}
    return {old.get(name, name): value for name, value in settings.items()}


def to_recorded(train: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `train` that decide a model, with the keys that the identity of a run has had since the first."""
    shared_settings = restore_old_names("train", {name: value for name, value in train.items() if name != "strategy"})
    settings = dict(train["strategy"])
    kind = settings.pop("kind")
    recorded_settings = deepcopy(_DEFAULTS)
    for key in [key for key in recorded_settings if kind in _KINDS[key]]:
        if key in _SETTINGS:
            recorded_settings[key] = settings.pop(key)
        else:
            names = {old: _NAMES.get(key, {}).get(old, old) for old in recorded_settings[key]}
            recorded_settings[key] = {old: settings.pop(new) for old, new in names.items()}
    return {**shared_settings, **recorded_settings, "strategy": kind, **({"strategy_settings": settings} if settings else {})}


def check_keys(config: Mapping[str, Any], origin: str, flags: frozenset[str]) -> None:
    """Raise ConfigError for yesterday's keys in a file or flags, with today's, one line for each or, for a strategy, its lines."""
    faults = []
    for section, names in _RENAMED.items():
        values = config.get(section)
        for old in [old for old in names if isinstance(values, Mapping) and old in values]:
            key = f"{section}.{old}"
            flag = next((f"--{flag}" for flag in sorted(flags) if f"{flag}.".startswith(f"{key}.")), "")
            faults.append(f"{flag or f'{origin}: {key}'}: is called {section}.{names[old]} now; rename it")
    train = config.get("train")
    if isinstance(train, Mapping):
        faults += _strategy_faults(train, origin, flags)
    if faults:
        raise ConfigError("\n".join(faults))


def _strategy_faults(train: Mapping[str, Any], origin: str, flags: frozenset[str]) -> list[str]:
    by_flags = {flag: new for flag in sorted(flags) if (new := _flag_of_today(flag))}
    faults = [f"--{flag}: strategies have their settings in train.strategy; write --{new} instead" for flag, new in by_flags.items()]
    in_file = [key for key in _KINDS if key in train and not any(f"{flag}.".startswith(f"train.{key}.") for flag in by_flags)]
    if in_file:
        faults.append(
            f"{origin}: {', '.join(f'train.{key}' for key in in_file)}: strategies have their settings in train.strategy; under train, "
            f"write these lines for strategy and {' and '.join(in_file)}:\n{_lines(train)}"
        )
    return faults


def _flag_of_today(flag: str) -> str:
    """Today's name of a flag; empty if it has not changed."""
    top, _, inner_flag = flag.partition(".")
    key, _, name = inner_flag.partition(".")
    if top != "train" or key not in _KINDS:
        return ""
    inner = [key, name] if key in _SETTINGS else [_NAMES.get(key, {}).get(name, name)]
    return ".".join(["train.strategy", *filter(None, inner)])


def _section(train: Mapping[str, Any]) -> dict[str, Any]:
    """Today's section `strategy`: the settings of the strategy that `train` names, without those of others, which had no effect."""
    kind = train.get("strategy") or next((_KINDS[key][0] for key in train if len(_KINDS.get(key, ())) == 1), DEFAULT_KIND)
    section: dict[str, Any] = dict(strategy_section(kind))
    for key in [key for key, kinds in _KINDS.items() if key in train and section["kind"] in kinds]:
        inner = {key: train[key]} if key in _SETTINGS else train[key] or {}
        section |= {_NAMES.get(key, {}).get(name, name): value for name, value in inner.items()}
    return section


def _lines(train: Mapping[str, Any]) -> str:
    section = _section(train)
    written = yaml.safe_dump({"strategy": section if len(section) > 1 else section["kind"]}, sort_keys=False, allow_unicode=True)
    return "\n".join(f"  {line}" for line in written.splitlines())
