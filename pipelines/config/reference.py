"""Generates docs/reference/config.md from the settings classes: `python -m pipelines.config.reference > docs/reference/config.md`."""

import json
from typing import Any

from pydantic import BaseModel

from pipelines.config.dataset.dataset import ByColumn, ByFold, ByFraction, ByTime, ByTimeFold, Dataset
from pipelines.config.dataset.windows import WindowSettings
from pipelines.config.features import ENCODERS
from pipelines.config.features.base import EncoderSettings
from pipelines.config.help import one_line, setting_schemas, table_cell, value_words
from pipelines.config.pipeline import Config
from pipelines.config.serving import Endpoint, Export, Registry
from pipelines.config.source.source import TABLES, DriftLimits, Source, Table
from pipelines.config.source.table_settings import TableSettings
from pipelines.config.tasks.base import TaskSettings
from pipelines.config.tasks.functions import FunctionSettings
from pipelines.config.tasks.task import TASKS
from pipelines.config.tracking import Tracking
from pipelines.config.train.base import BalanceSettings, Checkpoint, Lora, ParallelSettings
from pipelines.config.train.changes import TrainChange
from pipelines.config.train.init_from import InitFrom
from pipelines.config.train.strategy import STRATEGIES, StrategySettings
from pipelines.config.train.train import Train
from pipelines.config.tuning import Alternative, Dimension, Scheduler, Tune

INTRODUCTION = """# Every setting

One YAML file describes one pipeline. `python jobs/train.py conf/adult.yaml --help all` shows the values of a file, and each setting
is also a flag: `--train.lr 1e-3`. A setting that is given and has no effect beside the others, such as `train.momentum` with `adamw`, is an
error that says what would use it. This page is generated from the settings classes by `make docs`.
"""


def reference_page() -> str:
    """The whole page as Markdown."""
    in_every_task = tuple(TaskSettings.model_fields)
    parts = [
        INTRODUCTION,
        *_sections(),
        "## `dataset.features`, `dataset.target` and `dataset.passthrough`: encoders\n",
        section_table("### Every encoder, including your own", EncoderSettings),
        *(section_table(f"### `{name}`", settings, without=("encoder",)) for name, settings in ENCODERS.by_name.items()),
        "## `task`\n",
        section_table("### Every task, including your own", TaskSettings),
        *(section_table(f"### `{name}`", settings, without=in_every_task) for name, settings in TASKS.by_name.items()),
        section_table("### A function of your own, `module:function`", FunctionSettings, without=in_every_task),
        "## `train.strategy`\n",
        section_table("### Every strategy, including your own", StrategySettings),
    ]
    for kind, settings in STRATEGIES.by_name.items():
        parts.append(section_table(f"### `{kind}`", settings, without=("kind",)))
        parts += [section_table(f"#### `{name}`", section) for name, section in _inner_sections(settings).items()]
    return "\n".join(parts)


def _sections() -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        "The file": Config,
        "`source`": Source,
        "`source.tables.NAME`": Table,
        **{f"`source.tables.NAME` of format `{name}`": table for name, table in TABLES.by_name.items() if table is not Table},
        "`source.tables.NAME`, read by a class of your own": TableSettings,
        "`source.windows`": WindowSettings,
        "`source.drift`": DriftLimits,
        "`dataset`": Dataset,
        "`dataset.split`, by shares": ByFraction,
        "`dataset.split`, by a column": ByColumn,
        "`dataset.split`, by time": ByTime,
        "`dataset.split`, by folds": ByFold,
        "`dataset.split`, by folds over time": ByTimeFold,
        "`train`": Train,
        "`train.checkpoint`": Checkpoint,
        "`train.parallel`": ParallelSettings,
        "`train.balance`": BalanceSettings,
        "`train.init_from`": InitFrom,
        "`train.lora`": Lora,
        "`train.changes`, each": TrainChange,
        "`tracking`": Tracking,
        "`registry`": Registry,
        "`export`": Export,
        **{f"`export.{name}`": section for name, section in _inner_sections(Export).items()},
        "`endpoint`": Endpoint,
        "`tune`": Tune,
        "`tune.space.SETTING`": Dimension,
        "`tune.scheduler`": Scheduler,
        "`tune.alternatives[]`": Alternative,
    }
    settings_of_table = tuple(setting_schemas(Table))
    return [
        section_table(f"## {title}", section, without=settings_of_table if issubclass(section, Table) and section is not Table else ())
        for title, section in sections.items()
    ]


def _inner_sections(section: type[BaseModel]) -> dict[str, type[BaseModel]]:
    kinds = {name: field.annotation for name, field in section.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


def section_table(heading: str, section: type[BaseModel], without: tuple[str, ...] = ()) -> str:
    """A heading, the purpose of the section, and a table with one row for each of its settings."""
    rows = [
        f"| `{name}` | {value_words(values)} | {_default(values)} | {table_cell(values.get('description', ''))} |"
        for name, values in setting_schemas(section).items()
        if name not in without
    ]
    table = ["| setting | values | default | |", "|---|---|---|---|", *rows, ""] if rows else []
    purpose = [one_line(section.__doc__), ""] if section.__doc__ and "__doc__" in vars(section) else []
    return "\n".join([heading, "", *purpose, *table])


def _default(values: dict[str, Any]) -> str:
    if "default" not in values:
        return "required" if "$ref" not in values else ""
    default = values["default"]
    default = default.get("kind") if isinstance(default, dict) else default
    return "" if default is None or isinstance(default, dict) else f"`{table_cell(json.dumps(default, ensure_ascii=False))}`"


if __name__ == "__main__":
    print(reference_page(), end="")
