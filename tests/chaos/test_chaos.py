"""The short form of `make chaos`, seeded: ETL and altered versions. Trainings are disturbed by the long form alone."""

from pathlib import Path

import pytest

from chaos import etl, fuzz

SEED = 7


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, etl.Undisturbed]:
    folder = tmp_path_factory.mktemp("etl")
    uri = f"sqlite:///{folder}/mlflow.db"
    return uri, etl.undisturbed(folder, uri)


@pytest.mark.full
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
