"""The short form of `make chaos`, seeded: ETL, nights and altered versions. Other trainings are disturbed by the long form alone."""

from pathlib import Path

import pytest

from chaos import etl, fuzz, nights
from pipelines.data.versions.versions import open_version, versions

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


@pytest.mark.full
@pytest.mark.timeout(900)
def test_p8_nights_with_kills_have_the_rows_of_one_etl(tmp_path: Path) -> None:
    outcomes, ending = nights.run_all(tmp_path / "nights", SEED, 2)
    assert all(outcome.recovered for outcome in outcomes), outcomes[-1].note
    assert ending["versions"] >= 1 and ending["runs FINISHED"] >= 2


@pytest.mark.full
@pytest.mark.timeout(900)
def test_p8_two_increments_and_an_etl_in_full_at_once_make_the_same_rows(tmp_path: Path) -> None:
    trial = nights.begin(tmp_path / "nights", SEED)
    trial.data.add_rows(0)
    first = nights.start_etl(trial, tmp_path / "first.log", "--from", "previous")
    assert first.wait(nights.JOB_SECONDS) == 0, first.tail()
    trial.data.add_rows(1)
    flags = [("--from", "previous"), ("--from", "previous"), ()]
    jobs = [nights.start_etl(trial, tmp_path / f"{number}.log", *job_flags) for number, job_flags in enumerate(flags)]
    assert [job.wait(nights.JOB_SECONDS) for job in jobs] == [0, 0, 0], "\n".join(job.tail() for job in jobs)
    results = [nights.read_result(job.log) for job in jobs]
    assert results[0]["version"] == results[1]["version"] != results[2]["version"]
    assert [result["parent"] for result in results] == [nights.read_result(first.log)["version"]] * 2 + [""]
    path = trial.config.dataset.path
    grown, full = (open_version(f"{path}/{result['version']}") for result in results[1:])
    assert [part.rows_digest for part in grown.manifest.splits.values()] == [part.rows_digest for part in full.manifest.splits.values()]
    for root, manifest in versions(path):
        attempts = {file.name.removesuffix(".parquet").partition("-")[2] for file in Path(root).iterdir() if "-" in file.name}
        assert {name for name in attempts if not name.isdecimal()} == {manifest.attempt}, "the attempt that came second left files"
    nights.check_versions(trial)
    assert nights.check_runs(trial)["runs FINISHED"] >= 3
