"""The text of a draft: what a person would have written, and YAML that reads as the very values."""

import pytest

from pipelines.config.reading import from_yaml
from pipelines.init.draft import Draft, yaml_text


def test_a_reason_stands_beside_its_setting() -> None:
    sections = {
        "name": "toy",
        "source": {"query": "SELECT *\nFROM t"},
        "dataset": {"split": {"train": 0.8, "test": 0.2}, "features": {"a": "vocabulary", "b": {"encoder": "quantile", "bins": 8}}},
    }
    comments = {("dataset", "features", "a"): "12 distinct values: vocabulary", ("dataset", "features"): "Left out:\nid, an identifier"}
    text = yaml_text(Draft(sections, ("Toy: two columns.",), comments))
    assert (
        text
        == """\
# Toy: two columns.
name: toy
source:
  query: |-
    SELECT *
    FROM t
dataset:
  split: {train: 0.8, test: 0.2}
  # Left out:
  # id, an identifier
  features:
    a: vocabulary  # 12 distinct values: vocabulary
    b: {encoder: quantile, bins: 8}
"""
    )
    assert from_yaml(text) == sections


@pytest.mark.parametrize(
    "value",
    ["no", "1e3", "a: b", "x # y", "", " blank ", "0x1", "a\tb", "ü", "'", '"', "{a}", "- a", "null", "2017-01-01", "a, b, " * 40,
     " a " * 99, "a\n b\n\n c", "a\n", "\n", True, None, 0.003, 1e-05, 3, [1, [2, "x, y"]], {"on": {"off": "yes"}}, {}, []],
    ids=repr,
)  # fmt: skip
def test_a_value_reads_as_itself(value: object) -> None:
    sections = {"name": value, "source": {"tables": {"t": value}}, "dataset": {"features": {"on": value, "a: #": [value, value]}}}
    assert from_yaml(yaml_text(Draft(sections))) == sections
