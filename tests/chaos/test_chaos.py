"""The short form of `make chaos`: a few faults of many kinds, seeded, in minutes."""

from pathlib import Path

import pytest

from chaos import etl, fuzz
from chaos.faults import FAULTS
from chaos.training import Case, disturbed, is_sound

SEED = 7


@pytest.mark.timeout(600)
def test_p2_p3_p5_p8_an_elastic_training_loses_and_repeats_no_row_and_its_weights_are_the_same(tmp_path: Path) -> None:
    faults = [
        "node killed, and back",
        "driver killed, same command again",
        "newest checkpoint torn, worker killed",
    ]
    case = disturbed(Case("short", {"strategy": "exact", "workers": [1, 2]}, faults), FAULTS, SEED, tmp_path)
    assert [outcome for outcome in case.outcomes if not outcome.recovered] == []
    assert is_sound(case), case.result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, etl.Undisturbed]:
    folder = tmp_path_factory.mktemp("etl")
    uri = f"sqlite:///{folder}/mlflow.db"
    return uri, etl.undisturbed(folder, uri)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", ["ETL Python worker killed", "ETL disk full"])
def test_p6_p8_after_a_fault_etl_makes_the_same_version(tmp_path: Path, whole: tuple[str, etl.Undisturbed], fault: str) -> None:
    uri, undisturbed = whole
    outcome = etl.disturb(fault, 0, SEED, tmp_path / "jobs", uri, undisturbed)
    assert outcome.recovered, outcome.note


def test_p8_an_altered_version_ends_in_an_error_or_in_the_right_rows(tmp_path: Path) -> None:
    fuzzed = fuzz.fuzz(tmp_path, SEED, 200)
    assert fuzzed.bad == []
    assert sum(count for (_, end), count in fuzzed.counts.items() if end == "error") > 100
