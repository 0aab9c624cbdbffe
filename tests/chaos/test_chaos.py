"""The short form of `make chaos`, seeded: ETL and altered versions. Trainings are disturbed by the long form alone."""

from pathlib import Path

import pytest

from chaos import etl, fuzz

SEED = 7


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, etl.Reference]:
    folder = tmp_path_factory.mktemp("etl")
    uri = f"sqlite:///{folder}/mlflow.db"
    return uri, etl.run_reference(folder, uri)


@pytest.mark.full
@pytest.mark.parametrize("fault", ["ETL Python worker killed", "ETL disk full"])
def test_p6_p8_after_a_fault_etl_makes_the_same_version(tmp_path: Path, reference: tuple[str, etl.Reference], fault: str) -> None:
    uri, reference_etl = reference
    outcome = etl.disturb(fault, 0, SEED, tmp_path / "jobs", uri, reference_etl)
    assert outcome.recovered, outcome.note


def test_p8_an_altered_version_ends_in_an_error_or_in_the_right_rows(tmp_path: Path) -> None:
    fuzzing = fuzz.fuzz(tmp_path, SEED, 200)
    assert fuzzing.bad == []
    assert sum(count for (_, end), count in fuzzing.counts.items() if end == "error") > 100
