"""Reads the YAML file of a pipeline. No other package does.

1. `load`          merges a YAML file (`reading`) with command-line flags (`flags`) and validates the result.
2. `pipeline`      is the whole config: `source`, `dataset` (with its `features`), `task`, `train`, `tracking` and those of
                   `serving`; `profile` and `init_from` are sections of `train`, and `train_base` is what `train` has for every
                   strategy. `task_base` is what every task has, `tabular`, `trees`, `segmentation`, `detection` and `neural_operator`
                   the settings of five, and `train_defaults` what follows from it for `train`.
   `windows` is the section of columns that are made of several rows, and `window_rules` compares it with `dataset`; `folds` is a
                   kind of `dataset.split`.
3. `section`       is the base class of these parts. `options` checks options of Spark's readers, `ddl` the types of a schema,
                   and `secrets` finds passwords and tokens.
4. `table_formats` lists the formats of raw tables by name. `table_base` is what every table has, `simulation` the settings of one kind.
                   `strategy` is the base class of a strategy's settings, which stand in its own folder; `strategies` finds them there.
5. `effects`       is the table of settings that have an effect only beside others, by `effect_rules`; a setting that is given has one.
6. `plugins`       imports classes that a file names by import path, `module:Class`; `plugin_fields` adds their settings to the config.
                   `functions` reads the settings of a function that makes a network.
7. `wording`       turns validation errors into one line each; `did_you_mean` suggests the known name closest to an unknown one.
                   `sections` has all sections by name, for a config that is built in Python.
8. `reference`     writes the page of all settings, docs/reference/config.md, and `help` those of a file, in `setting_words`.
                   `renamed_keys` knows yesterday's keys.

Nothing here imports torch, Spark, Ray, MLflow or Arrow, so `--help` and errors appear at once.
"""

from pipelines.config.features import EncoderSettings
from pipelines.config.load import from_command_line, home, load, parse
from pipelines.config.pipeline import Config
from pipelines.config.source import FileTableSettings, TableSettings
from pipelines.config.strategy import StrategySettings
from pipelines.config.task_base import TaskSettings

__all__ = [
    "Config", "EncoderSettings", "FileTableSettings", "StrategySettings", "TableSettings", "TaskSettings", "from_command_line", "home",
    "load", "parse",
]  # fmt: skip
