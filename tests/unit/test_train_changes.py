"""`train.changes`: other values of the learning rate and weight decay from an epoch on; and forks, which go on from another run's epoch."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from groups import run_group
from trainings import StopsAfter, open_dataset, training

from pipelines.config import Config
from pipelines.config.train.changes import TrainChange, changes_text
from pipelines.errors import ConfigError, TrainingError
from pipelines.runtime.weights import model_digest
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint import run_directory
from pipelines.train.checkpoint.checkpoint_record import RECORD, DigestLog, read_digest_log
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.forks import copy_epoch, find_epoch, has_epoch
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.learning_rate import learning_rate
from pipelines.train.loop import Loop
from pipelines.train.run_context import Trained
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.usefixtures("one_thread")]

SETTINGS: dict[str, Any] = {"rows": 640, "epochs": 4, "task": {"hidden": [16], "dropout": 0.2}, "strategy": "exact"}
STEPS = 10
"""Of an epoch."""
CHANGES = [{"after_epoch": 1, "lr": 0.002}, {"after_epoch": 3, "lr": 0.03, "weight_decay": 0.5}]


@dataclass(frozen=True)
class Fit:
    trained: Trained
    digest: str
    log: DigestLog


def fit(
    context: WorkerContext,
    home: Path,
    folder: Path,
    settings: Mapping[str, Any],
    stop_after: int | None = None,
    pause_epoch: int | None = None,
) -> Fit:
    config = training(home, **{**SETTINGS, **settings})
    version, directory = open_dataset(config), RunDirectory(str(folder))
    strategy = create_strategy(config.train, build_task(config.task, version.manifest), context)
    checkpoints, task = Checkpoints(directory, context, 2), build_task(config.task, version.manifest)
    trained = Loop(config, version, task, strategy, checkpoints, StopsAfter(stop_after), pause_epoch).run()
    return Fit(trained, model_digest(strategy.weights()), read_digest_log(directory))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changes")
    training(folder, **SETTINGS)
    return folder


@pytest.fixture(scope="module")
def plain(home: Path) -> Fit:
    return fit(WorkerContext(), home, home / "plain", {})


@pytest.fixture(scope="module")
def changed(home: Path) -> Fit:
    return fit(WorkerContext(), home, home / "changed", {"changes": CHANGES})


@pytest.mark.parametrize(
    ("schedule", "warmup", "rates"),
    [
        ("constant", 0.0, {0: 0.01, 9: 0.01, 10: 0.002, 29: 0.002, 30: 0.03, 39: 0.03}),
        ("constant", 0.5, {0: 0.01 / 20, 9: 0.01 * 10 / 20, 10: 0.002 * 11 / 20, 19: 0.002, 30: 0.03}),
        ("cosine", 0.0, {0: 0.01, 20: 0.002 / 2, 30: 0.03 * 0.14644660940672624}),
    ],
)
def test_a_change_is_of_the_peak_of_the_schedule(home: Path, schedule: str, warmup: float, rates: dict[int, float]) -> None:
    settings = training(home, **{**SETTINGS, "schedule": schedule, "warmup": warmup, "changes": CHANGES}).train
    assert {step: learning_rate(settings, step, 4 * STEPS, STEPS) for step in rates} == pytest.approx(rates)


def test_a_setting_stays_until_a_change_names_it(home: Path) -> None:
    settings = training(home, **{**SETTINGS, "changes": [*CHANGES[:1], {"after_epoch": 2, "weight_decay": 0.0}, *CHANGES[1:]]}).train
    assert [settings.lr_after(epochs) for epochs in range(5)] == [0.01, 0.002, 0.002, 0.03, 0.03]
    assert [settings.weight_decay_after(epochs) for epochs in range(5)] == [0.01, 0.01, 0.0, 0.5, 0.5]
    assert changes_text(CHANGES) == "after epoch 1 lr 0.002; after epoch 3 lr 0.03, weight_decay 0.5"


@pytest.mark.parametrize(("strategy", "optimizer"), [("exact", "adamw"), ("exact", "muon"), ("ddp", "sgd")])
def test_losses_are_those_without_a_change_until_its_epoch(home: Path, tmp_path: Path, strategy: str, optimizer: str) -> None:
    settings = {"strategy": strategy, "optimizer": optimizer, "epochs": 3, "task": {"hidden": [16, 16]}}
    plain = fit(WorkerContext(), home, tmp_path / "plain", settings).log.losses
    for change in ({"lr": 0.001}, {"weight_decay": 0.9}):
        folder = tmp_path / next(iter(change))
        changed = fit(WorkerContext(), home, folder, {**settings, "changes": [{"after_epoch": 2, **change}]}).log.losses
        same = [step for step in plain if plain[step] == changed[step]]
        assert same == list(range(1, 2 * STEPS + 2)), "the loss of a step is that of the weights before it"


def test_a_change_to_the_same_value_changes_no_weight(home: Path, plain: Fit, tmp_path: Path) -> None:
    same = fit(WorkerContext(), home, tmp_path / "same", {"changes": [{"after_epoch": 2, "lr": 0.01, "weight_decay": 0.01}]})
    assert same.digest == plain.digest


@pytest.mark.parametrize("stop_after", [STEPS, STEPS + 3, 3 * STEPS + 4])
def test_p4_a_resumed_run_has_the_losses_of_the_uninterrupted_one(home: Path, changed: Fit, tmp_path: Path, stop_after: int) -> None:
    settings, expected = {"changes": CHANGES}, changed
    assert not fit(WorkerContext(), home, tmp_path / "parts", settings, stop_after).trained.finished
    resumed = fit(WorkerContext(), home, tmp_path / "parts", settings)
    assert (resumed.digest, resumed.log.losses, resumed.trained.metrics) == (expected.digest, expected.log.losses, expected.trained.metrics)


@pytest.mark.full
def test_p5_changes_are_the_same_for_every_number_of_workers(home: Path, changed: Fit, tmp_path: Path) -> None:
    answers = run_group(2, tmp_path / "group", fit, home, tmp_path / "run", {"changes": CHANGES})
    assert not isinstance(answers[0], Exception), answers[0]
    assert answers[0].digest == changed.digest


def test_changes_are_in_the_identity_and_their_absence_is_not(home: Path) -> None:
    def identity(**settings: Any) -> str:
        return training(home, **{**SETTINGS, **settings}).model_identity

    plain, changed = identity(), identity(changes=CHANGES)
    assert identity(changes=[]) == plain != changed != identity(changes=CHANGES[:1]) != plain


@pytest.mark.parametrize("strategy", ["local_sgd", "parameter_server"])
def test_a_strategy_that_paces_itself_changes_nothing(home: Path, strategy: str) -> None:
    with pytest.raises(
        ConfigError, match=r"train\.changes: has no effect while train\.strategy is .*; set train\.strategy to ddp or exact or"
    ):
        training(home, **{**SETTINGS, "strategy": strategy, "changes": CHANGES})
    training(home, **{**SETTINGS, "strategy": "sharded", "changes": CHANGES})


def test_trees_have_no_rate_to_change(home: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"train\.changes: has no effect .*; train a network, as by task\.kind tabular, or remove changes"
    ):
        training(home, task={"kind": "trees"}, epochs=4, changes=CHANGES)


def test_a_change_in_python_is_a_section() -> None:
    with pytest.raises(ConfigError, match="after epoch 2 nothing changes; give it lr or weight_decay, or remove it"):
        TrainChange(after_epoch=2)
    assert TrainChange(after_epoch=2, lr=0.1).lr == 0.1


def copy_run(source: Path, target: Path, epoch: int) -> list[int]:
    """The steps of which the copy said that only the record was left."""
    directory, steps = RunDirectory(str(source)), list[int]()
    name = find_epoch(directory, epoch)
    assert name is not None, "the source has paused at that epoch"

    def note(step: int) -> None:
        steps.append(step)
        assert not has_epoch(RunDirectory(str(target)), 1), "until its record is there, a checkpoint is none"

    copy_epoch(directory, RunDirectory(str(target)), name, note)
    return steps


@pytest.mark.parametrize(("strategy", "epoch"), [("exact", 1), ("ddp", 3)])
def test_a_fork_has_the_model_of_its_config_from_nothing(home: Path, tmp_path: Path, strategy: str, epoch: int) -> None:
    settings = {"strategy": strategy, "ema_decay": 0.9}
    changed = {**settings, "changes": [{"after_epoch": epoch, "lr": 0.002, "weight_decay": 0.5}]}
    expected = fit(WorkerContext(), home, tmp_path / "whole", changed)
    fit(WorkerContext(), home, tmp_path / "source", settings, pause_epoch=epoch)
    assert copy_run(tmp_path / "source", tmp_path / "fork", epoch) == [epoch * STEPS]
    forked = fit(WorkerContext(), home, tmp_path / "fork", changed)
    assert (forked.digest, forked.log.losses) == (expected.digest, expected.log.losses)
    assert forked.trained.metrics == expected.trained.metrics and forked.trained.best_epoch == expected.trained.best_epoch
    assert fit(WorkerContext(), home, tmp_path / "source", settings).trained.finished, "and the source goes on"


def test_a_fork_has_the_best_epoch_of_its_source_too(home: Path, tmp_path: Path) -> None:
    """A rate so high that the first epoch stays the best one."""
    settings = {"optimizer": "sgd", "lr": 0.2, "changes": [{"after_epoch": 1, "lr": 0.9}]}
    fork = {**settings, "changes": [*settings["changes"], {"after_epoch": 3, "lr": 0.8}]}  # type: ignore[misc]
    source = fit(WorkerContext(), home, tmp_path / "source", settings, pause_epoch=3)
    best = source.trained.best_epoch
    copy_run(tmp_path / "source", tmp_path / "fork", 3)
    assert len(list((tmp_path / "fork/checkpoints").iterdir())) == (1 if best == 3 else 2)
    assert fit(WorkerContext(), home, tmp_path / "fork", fork).digest == fit(WorkerContext(), home, tmp_path / "whole", fork).digest


def test_a_copy_that_was_killed_begins_anew_or_is_done_again(home: Path, tmp_path: Path) -> None:
    settings = {"changes": [{"after_epoch": 2, "lr": 0.002}]}
    fit(WorkerContext(), home, tmp_path / "source", {}, pause_epoch=2)
    source, target = RunDirectory(str(tmp_path / "source")), RunDirectory(str(tmp_path / "fork"))
    name = find_epoch(source, 2)
    assert name is not None

    def die(step: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_epoch(source, target, name, die)
    assert (tmp_path / "fork" / name).is_dir() and not has_epoch(target, 1)
    expected = fit(WorkerContext(), home, tmp_path / "whole", settings).digest
    assert fit(WorkerContext(), home, tmp_path / "fork", settings).digest == expected
    copy_run(tmp_path / "source", tmp_path / "again", 2)
    assert fit(WorkerContext(), home, tmp_path / "again", settings).digest == expected


@pytest.mark.parametrize("torn", [".metadata", RECORD])
def test_a_copy_that_was_killed_within_a_file_leaves_none_of_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: str
) -> None:
    settings = {"changes": [{"after_epoch": 2, "lr": 0.002}]}
    fit(WorkerContext(), home, tmp_path / "source", {}, pause_epoch=2)

    def copy_and_die(source: str, target: str, **filesystems: Any) -> None:
        content = Path(source).read_bytes()
        is_torn = Path(source).name == torn
        Path(target).write_bytes(content[: len(content) // 2] if is_torn else content)
        if is_torn:
            raise KeyboardInterrupt

    with monkeypatch.context() as patches, suppress(KeyboardInterrupt):  # a record is written as any small file is
        patches.setattr(run_directory, "copy_files", copy_and_die)
        copy_run(tmp_path / "source", tmp_path / "fork", 2)
    files = [path for path in (tmp_path / "fork").rglob("*") if path.is_file()]
    assert all(path.read_bytes() == (tmp_path / "source" / path.relative_to(tmp_path / "fork")).read_bytes() for path in files)
    expected = fit(WorkerContext(), home, tmp_path / "whole", settings).digest
    assert fit(WorkerContext(), home, tmp_path / "fork", settings).digest == expected


def test_only_a_state_right_after_the_epoch_is_forked(home: Path, tmp_path: Path) -> None:
    """One of within the next epoch has steps of other settings."""
    fit(WorkerContext(), home, tmp_path / "run", {"checkpoint": {"every_steps": 4}}, stop_after=STEPS + 5)
    directory = RunDirectory(str(tmp_path / "run"))
    assert has_epoch(directory, 1) and not has_epoch(directory, 2)
    for folder in (tmp_path / "run/checkpoints").glob(f"step-{STEPS:09d}-*"):
        (folder / RECORD).unlink()
    assert has_epoch(directory, 1) and find_epoch(directory, 1) is None


def test_an_epoch_that_was_pruned_is_not_found(home: Path, plain: Fit) -> None:
    directory = RunDirectory(str(home / "plain"))
    pruned = next(epoch for epoch in (1, 2) if epoch != plain.trained.best_epoch)
    assert find_epoch(directory, pruned) is None and find_epoch(directory, 4) is not None and has_epoch(directory, pruned)


def test_a_file_that_is_gone_is_no_checkpoint(home: Path, tmp_path: Path) -> None:
    fit(WorkerContext(), home, tmp_path / "run", {}, pause_epoch=1)
    directory = RunDirectory(str(tmp_path / "run"))
    with pytest.raises(TrainingError, match="nothing is gone"):
        directory.copy("nothing", RunDirectory(str(tmp_path / "fork")))
    assert not has_epoch(RunDirectory(str(tmp_path / "nowhere")), 1)


def test_config_names_are_those_of_the_file(home: Path) -> None:
    config: Config = training(home, **{**SETTINGS, "changes": CHANGES})
    assert config.model_dump(mode="json", exclude_unset=True)["train"]["changes"] == CHANGES
