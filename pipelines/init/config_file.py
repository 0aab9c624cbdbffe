"""Creates the file of a draft, if it is a valid config."""

import os
from collections.abc import Callable
from pathlib import Path

from pipelines.config import Config
from pipelines.config.load import parse
from pipelines.config.reading import from_yaml
from pipelines.errors import ConfigError
from pipelines.init.draft import Draft
from pipelines.init.yaml_text import yaml_text
from pipelines.runtime.atomic import create_file


def check_output(output: str | Path) -> None:
    """Raise ConfigError if the file exists."""
    if os.path.lexists(output):
        raise ConfigError(f"{output} exists, and may have been edited; name another file with --output, or remove it")


def write_config(draft: Draft, output: str | Path, check: Callable[[Config], None]) -> Config:
    """Write the draft to a new file, and return its config. `check` raises ConfigError if ETL would refuse it."""
    text = yaml_text(draft)
    config = parse(from_yaml(text), str(output))
    check(config)
    if not create_file(output, text.encode()):
        check_output(output)
    return config
