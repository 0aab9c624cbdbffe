"""Creates the file of a draft, if it is a valid config."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.config import Config
from pipelines.config.load import parse
from pipelines.config.reading import from_yaml
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft
from pipelines.init.yaml_text import yaml_text
from pipelines.runtime.atomic import create_file

Check = Callable[[Mapping[str, Any], Config, str], tuple[str, ...]]
"""Takes the plain values of a config, the config, and the file it is to stand in. Raises a LockstepError if ETL or training would refuse
it, and returns lines for the reader of the command's output."""


def check_output(output: str | Path) -> None:
    """Raise ConfigError if the file exists."""
    if os.path.lexists(output):
        raise ConfigError(f"{output} exists, and may have been edited; name another file with --output, or remove it")


def write_config(draft: Draft, output: str | Path, check: Check) -> tuple[str, ...]:
    """Write the draft to a new file, unless `check` raises, and return what that has to say."""
    text = yaml_text(draft)
    values = from_yaml(text)
    remarks = check(values, parse(from_yaml(text), str(output)), str(output))
    if not create_file(output, text.encode()):
        check_output(output)
    return remarks
