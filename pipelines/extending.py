"""All that a part of one's own imports: an encoder, a table format, a task, a strategy, a job. docs/how-to/extending.md has examples.

Names of this module keep their meaning within a minor version, 0.1.x; what changes in 0.2 stands in CHANGELOG.md. Other modules may
change at any time. A name is imported once it is asked for, so that settings load neither torch nor Spark nor Arrow.
"""

import ast
import inspect
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # read by type checkers, and by `_read_places`
    from pipelines.command_line import exit_on_error as exit_on_error
    from pipelines.config import EncoderSettings as EncoderSettings
    from pipelines.config import FileTableSettings as FileTableSettings
    from pipelines.config import StrategySettings as StrategySettings
    from pipelines.config import TableSettings as TableSettings
    from pipelines.config import TaskSettings as TaskSettings
    from pipelines.config import from_command_line as from_command_line
    from pipelines.config.effects import OnlyWith as OnlyWith
    from pipelines.data.features.base import Encoder as Encoder
    from pipelines.data.features.base import FileEncoder as FileEncoder
    from pipelines.data.features.base import Input as Input
    from pipelines.data.features.base import Packer as Packer
    from pipelines.data.features.base import array_with_nulls as array_with_nulls
    from pipelines.data.features.base import tensors_with_nulls as tensors_with_nulls
    from pipelines.data.features.media_files import UnreadableError as UnreadableError
    from pipelines.data.features.raw import is_number as is_number
    from pipelines.data.features.raw import is_text as is_text
    from pipelines.data.features.raw import numbers as numbers
    from pipelines.data.sources.base import RawTable as RawTable
    from pipelines.data.sources.base import Rows as Rows
    from pipelines.data.sources.files.file_table import FileTable as FileTable
    from pipelines.data.versions.manifest import SPLITS as SPLITS
    from pipelines.data.versions.raw_inputs import SourceFile as SourceFile
    from pipelines.data.versions.schema import Role as Role
    from pipelines.data.versions.schema import TensorColumn as TensorColumn
    from pipelines.data.versions.versions import open_version as open_version
    from pipelines.errors import ConfigError as ConfigError
    from pipelines.errors import SourceError as SourceError
    from pipelines.tasks.base import Task as Task
    from pipelines.tasks.data import Batch as Batch
    from pipelines.tasks.data import Data as Data
    from pipelines.tasks.details.base import Details as Details
    from pipelines.tasks.supervised import Supervised as Supervised
    from pipelines.train.ddp.ddp import DataParallel as DataParallel
    from pipelines.train.ddp.settings import Settings as DataParallelSettings  # noqa: F401
    from pipelines.train.step_statistics import Flags as Flags
    from pipelines.train.step_statistics import StepResult as StepResult
    from pipelines.train.strategy import Strategy as Strategy


def _read_places() -> dict[str, tuple[str, str]]:
    """The module of each name above, and the name there."""
    (block,) = (node for node in ast.parse(inspect.getsource(sys.modules[__name__])).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: (str(node.module), alias.name) for node in imports for alias in node.names}


_PLACES = _read_places()


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"pipelines.extending has no {name}; its names are {', '.join(sorted(_PLACES))}")
    module, name_there = _PLACES[name]
    return getattr(import_module(module), name_there)


def __dir__() -> list[str]:
    return sorted(_PLACES)
