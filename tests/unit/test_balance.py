"""Rows in are rows out, or there is no version."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from versions import write_version

from pipelines.data.versions.commit import commit, read_manifest
from pipelines.data.versions.manifest import Balance, check_balance
from pipelines.errors import DatasetError

EVEN: dict[str, Any] = {
    "tables": {"people": {"parsed": 10, "handed_on": 8, "refused": 2}},
    "query": 16,
    "taken": 13,
    "refused": 3,
    "made": 13,
}


def test_what_agrees_passes() -> None:
    check_balance(Balance(**EVEN), in_parts=13, in_quarantine=5)
    check_balance(Balance(**EVEN | {"made": 4}), in_parts=4, in_quarantine=5)  # documents, cut into windows
    assert Balance(**EVEN).parsed == 10 and Balance(**EVEN | {"tables": {}}).parsed == 16


@pytest.mark.parametrize(
    ("changed", "in_parts", "in_quarantine", "words"),
    [
        (
            {"tables": {"people": {"parsed": 11, "handed_on": 8, "refused": 2}}},
            13,
            5,
            "11 records of people were parsed, 8 handed on and 2 refused",
        ),
        ({"query": 1_017}, 13, 5, "the query gave 1,017 rows, of which 13 were taken and 3 refused"),
        ({"query": 15}, 13, 5, "the query gave 15 rows, of which 13 were taken and 3 refused"),
        ({}, 12, 5, "13 rows taken make 13 rows, and the parts hold 12"),
        ({"made": 4}, 3, 5, "13 rows taken make 4 rows, and the parts hold 3"),
        ({}, 13, 4, "5 rows were refused, and the quarantine holds 4"),
    ],
)
def test_p2_a_row_that_is_lost_or_comes_twice_is_told_with_the_numbers(
    changed: dict[str, Any], in_parts: int, in_quarantine: int, words: str
) -> None:
    with pytest.raises(DatasetError) as raised:
        check_balance(Balance(**EVEN | changed), in_parts, in_quarantine)
    assert str(raised.value).startswith(f"rows do not balance, so that nothing is committed: {words}; ")


def test_p2_what_does_not_balance_is_not_committed(tmp_path: Path) -> None:
    version = write_version(tmp_path, {"train": [{"x": np.arange(4), "label": np.arange(4)}]})
    other = version.manifest.model_copy(update={"balance": Balance(query=5, taken=5, refused=0, made=5)})
    with pytest.raises(DatasetError, match="5 rows taken make 5 rows, and the parts hold 4"):
        commit(version.filesystem, f"{tmp_path}/other", other, version.row_groups)
    assert read_manifest(version.filesystem, f"{tmp_path}/other") is None and not (tmp_path / "other").exists()
