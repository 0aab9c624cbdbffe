"""The config that `api.fit` trains: drafted from the data, without a file of its own."""

import logging
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from pipelines.config import Config, home
from pipelines.config.load import parse_with_overrides, with_absolute_paths
from pipelines.config.paths import absolute_path
from pipelines.config.train.defaults import convert_to_task
from pipelines.init.draft import Request, config_path, pipeline_name, plain_values
from pipelines.init.drafting import draft_config
from pipelines.notebook.frames import is_frame, store_frame
from pipelines.notebook.python_config import task_values

log = logging.getLogger(__name__)

_NOTE_CHARACTERS = 400


def first_config(data: Any, target: str, overrides: Mapping[str, Any], name: str, task: Any) -> Config:
    """Draft the config of a path or a frame, with the arguments of `api.fit`, and log what was assumed.

    Raises ConfigError or SourceError if no config can be made."""
    network = {} if task is None else task_values(task)
    from_frame = is_frame(data)
    path = store_frame(data, home() / "data" / "frames") if from_frame else Path(absolute_path(str(data), home()))
    name = name or ("frame" if from_frame else pipeline_name(config_path(path, "")))
    draft = draft_config(Request(str(path), target, name))
    for note in draft.notes:
        log.warning("%s", shorten(note, _NOTE_CHARACTERS, placeholder=" …"))
    values = plain_values(draft)
    if network:
        drafted = {name: value for name, value in values["task"].items() if name in ("kind", "class_weights")}
        values, _ = convert_to_task({**values, "task": drafted}, {"kind": "tabular", **network})
    return with_absolute_paths(parse_with_overrides(values, overrides, f"the settings for {name}"), home())
