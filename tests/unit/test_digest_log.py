"""Records of a run of strategy `exact`, for its verification: digests in its checkpoints, and the digest log beside them."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pipelines.data.versions.storage import seal, unseal_or_none
from pipelines.errors import TrainingError
from pipelines.runtime.weights import digests, to_bytes
from pipelines.train.checkpoint.checkpoint_record import RECORD, Record, differing_tensors, read_digest_log
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import WEIGHTS, RunDirectory
from pipelines.train.workers import WorkerContext


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[int], tuple[str, Record]]:
    """Saves a state in which everything is `step`."""
    checkpoints = Checkpoints(RunDirectory(str(tmp_path)), WorkerContext(), keep=5)

    def save(step: int) -> tuple[str, Record]:
        state = {"epochs": step, "best_epoch": step}
        record = Record(step=step, position={}, order={}, dataset_digest="", state=state, best=True, losses=[float(step)])
        saving = checkpoints.begin({"model": {"w": torch.full((3,), float(step))}}, record)
        checkpoints.commit(saving)
        return saving.name, record

    return save


def test_a_checkpoint_whose_tensors_are_others_is_passed_over(
    tmp_path: Path, saved: Callable[[int], tuple[str, Record]], caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints, state = Checkpoints(RunDirectory(str(tmp_path)), WorkerContext(), keep=5), {"model": {"w": torch.zeros(3)}}
    saved(1)
    newest, _ = saved(2)
    file = tmp_path / newest / RECORD
    values = unseal_or_none(file.read_bytes())
    assert values is not None and values["digests"] == digests({"model": {"w": torch.full((3,), 2.0)}})
    altered = Record(**{**values, "digests": {"model.w": "0" * 64}})
    file.write_bytes(seal(asdict(altered)))
    blamed = rf"{newest}: model.w not as in the record, though every file is as it was written, .*; remove .* to start anew"
    with pytest.raises(TrainingError, match=blamed):
        checkpoints.load_best(2, state)
    actual = checkpoints.restore(state)
    assert actual is not None and actual[1].step == 1
    assert state["model"]["w"].tolist() == [1.0, 1.0, 1.0]
    assert f"{newest} cannot be used, using the previous checkpoint: model.w not as in the record" in caplog.text
    assert not file.exists()


def save_progress(folder: Path, keep: int, step: int, **state: int) -> list[int]:
    """Save a checkpoint of that progress, the best one if its epoch is the best. Returns the steps of all, newest first."""
    checkpoints = Checkpoints(RunDirectory(str(folder)), WorkerContext(), keep)
    is_best = state["epochs"] == state["best_epoch"]
    checkpoints.commit(checkpoints.begin({"model": {}}, Record(step, {}, {}, "", state, is_best)))
    return [record.step for _, record in checkpoints._complete()]


def test_every_checkpoint_that_is_kept_has_its_best_one(tmp_path: Path) -> None:
    save_progress(tmp_path, 2, 10, epochs=1, best_epoch=1)
    assert save_progress(tmp_path, 2, 20, epochs=2, best_epoch=1) == [20, 10]
    assert save_progress(tmp_path, 2, 30, epochs=3, best_epoch=3) == [30, 20, 10], "if the third is damaged, a run goes on from the second"
    assert save_progress(tmp_path, 2, 40, epochs=4, best_epoch=3) == [40, 30]
    assert save_progress(tmp_path, 1, 50, epochs=5, best_epoch=3) == [50, 30]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_two_checkpoints_of_one_step_the_validated_one_is_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """A run that was stopped at an epoch's end validates when it resumes."""
    endings = iter(names)
    monkeypatch.setattr("pipelines.train.checkpoint.checkpoints.uuid4", lambda: SimpleNamespace(hex=next(endings)))
    save_progress(tmp_path, 1, 300, epochs=2, best_epoch=1, validated=200)
    save_progress(tmp_path, 1, 300, epochs=3, best_epoch=1, validated=300)
    ((name, record),) = Checkpoints(RunDirectory(str(tmp_path)), WorkerContext(), 1)._complete()
    assert (name[-1], record.state["validated"]) == (names[1], 300)


