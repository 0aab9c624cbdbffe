"""Weights as safetensors files: one, or several and an index."""

import json
from pathlib import Path

import pytest
import torch

from pipelines.runtime.weights import model_digest, read_files, write_files

WEIGHTS = {"b": torch.arange(6.0).view(2, 3), "a": torch.ones(4, dtype=torch.bfloat16), "c": torch.zeros(100), "d": torch.tensor(3)}
"""Of 24, 8, 400 and 8 bytes."""


@pytest.mark.parametrize(
    ("most_bytes", "names"),
    [(440, [["a", "b", "c", "d"]]), (439, [["a", "b", "c"], ["d"]]), (100, [["a", "b"], ["c"], ["d"]]), (1, [["a"], ["b"], ["c"], ["d"]])],
)
def test_what_is_written_is_read(tmp_path: Path, most_bytes: int, names: list[list[str]]) -> None:
    first, *parts = write_files(WEIGHTS, tmp_path, most_bytes)
    weights = read_files(first)
    assert weights.keys() == WEIGHTS.keys() and model_digest(weights) == model_digest(WEIGHTS)
    assert sorted(tmp_path.iterdir()) == sorted([first, *parts])
    assert [sorted(read_files(part)) for part in parts or [first]] == names
    if parts:
        index = json.loads(first.read_text())
        assert index["metadata"] == {"total_size": 440} and set(index["weight_map"].values()) == {part.name for part in parts}


def test_a_model_without_tensors_has_a_file(tmp_path: Path) -> None:
    (file,) = write_files({}, tmp_path, 10)
    assert read_files(file) == {}
