"""docs/reference/config.md says what the settings are now."""

from pathlib import Path

from pipelines.config import reference
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.train import Train

ROOT = Path(__file__).parents[2]


def test_the_page_of_settings_is_current() -> None:
    assert (ROOT / "docs/reference/config.md").read_text() == reference.reference_page(), "run `make docs`"


def test_it_names_every_setting_of_training_and_every_task() -> None:
    page = reference.reference_page()
    assert [name for name in Train.model_fields if f"| `{name}` |" not in page] == []
    assert [kind for kind in TASKS.by_name if f"### `{kind}`" not in page] == []


def test_a_bound_and_a_choice_are_said_in_words() -> None:
    page = reference.reference_page()
    assert "| `global_batch` | whole number > 0, ≤ 1,048,576 | `512` |" in page
    assert '| `remainder` | `drop` \\| `keep` | `"drop"` |' in page
