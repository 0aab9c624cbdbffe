"""First configs of folders that a test writes: what `lockstep init` drafts or refuses."""

from pathlib import Path

import pytest

from pipelines.config import Config
from pipelines.config.load import parse
from pipelines.config.reading import from_yaml
from pipelines.errors import ConfigError
from pipelines.init import drafting
from pipelines.init.draft import Draft, Request, yaml_text
from pipelines.tasks.bind import check_task
from pipelines.tuning.space import check_search, config_params


def write(folder: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def draft_config(request: Request) -> Draft:
    """The draft of some data, whose search `lockstep tune` takes as it stands, with the draft itself as its first trial."""
    drafted = drafting.draft_config(request)
    config = parse(from_yaml(yaml_text(drafted)), "scans.yaml")
    check_search(config, "scans.yaml")
    assert config_params(config) is not None, "the space contains the draft"
    return drafted


def draft(folder: Path) -> Draft:
    return draft_config(Request(str(folder), "", "scans"))


def valid_config(drafted: Draft) -> Config:
    """The config of the draft's text, whose task fits its columns."""
    config = parse(from_yaml(yaml_text(drafted)), "scans.yaml")
    check_task(config)
    return config


def refusal(folder: Path) -> str:
    """The line in which a draft is refused."""
    with pytest.raises(ConfigError) as refused:
        draft(folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)
