"""One YAML file is one pipeline. It is read here, and nowhere else.

1. `load`      merges a YAML file (`reading`) with the command line (`flags`), and checks it.
2. `pipeline`  the whole: `source`, `dataset` (with its `features`), `task`, `train`, `tracking`, a file each.
3. `section`   what they have in common; `options` those of Spark's readers, `ddl` a schema's types, `secrets` what no setting may hold.
4. `formats`   are the raw tables' formats, `strategies` those of `train`, by name.
5. `plugins`   finds what a file names by import path, `module:Class`; `plugin_fields` are a config's fields with it.
6. `wording`   makes a line of every fault; `did_you_mean` finds the known name that is near a wrong one.
7. `reference` writes the page of all settings, docs/config.md.

Nothing here imports torch, Spark, Ray, MLflow or Arrow, so that `--help` and errors answer at once.
"""

from pipelines.config.features import EncoderSettings
from pipelines.config.load import from_command_line, home, load, parse
from pipelines.config.pipeline import Config
from pipelines.config.source import FileTableSettings, TableSettings
from pipelines.config.task import TaskSettings

__all__ = [
    "Config", "EncoderSettings", "FileTableSettings", "TableSettings", "TaskSettings", "from_command_line", "home", "load", "parse",
]  # fmt: skip
