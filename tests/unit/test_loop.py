"""The training loop without Ray: resumed runs, checkpoints, early ends, numbers that go wrong."""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from groups import run_group
from torch import Tensor, nn
from trainings import open_dataset, training

from pipelines.config import Config
from pipelines.errors import NonFiniteError, TrainingError
from pipelines.tasks.bind import build_task
from pipelines.train import saver
from pipelines.train.checkpoint import run_directory
from pipelines.train.checkpoint.checkpoint_record import RECORD
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.ddp.ddp import DataParallel
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.saver import Saver, check_weights, infinite_buffers
from pipelines.train.step_statistics import Flags, StepResult
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

Curve = dict[int, dict[str, float]]
UNTIMED = ("train/loss", "train/grad_norm", "train/learning_rate", "validation/auc", "validation/loss")


class Recorder(Hooks):
    """Keeps the curves, and asks to stop before the step after `stop_after`, or to break off an evaluation, counted from 1."""

    def __init__(self, stop_after: int | None = None, break_off: int | None = None) -> None:
        self.curve: Curve = {}
        self._evaluations_left = break_off
        self.saves: list[int] = []
        self._steps_left = stop_after

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.curve.setdefault(step, {}).update({name: value for name, value in metrics.items() if name in UNTIMED})

    def must_stop_training(self) -> bool:
        if self._steps_left is not None:
            self._steps_left -= 1
        return self._steps_left is not None and self._steps_left < 0

    def must_stop_evaluation(self) -> bool:
        """The evaluations of `home` are of one batch each."""
        if self._evaluations_left is not None:
            self._evaluations_left -= 1
        return self._evaluations_left == 0

    def report_checkpoint(self, step: int, path: str) -> None:
        self.saves.append(step)


def fit(context: WorkerContext, config: Config, folder: str, hooks: Recorder) -> tuple[Trained, Strategy]:
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(folder), context, config.train.checkpoint.keep)
    return Loop(config, version, task, strategy, checkpoints, hooks).run(), strategy


