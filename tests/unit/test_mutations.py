"""The faults of tests/mutations can be put into the code as it is: each line that they replace is there, once."""

from pathlib import Path

import pytest
from mutations.faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.file}: {fault.instead.strip()[:30]}" for fault in FAULTS])
def test_a_fault_is_of_a_line_that_is_there_once_and_of_tests_that_are_there(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.text) == 1, "mend tests/mutations/faults.py"
    files, _, _ = fault.tests.partition(" -k ")
    assert all((ROOT / file).is_file() for file in files.split())
