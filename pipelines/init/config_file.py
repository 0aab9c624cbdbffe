"""Names the file of a draft, and creates it if it is a valid config."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.config.load import parse
from pipelines.config.reading import from_yaml
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft
from pipelines.init.yaml_text import yaml_text
from pipelines.runtime.atomic import create_file

ANONYMOUS = ("data", "train", "dataset", "table", "rows")
"""Names of files that say nothing of the data."""
Check = Callable[[Mapping[str, Any]], tuple[str, ...]]
"""Takes the plain values of a config. Raises a LockstepError if ETL or training would refuse it, and returns lines for the reader of the
command's output."""


def check_output(output: str | Path) -> None:
    """Raise ConfigError if the file exists."""
    if os.path.lexists(output):
        raise ConfigError(f"{output} exists, and may have been edited; name another file with --output, or remove it")


def write_config(draft: Draft, output: str | Path, check: Check) -> tuple[str, ...]:
    """Write the draft to a new file, unless `check` raises, and return what that has to say."""
    text = yaml_text(draft)
    values = from_yaml(text)
    parse(values, str(output))
    remarks = check(values)
    if not create_file(output, text.encode()):
        check_output(output)
    return remarks


def plain_values(draft: Draft) -> dict[str, Any]:
    """The config as its file would be read."""
    return from_yaml(yaml_text(draft))


def config_path(data: str | Path, output: str | Path) -> Path:
    """The file to write: `output`, or conf/NAME.yaml with the name of the data."""
    return Path(output) if str(output) else Path("conf") / f"{_data_name(Path(data))}.yaml"


def pipeline_name(output: Path) -> str:
    """The name of a pipeline whose config is this file: that of the file, in the characters that a pipeline's name may have."""
    return _plain_name(output.stem)


def path_in_config(data: str | Path, home: Path) -> str:
    """The path as typed if it starts at `home`, as the paths of a config do; else the absolute path."""
    return str(data) if Path.cwd() == home or "://" in str(data) else str(Path(data).absolute())


def _data_name(data: Path) -> str:
    """A name for the data: their file's without endings, or the folder's if the file is called as any other is."""
    stem = data.name.split(".")[0]
    return _plain_name(data.absolute().parent.name if stem.lower() in ANONYMOUS and data.is_file() else stem or data.absolute().name)


def _plain_name(text: str) -> str:
    return re.sub("[^a-z0-9]+", "_", text.lower()).strip("_")[:60] or "pipeline"
