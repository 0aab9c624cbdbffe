"""The module for parts of one's own: every name is there, for programs and for type checkers, and settings load nothing heavy."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import extending
from pipelines.train.ddp.settings import Settings

ROOT = Path(__file__).parents[2]
NAMES = dir(extending)
TEXT = (ROOT / "docs/how-to/extending.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(extending, name) is not None


def test_a_name_may_be_another_one_in_its_module() -> None:
    assert extending.DataParallelSettings is Settings
    assert {"DataParallelSettings", "EncoderSettings", "open_version"} < set(NAMES) and "Settings" not in NAMES


def test_a_name_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"pipelines.extending has no Encode; its names are Batch, ConfigError, .*Encoder"):
        extending.Encode  # noqa: B018


def test_settings_load_no_heavy_library() -> None:
    code = """
import sys
from pipelines.extending import EncoderSettings, DataParallelSettings, OnlyWith, TableSettings, TaskSettings
print(*sorted({"torch", "pyspark", "pyarrow", "ray", "mlflow"} & set(sys.modules)))
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_the_examples_of_the_docs_import_nothing_else_of_the_project() -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith(("from pipelines", "import pipelines"))]
    assert lines and all(line.startswith("from pipelines.extending import ") for line in lines)