def fit_alone(
    config: Config, folder: Path, stop_after: int | None = None, break_off: int | None = None
) -> tuple[Trained, dict[str, Tensor], Recorder]:
    hooks = Recorder(stop_after, break_off)
    fitted, strategy = fit(WorkerContext(), config, str(folder), hooks)
    return fitted, dict(strategy.model.state_dict()), hooks


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    training(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(home: Path) -> tuple[Trained, dict[str, Tensor], Recorder]:
    return fit_alone(training(home, task={"dropout": 0.2}, **SETTINGS), home / "undisturbed")


SETTINGS: dict[str, Any] = {"clip_norm": 0.5, "schedule": "one_cycle", "checkpoint": {"every_steps": 10}}
EPOCH = 2_000 // 64


def pause(config: Config, folder: Path, epoch: int) -> tuple[Trained, Recorder]:
    """Train until an epoch, as a search does."""
    version, hooks = open_dataset(config), Recorder()
    task = build_task(config.task, version.manifest)
    checkpoints = Checkpoints(RunDirectory(str(folder)), WorkerContext(), config.train.checkpoint.keep)
    return Loop(config, version, task, create_strategy(config.train, task, WorkerContext()), checkpoints, hooks, epoch).run(), hooks


@pytest.mark.parametrize("epochs", [(1,), (1, 2), (2, 3), (3,)])
def test_p4_a_run_that_pauses_after_epochs_is_the_uninterrupted_one(
    home: Path, tmp_path: Path, undisturbed: tuple[Trained, dict[str, Tensor], Recorder], epochs: tuple[int, ...]
) -> None:
    config = training(home, task={"dropout": 0.2}, **SETTINGS)
    expected, expected_weights, expected_hooks = undisturbed
    curve: Curve = {}
    for epoch in epochs:
        paused, hooks = pause(config, tmp_path, epoch)
        assert (paused.finished, paused.epochs, paused.steps, paused.is_trained) == (False, epoch, epoch * EPOCH, epoch == 3)
        assert not any(name.startswith("test/") for metrics in hooks.curve.values() for name in metrics), "no trial is tested"
        curve |= {step: {**curve.get(step, {}), **metrics} for step, metrics in hooks.curve.items()}
    same, _ = pause(config, tmp_path, epochs[0])
    assert same.epochs == epochs[-1], "it has come further already"
    fitted, weights, hooks = fit_alone(config, tmp_path)
    assert {step: {**curve.get(step, {}), **hooks.curve.get(step, {})} for step in expected_hooks.curve} == expected_hooks.curve
    assert (fitted.metrics, fitted.best_epoch, fitted.finished) == (expected.metrics, expected.best_epoch, True)
    assert all(torch.equal(weights[name], values) for name, values in expected_weights.items())


def test_a_run_that_pauses_ends_by_early_stopping_too(home: Path, tmp_path: Path) -> None:
    config = training(home, epochs=3, early_stopping=1, lr=1e-9)
    paused, _ = pause(config, tmp_path, 3)
    assert (paused.finished, paused.is_trained) == (False, True) and paused.epochs < 3


@pytest.mark.parametrize("stop_after", [1, 13, EPOCH - 1, EPOCH, EPOCH + 1, 2 * EPOCH + 5, 3 * EPOCH - 1])
def test_p4_a_resumed_run_is_the_uninterrupted_one(
    home: Path, tmp_path: Path, undisturbed: tuple[Trained, dict[str, Tensor], Recorder], stop_after: int
) -> None:
    config = training(home, task={"dropout": 0.2}, **SETTINGS)
    stopped, _, before = fit_alone(config, tmp_path, stop_after)
    assert (stopped.finished, stopped.steps) == (False, stop_after + 1)
    fitted, weights, after = fit_alone(config, tmp_path)
    expected, expected_weights, expected_hooks = undisturbed
    points = [(step, name) for curve in (before.curve, after.curve) for step, metrics in curve.items() for name in metrics]
    assert len(points) == len(set(points)), "a point is logged once"
    assert {step: {**before.curve.get(step, {}), **after.curve.get(step, {})} for step in expected_hooks.curve} == expected_hooks.curve
    assert (fitted.rows, fitted.steps, fitted.best_epoch, fitted.metrics) == (
        expected.rows,
        expected.steps,
        expected.best_epoch,
        expected.metrics,
    )
    assert weights.keys() == expected_weights.keys()
    for name, values in weights.items():
        assert torch.equal(values, expected_weights[name]), name


@pytest.mark.parametrize("evaluation", [1, 2, 3, 4])  # the last is the test
def test_p4_a_run_that_leaves_amid_an_evaluation_is_saved_and_goes_on(
    home: Path, tmp_path: Path, undisturbed: tuple[Trained, dict[str, Tensor], Recorder], evaluation: int
) -> None:
    config = training(home, task={"dropout": 0.2}, **SETTINGS)
    stopped, _, before = fit_alone(config, tmp_path, break_off=evaluation)
    assert (stopped.finished, stopped.steps) == (False, min(evaluation, 3) * EPOCH)
    assert before.saves[-1] == stopped.steps
    fitted, weights, after = fit_alone(config, tmp_path)
    expected, expected_weights, expected_hooks = undisturbed
    assert {step: {**before.curve.get(step, {}), **after.curve.get(step, {})} for step in expected_hooks.curve} == expected_hooks.curve
    assert (fitted.rows, fitted.steps, fitted.best_epoch, fitted.metrics) == (
        expected.rows,
        expected.steps,
        expected.best_epoch,
        expected.metrics,
    )
    assert all(torch.equal(values, expected_weights[name]) for name, values in weights.items())


def breaking_off(context: WorkerContext, home: Path, folder: Path) -> Trained:
    """Only the last worker was asked."""
    fitted, _ = fit(context, training(home), str(folder), Recorder(None, 2 if context.rank else None))
    return fitted


def test_workers_break_off_an_evaluation_together(home: Path, tmp_path: Path) -> None:
    assert [(fitted.finished, fitted.steps) for fitted in run_group(2, tmp_path / "group", breaking_off, home, tmp_path / "run")] == [
        (False, 2 * EPOCH)
    ] * 2


def test_points_fall_on_the_same_steps(undisturbed: tuple[Trained, dict[str, Tensor], Recorder]) -> None:
    fitted, _, hooks = undisturbed
    assert sorted(hooks.curve) == list(range(1, fitted.steps + 1))
    assert [step for step, metrics in hooks.curve.items() if "validation/auc" in metrics] == [EPOCH, 2 * EPOCH, 3 * EPOCH]


def test_it_learns(home: Path, tmp_path: Path) -> None:
    fitted, _, _ = fit_alone(training(home, **SETTINGS), tmp_path)
    assert fitted.metrics["test/auc"] > 0.95
    assert fitted.metrics["validation/auc"] > 0.95


def steps_on(context: WorkerContext, home: Path, folder: Path, stop_after: int | None, **train: Any) -> tuple[Trained, Curve]:
    hooks = Recorder(stop_after)
    fitted, _ = fit(context, training(home, **train), str(folder), hooks)
    return fitted, hooks.curve


def test_p3_a_run_goes_on_with_another_number_of_workers(home: Path, tmp_path: Path) -> None:
    _, expected = steps_on(WorkerContext(), home, tmp_path / "alone", None)
    parts = [
        run_group(2, tmp_path / "two", steps_on, home, tmp_path / "run", 20)[0],
        steps_on(WorkerContext(), home, tmp_path / "run", None),
    ]
    assert [fitted.finished for fitted, _ in parts] == [False, True]
    curve = parts[0][1] | parts[1][1]
    assert curve.keys() == expected.keys()
    for step, metrics in expected.items():
        assert curve[step] == pytest.approx(metrics, rel=1e-3, abs=1e-4), step


def test_p2_an_epoch_counts_every_row(home: Path, tmp_path: Path) -> None:
    run_with_remainder, _, _ = fit_alone(training(home, remainder="keep", epochs=1), tmp_path / "keep")
    assert (run_with_remainder.rows, run_with_remainder.steps) == (2_000, EPOCH + 1)
    run_without_remainder, _, _ = fit_alone(training(home, epochs=1), tmp_path / "drop")
    assert (run_without_remainder.rows, run_without_remainder.steps) == (EPOCH * 64, EPOCH)


def keeping(context: WorkerContext, home: Path, folder: Path) -> tuple[Trained, Curve]:
    return steps_on(context, home, folder, None, remainder="keep", epochs=2)


def test_a_last_step_that_leaves_workers_without_rows(tmp_path: Path) -> None:
    """130 rows are two steps of 64 and one of 2, whose shards 0 to 3, all of worker 0, give a single row."""
    training(tmp_path, rows=130)
    fitted, curve = run_group(3, tmp_path / "group", keeping, tmp_path, tmp_path / "run")[0]
    assert (fitted.rows, fitted.steps) == (260, 6)
    _, expected = keeping(WorkerContext(), tmp_path, tmp_path / "alone")
    for step, metrics in expected.items():
        assert curve[step] == pytest.approx(metrics, rel=1e-3, abs=1e-4), step


def test_max_steps_ends_a_run_within_an_epoch(home: Path, tmp_path: Path) -> None:
    fitted, _, hooks = fit_alone(training(home, max_steps=EPOCH + 7), tmp_path)
    assert (fitted.finished, fitted.steps, fitted.epochs) == (True, EPOCH + 7, 2)
    assert "validation/auc" in hooks.curve[EPOCH + 7]


def test_early_stopping_waits_for_so_many_epochs_and_tests_the_best(home: Path, tmp_path: Path) -> None:
    """The rate is so high from the third epoch on that nothing gets better."""
    config = training(home, epochs=30, early_stopping=2, schedule="one_cycle", lr=2, optimizer="sgd")
    fitted, weights, hooks = fit_alone(config, tmp_path)
    assert fitted.epochs == fitted.best_epoch + 2 < 30
    values = [metrics["validation/auc"] for metrics in hooks.curve.values() if "validation/auc" in metrics]
    assert fitted.metrics["validation/auc"] == max(values) == values[fitted.best_epoch - 1]
    name, record = whole(tmp_path)[0]
    assert record.step == fitted.best_epoch * EPOCH or len(whole(tmp_path)) > 1, name
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


def test_the_monitor_picks_the_best_epoch_and_ends_the_run(home: Path, tmp_path: Path) -> None:
    """A model that learns the rows by heart: its loss rises soon, and its accuracy does not fall."""
    config = training(home, task={"hidden": [128, 128]}, monitor="loss", epochs=30, early_stopping=2, lr=0.02)
    fitted, _, hooks = fit_alone(config, tmp_path)
    losses = [metrics["validation/loss"] for metrics in hooks.curve.values() if "validation/loss" in metrics]
    assert fitted.metrics["validation/loss"] == min(losses) == losses[fitted.best_epoch - 1]
    assert len(losses) == fitted.best_epoch + 2 < 30


def whole(folder: Path) -> list[tuple[str, Any]]:
    return Checkpoints(RunDirectory(str(folder)), WorkerContext(), 2)._complete()


def test_the_newest_checkpoints_and_the_best_are_kept(home: Path, tmp_path: Path) -> None:
    fitted, _, hooks = fit_alone(training(home, epochs=9, lr=0.05, checkpoint={"keep": 2}), tmp_path)
    steps = [record.step for _, record in whole(tmp_path)]
    assert hooks.saves == [EPOCH * epoch for epoch in range(1, 10)]
    assert steps[:2] == [9 * EPOCH, 8 * EPOCH]
    assert set(steps) == {9 * EPOCH, 8 * EPOCH, fitted.best_epoch * EPOCH}
    assert len(list((tmp_path / "checkpoints").iterdir())) == len(steps)


def test_every_steps_saves_within_epochs_and_the_best_at_their_end(home: Path, tmp_path: Path) -> None:
    _, _, hooks = fit_alone(training(home, epochs=1, checkpoint={"every_steps": 12}), tmp_path)
    assert hooks.saves == [12, 24, EPOCH]


def test_every_seconds_saves_by_the_clock(home: Path, tmp_path: Path) -> None:
    _, _, hooks = fit_alone(training(home, epochs=1, checkpoint={"every_seconds": 1e-6}), tmp_path)
    assert len(hooks.saves) == EPOCH
    _, _, hooks = fit_alone(training(home, epochs=1, checkpoint={"every_seconds": 1e6}), tmp_path / "rarely")
    assert hooks.saves == [EPOCH]


def test_automatic_seconds_follow_from_the_last_save(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = training(home, epochs=1, checkpoint={"every_seconds": "auto", "failure_hours": 2})
    _, _, hooks = fit_alone(config, tmp_path / "rarely")
    assert hooks.saves == [EPOCH]  # the first interval is two minutes
    calls: list[tuple[float, float]] = []
    monkeypatch.setattr(saver, "available_interval", lambda saves, between: calls.append((saves, between)) or 0.0)
    _, _, hooks = fit_alone(config, tmp_path)
    assert len(hooks.saves) == EPOCH and calls[0] == (saver.FIRST_SAVE_SECONDS, 7_200.0)
    assert all(0 < saves < saver.FIRST_SAVE_SECONDS for saves, _ in calls[1:])


@pytest.mark.parametrize("tear", [lambda newest: (newest / RECORD).unlink(), lambda newest: [file.unlink() for file in newest.iterdir()]])
def test_a_torn_checkpoint_is_never_chosen(home: Path, tmp_path: Path, tear: Callable[[Path], Any]) -> None:
    config = training(home, epochs=2)
    fit_alone(config, tmp_path, stop_after=EPOCH + 4)
    newest = max((tmp_path / "checkpoints").iterdir())
    tear(newest)
    assert whole(tmp_path)[0][1].step == EPOCH
    fitted, _, _ = fit_alone(config, tmp_path)
    assert fitted.finished
    assert not newest.exists()


@pytest.mark.parametrize("change", [{"seed": 1}, {"global_batch": 32}, {"shards": 4}, {"shuffle_window": 2}])
def test_a_checkpoint_of_another_order_is_refused(home: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    fit_alone(training(home), tmp_path, stop_after=3)
    with pytest.raises(TrainingError, match=r"step-000000004-.* can only resume with the same rows in the same order"):
        fit_alone(training(home, **change), tmp_path)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", RECORD])
def test_a_checkpoint_with_a_flipped_bit_is_passed_over(home: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    config = training(home, epochs=2)
    _, undisturbed, _ = fit_alone(config, tmp_path / "undisturbed")
    fit_alone(config, tmp_path, stop_after=EPOCH + 4)
    newest = max((tmp_path / "checkpoints").iterdir())
    flip(newest / name)
    fitted, weights, hooks = fit_alone(config, tmp_path)
    assert fitted.finished and min(hooks.curve) == EPOCH + 1
    assert not newest.exists()
    assert name == RECORD or f"{newest.name} is damaged, using the previous checkpoint" in caplog.text
    assert all(torch.equal(weights[key], undisturbed[key]) for key in undisturbed)


def test_when_all_checkpoints_are_damaged_nothing_starts_anew(home: Path, tmp_path: Path) -> None:
    fit_alone(training(home, epochs=2), tmp_path, stop_after=EPOCH + 4)
    for number, checkpoint in enumerate((tmp_path / "checkpoints").iterdir()):
        flip(checkpoint / ("__0_0.distcp" if number else RECORD))
    for _ in range(2):
        with pytest.raises(TrainingError, match=r"step-0000000\d\d-\w+: damaged, and no other checkpoint is left; restore one"):
            fit_alone(training(home, epochs=2), tmp_path)


@pytest.mark.parametrize(("name", "first_step"), [(RECORD, None), ("__0_0.distcp", 2 * EPOCH + 6)])
def test_a_damaged_checkpoint_of_the_best_epoch_is_named_with_its_remedy(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, first_step: int | None
) -> None:
    """Without its record, before the run goes on for hours; a damage of its tensors is seen when they are read, at the end."""
    monkeypatch.setattr("pipelines.train.loop.improves", lambda value, best, direction: best is None)
    config = training(home, epochs=3)
    fit_alone(config, tmp_path, stop_after=2 * EPOCH + 4)
    best = min((tmp_path / "checkpoints").iterdir())
    content, hooks = (best / name).read_bytes(), Recorder()
    flip(best / name)
    refused = "the checkpoint of epoch 1, the best one, .*damaged.*; restore it from a backup, or remove"
    with pytest.raises(TrainingError, match=refused):
        fit(WorkerContext(), config, str(tmp_path), hooks)
    assert min(hooks.curve, default=None) == first_step
    (best / name).write_bytes(content)
    fitted, _, _ = fit_alone(config, tmp_path)
    assert (fitted.finished, fitted.best_epoch) == (True, 1)


def test_a_strategy_with_too_few_batches_ends_with_an_error_instead_of_waiting(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DataParallel, "batches", lambda strategy, loader: islice(loader, EPOCH - 1))
    with pytest.raises(AssertionError, match="has an input for every remaining step"):
        fit_alone(training(home, strategy="ddp"), tmp_path)


def test_a_store_that_fails_for_a_while_costs_no_checkpoint(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, pauses = Recorder(), list[float]()

    def repair(pause: float) -> None:
        """In the second pause."""
        pauses.append(pause)
        if len(pauses) == 2:
            (tmp_path / "checkpoints").unlink()

    def block(number: int) -> None:
        if number == 1:
            (tmp_path / "checkpoints").write_text("in the way")

    monkeypatch.setattr(hooks, "epoch", block)
    monkeypatch.setattr(run_directory, "time", SimpleNamespace(sleep=repair))
    fitted, _ = fit(WorkerContext(), training(home), str(tmp_path), hooks)
    assert fitted.finished and hooks.saves == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    assert pauses == [1.0, 2.0]


def test_a_folder_that_cannot_be_written_is_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "_PAUSES_SECONDS", (0.01,))
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(TrainingError, match=rf"{tmp_path}/checkpoints.*; free space or repair the store") as error:
        fit_alone(training(home), tmp_path)
    assert "see to the store" not in str(error.value), "it has one remedy"
    with pytest.raises(TrainingError, match=r"^nowhere://a: .*; give a local path or a URI such as s3://bucket/path$"):
        RunDirectory("nowhere://a")


def test_a_loss_that_is_not_a_number_names_its_step_and_keeps_the_last_checkpoint(home: Path, tmp_path: Path) -> None:
    config = training(home, lr=1e30, optimizer="sgd", checkpoint={"every_steps": 1})
    with pytest.raises(NonFiniteError, match=r"step \d+: the (loss is (nan|inf), from worker 0 \(shards 0 to 7\)|gradient norm is)"):
        fit_alone(config, tmp_path)
    _, record = whole(tmp_path)[0]
    assert record.step >= 1


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
@pytest.mark.parametrize("ends", ["done", "stopped", "failed"])
def test_no_thread_of_a_training_outlives_it(home: Path, tmp_path: Path, strategy: str, ends: str) -> None:
    config = training(home, strategy=strategy, cache_bytes=1, **({"lr": 1e30, "optimizer": "sgd"} if ends == "failed" else {"epochs": 1}))
    before = set(threading.enumerate())
    with pytest.raises(NonFiniteError) if ends == "failed" else nullcontext() as failure:
        fit_alone(config, tmp_path, stop_after=3 if ends == "stopped" else None)
    running_threads = [thread.name for thread in set(threading.enumerate()) - before if thread.daemon]
    assert not running_threads, f"{running_threads} after {failure}"


def test_weights_that_are_not_numbers_at_an_epochs_end_keep_the_save_under_way(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = training(home, checkpoint={"every_steps": EPOCH - 1})
    monkeypatch.setattr(Saver, "is_written", False)  # as on a slow store

    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    whole_step = strategy.step

    def step(batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        result = whole_step(batch, number, rate, flags, compute_grad_norm)
        if number + 1 == EPOCH:
            next(strategy.model.parameters()).data.fill_(torch.nan)
        return result

    monkeypatch.setattr(strategy, "step", step)
    checkpoints = Checkpoints(RunDirectory(str(tmp_path)), WorkerContext(), 2)
    with pytest.raises(NonFiniteError, match=f"step {EPOCH}: .* is not finite after the step"):
        Loop(config, version, task, strategy, checkpoints, Hooks()).run()
    assert [record.step for _, record in whole(tmp_path)] == [EPOCH - 1]


def fit_with_nan(context: WorkerContext, home: Path, folder: str) -> None:
    """Worker 1 alone gets a NaN, in its 6th batch."""
    config = training(home)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    whole_step = strategy.step

    def step(batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        if context.rank == 1 and number == 5:
            batch = {**batch, "x3": batch["x3"] * torch.nan}
        return whole_step(batch, number, rate, flags, compute_grad_norm)

    strategy.step = step  # type: ignore[method-assign]
    Loop(config, version, task, strategy, Checkpoints(RunDirectory(folder), context, 2), Hooks()).run()


def test_all_workers_raise_when_one_has_a_nan(home: Path, tmp_path: Path) -> None:
    for error in run_group(2, tmp_path / "group", fit_with_nan, home, str(tmp_path / "run")):
        assert isinstance(error, NonFiniteError)
        assert str(error).startswith("step 6: the loss is nan, from worker 1 (shards 4 to 7): the last complete checkpoint is kept")


class Skips(Hooks):
    """Keeps how many steps were left out, by the point that says so."""

    def __init__(self) -> None:
        self.skipped: dict[int, float] = {}

    def log(self, step: int, metrics: dict[str, float]) -> None:
        if count := metrics.get("train/skipped_steps"):
            self.skipped[step] = count


@pytest.mark.parametrize(("scale", "ends"), [(2.0**28, False), (2.0**80, True)])
def test_steps_that_fp16_leaves_out_are_counted(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: float, ends: bool
) -> None:
    """A scale that is too high is halved at every step until it fits; what does not fit after many is an error."""
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device, enabled: scaler(device, init_scale=scale, enabled=enabled))
    hooks = Skips()
    if ends:
        with pytest.raises(NonFiniteError, match="step 51: the gradient norm is"):
            fit(WorkerContext(), training(home, precision="fp16"), str(tmp_path), hooks)
        assert hooks.skipped == dict.fromkeys(range(1, 51), 1.0)
    else:
        fit(WorkerContext(), training(home, precision="fp16"), str(tmp_path), hooks)
        assert set(hooks.skipped.values()) == {1.0}
        assert set(range(1, 8)) <= set(hooks.skipped) <= set(range(1, 28)), "each halves the scale, and some fit in between"


def test_weights_that_are_not_numbers_are_never_saved() -> None:
    weights = {"a.weight": torch.ones(3), "a.steps": torch.ones(3, dtype=torch.int64), "b.weight": torch.tensor([1.0, torch.inf])}
    check_weights({name: weights[name] for name in ("a.weight", "a.steps")}, (), 7)
    with pytest.raises(NonFiniteError, match=r"step 7: b.weight is not finite after the step"):
        check_weights(weights, (), 7)


def test_a_mask_may_be_infinite_and_statistics_may_not_become_so() -> None:
    mask, model = torch.tensor([0.0, -torch.inf]), nn.Sequential(nn.BatchNorm1d(2), nn.ReLU(), nn.ReLU())
    for layer in model[1:]:  # which share it
        layer.register_buffer("mask", mask)
    infinite = infinite_buffers(model)
    check_weights(model.state_dict(), infinite, 7)
    model[0].running_var[0] = torch.inf
    with pytest.raises(NonFiniteError, match=r"step 7: 0\.running_var is not finite"):
        check_weights(model.state_dict(), infinite, 7)
    model[0].running_var[0], mask[0] = 1.0, torch.nan
    with pytest.raises(NonFiniteError, match=r"step 7: 1\.mask is not finite"):
        check_weights(model.state_dict(), infinite, 7)
