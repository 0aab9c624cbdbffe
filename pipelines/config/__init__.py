"""Reads the YAML file of a pipeline. No other package does.

1. `load`          merges a YAML file (`reading`) with command-line flags (`flags`) and validates the result.
2. `pipeline`      is the whole config. Its sections are `source`, `dataset` with its `features`, the settings of `tasks`, `train`,
                   `tracking`, those of `serving`, and of a search, `tuning`.
3. `section`       is the base class of these parts, and `secrets` finds passwords and tokens. `sections` has all of them by name, for a
                   config that is built in Python.
4. `paths`         says where relative paths start, and reads files that belong to settings.
   `durations`     reads times such as 90m.
5. `effects`       is the rule that a setting which is given has an effect; settings say in their annotations beside what they have one.
6. `kinds`         finds the classes of settings that names stand for, also those of `slices`, which the core works without; `plugins`
                   imports those that a file names by `module:Class`.
7. `messages`      turn validation errors into one line each.
8. `reference`     writes the page of all settings, docs/reference/config.md, and `help` those of a file.

Nothing here imports torch, Spark, Ray, MLflow or Arrow, so `--help` and errors appear at once.
"""

from pipelines.config.features.base import EncoderSettings
from pipelines.config.load import from_command_line, load, parse
from pipelines.config.paths import home
from pipelines.config.pipeline import Config
from pipelines.config.source.source import FileTableSettings
from pipelines.config.source.table_settings import TableSettings
from pipelines.config.tasks.base import TaskSettings
from pipelines.config.train.strategy import StrategySettings

__all__ = [
    "Config", "EncoderSettings", "FileTableSettings", "StrategySettings", "TableSettings", "TaskSettings", "from_command_line", "home",
    "load", "parse",
]  # fmt: skip