def test_a_trail_holds_every_step_s_loss_and_every_save(tmp_path: Path, saved: Callable[[int], tuple[str, Record]]) -> None:
    for step in (1, 2, 3):
        saved(step)
    log = read_digest_log(RunDirectory(str(tmp_path)))
    assert log.losses == {1: 1.0, 2: 2.0, 3: 3.0}
    assert log.digests[3] == digests({"model": {"w": torch.full((3,), 3.0)}})
    assert "torch" in log.machine
    assert read_digest_log(RunDirectory(str(tmp_path / "elsewhere"))).losses == {}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\0", b"[" * 100_000, b'{"step": 2}'], ids=range(5))
def test_a_file_of_a_run_that_is_not_as_it_was_written_is_one_clear_error(
    tmp_path: Path, saved: Callable[[int], tuple[str, Record]], content: bytes
) -> None:
    name, _ = saved(1)
    (tmp_path / name / RECORD).write_bytes(content)
    with pytest.raises(TrainingError, match=rf"{name}: damaged, and no other checkpoint is left; restore one of them"):
        Checkpoints(RunDirectory(str(tmp_path)), WorkerContext(), keep=5).restore({})
    (tmp_path / "trail/step-000000001.json").write_bytes(content)
    with pytest.raises(TrainingError, match=r"trail/step-000000001.json is damaged; restore it, or remove it"):
        read_digest_log(RunDirectory(str(tmp_path)))
    assert RunDirectory(str(tmp_path)).glance("trail/step-000000001.json") is None


def test_weights_that_are_not_as_they_were_written_are_one_clear_error(tmp_path: Path) -> None:
    folder, content = RunDirectory(str(tmp_path)), to_bytes({"w": torch.arange(3.0)})
    assert folder.get_with_checksum(WEIGHTS) is None
    folder.put_with_checksum(WEIGHTS, content)
    assert folder.get_with_checksum(WEIGHTS) == content
    for altered in (b"", content[:-1], content[:-1] + b"\x01"):
        (tmp_path / WEIGHTS).write_bytes(altered)
        with pytest.raises(TrainingError, match=r"weights.safetensors is damaged; remove it, and run the same command"):
            folder.get_with_checksum(WEIGHTS)


def test_a_run_that_goes_back_forgets_the_trail_of_what_it_does_again(tmp_path: Path, saved: Callable[[int], tuple[str, Record]]) -> None:
    saved(1)
    for step in (2, 3):
        (tmp_path / saved(step)[0] / RECORD).unlink()  # killed between the log and what makes the checkpoint count
    (tmp_path / "trail/step-000000003.json.draft").touch()
    Checkpoints(RunDirectory(str(tmp_path)), WorkerContext(), keep=5).forget_after(1)
    assert read_digest_log(RunDirectory(str(tmp_path))).losses == {1: 1.0}


@pytest.mark.parametrize(
    ("by_worker", "recorded", "names"),
    [
        ([{"a": "1", "b": "2"}], {"a": "1", "b": "2"}, []),
        ([{"a": "1", "b": "9"}], {"a": "1", "b": "2"}, ["b"]),
        ([{"a": "1"}, {"a": "9"}], {"a": "1"}, ["a"]),
        ([{"a": "1"}, {"b": "2"}], {"a": "1", "b": "2"}, []),
        ([{"a": "1", "c": "3"}], {"a": "1", "b": "2"}, ["c", "b"]),
    ],
    ids=["equal", "another digest", "workers differ", "each has one", "on one side alone"],
)
def test_tensors_that_differ_are_named(by_worker: list[dict[str, str]], recorded: dict[str, str], names: list[str]) -> None:
    assert differing_tensors(by_worker, recorded) == names
