"""Strategy `sharded` with a pipeline: stages on different workers train as `ddp` does on one, and their checkpoints fit any layout."""

from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from layouts import SETTINGS, VOCABULARY, WINDOWS, Fitted, fit_layout, losses
from torch import Tensor, nn
from trainings import training

from pipelines.applications.language.settings import LanguageSettings
from pipelines.applications.language.task import Language
from pipelines.config.tasks.task import VisionSettings
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError, NonFiniteError
from pipelines.strategies.sharded.pipelined import Microbatches, Pipelined
from pipelines.strategies.sharded.stages import microbatches_per_step, stages_by_place
from pipelines.tasks.base import Batch, Data, Task
from pipelines.tasks.vision import Vision
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy, strategy_class
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

PIPELINE = {"strategy": {"kind": "sharded", "pipeline": 2, "microbatches": 2}}
MOVED: list[tuple[int, dict[str, Any], int]] = [(4, PIPELINE, 5), (2, PIPELINE, 4), (2, {"strategy": "sharded"}, 4)]
"""Workers, layout, and steps after which each part of one run stops, the last one at the end of an epoch; `ddp` goes on from there."""

IMAGES = (
    TensorColumn(name="image", dtype="uint8", shape=(3, 8, 8)),
    TensorColumn(name="kind", dtype="int64", shape=(), cardinality=3, role="target"),
)
ROWS = 16
GPTS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "1F1B, shard 2": (
        4,
        30,
        {"strategy": {"kind": "sharded", "pipeline": 2, "shard": 2, "activation_checkpointing": "full"}, "grad_accum_steps": 2},
    ),
    "1F1B, replicate 2": (4, 4, {"strategy": {"kind": "sharded", "pipeline": 2, "replicate": 2, "shard": 1, "microbatches": 2}}),
    "Interleaved1F1B": (
        2,
        4,
        {"strategy": {"kind": "sharded", "pipeline": 2, "schedule": "Interleaved1F1B", "microbatches": 2}, "grad_accum_steps": 2},
    ),
    "InterleavedZeroBubble": (
        2,
        4,
        {"strategy": {"kind": "sharded", "pipeline": 2, "schedule": "InterleavedZeroBubble", "microbatches": 2}},
    ),
    "ZBVZeroBubble": (2, 4, {"strategy": {"kind": "sharded", "pipeline": 2, "schedule": "ZBVZeroBubble", "microbatches": 6}}),
}
"""Workers, steps and settings."""


def gpt(layers: int = 4) -> Task:
    settings = LanguageSettings.model_validate({"kind": "language", "layers": layers, "heads": 2, "width": 16, "sample_tokens": 8})
    return Language(settings, Data((WINDOWS,), tokens=tuple(bytes([65 + number]) for number in range(VOCABULARY))))


def vision(network: str) -> Task:
    settings = VisionSettings.model_validate({"kind": "vision", "network": network})
    return Vision(settings, Data(IMAGES, classes=("a", "b", "c"), class_counts=(6, 5, 5)))


def random_rows(task: Task) -> Batch:
    """Some rows, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    most = {"windows": VOCABULARY, "image": 256, "kind": 3}
    shapes = {column.name: (ROWS, *column.shape) for column in task.data.columns}
    return {name: torch.randint(most[name], shape, generator=generator, dtype=torch.uint8) for name, shape in shapes.items()}


def steps(context: WorkerContext, task: Task, count: int, **changes: Any) -> tuple[list[float], Tensor, Tensor, str]:
    """Losses of some steps on the same rows, the output for the worker's rows and for all rows, and a sample of the first weights."""
    values = {"global_batch": ROWS, "shards": 4, "clip_norm": 1.0, "workers": context.world_size, **changes}
    strategy = create_strategy(Train.model_validate(values), task, context)
    text, every = strategy.sample(1), random_rows(task)
    worker_batch = {name: values.tensor_split(strategy.mesh.replicas)[strategy.mesh.replica] for name, values in every.items()}
    results = [strategy.step(worker_batch, number, 0.003, Flags()) for number in range(count)]
    assert {float(result.rows) for result in results} == {ROWS}
    return [float(result.loss_sum / result.weight) for result in results], strategy.predict(worker_batch), strategy.predict(every), text


def run_in_turn(context: WorkerContext, home: Path) -> dict[str, Any]:
    """Train all layouts of a group of this size, since a group takes seconds to start."""
    results: dict[str, Any] = {}
    for number, (workers, changes, stop_after) in enumerate(MOVED):
        if workers == context.world_size:
            results[f"moved {number}"] = fit_layout(context, home, home / "moved", changes, stop_after)[0]
    results |= {
        name: steps(context, gpt(), count, **changes) for name, (workers, count, changes) in GPTS.items() if workers == context.world_size
    }
    if context.world_size == 2:
        results["whole"] = fit_layout(context, home, home / "whole", PIPELINE)
        results["vision"] = steps(context, vision("small"), 3, strategy={"kind": "sharded", "pipeline": 2})
        try:
            fit_layout(context, home / "nan", home / "nan-run", {**PIPELINE, "nan_row": 70})
        except NonFiniteError as error:
            results["nan"] = str(error)
    return results


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("piped")
    training(folder, **SETTINGS)
    (folder / "nan").mkdir()
    training(folder / "nan", **SETTINGS, nan_row=70)
    return folder


@pytest.fixture(scope="module")
def alone(home: Path) -> Fitted:
    return fit_layout(WorkerContext(), home, home / "alone", {"strategy": "ddp"})


@pytest.fixture(scope="module")
def groups(home: Path) -> dict[str, list[Any]]:
    """Trainings of each worker, by name."""
    results: dict[str, list[Any]] = {}
    for workers in (4, 2):
        answers = run_group(workers, home / f"group-{workers}", run_in_turn, home)
        assert not any(isinstance(answer, Exception) for answer in answers), answers
        results |= {name: [answer[name] for answer in answers] for name in answers[0]}
    return results


@pytest.mark.full
def test_losses_metrics_and_weights_are_those_of_ddp_on_one_worker(home: Path, alone: Fitted, groups: dict[str, list[Any]]) -> None:
    (trained, before, weights), (_, *nothing) = groups["whole"]
    expected, wanted_before, wanted_weights = alone
    assert losses(home / "whole") == pytest.approx(losses(home / "alone"), rel=1e-5)
    assert (trained.rows, trained.steps, trained.best_epoch) == (expected.rows, expected.steps, expected.best_epoch) == (2 * 962, 32, 2)
    assert trained.metrics == pytest.approx(expected.metrics, rel=1e-5)
    assert before.keys() == wanted_before.keys() and all(torch.equal(before[name], values) for name, values in wanted_before.items())
    torch.testing.assert_close(weights, wanted_weights, rtol=1e-4, atol=1e-6)
    assert nothing == [{}, {}], "only rank 0 gathers the model"


@pytest.mark.full
def test_a_run_goes_on_in_any_layout(home: Path, alone: Fitted, groups: dict[str, list[Any]]) -> None:
    assert [groups[f"moved {number}"][0].steps for number in range(len(MOVED))] == [6, 11, 16]
    trained, _, weights = fit_layout(WorkerContext(), home, home / "moved", {"strategy": "ddp"})
    assert trained.finished and losses(home / "moved") == pytest.approx(losses(home / "alone"), rel=1e-5)
    torch.testing.assert_close(weights, alone[2], rtol=1e-4, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", GPTS)
def test_a_gpt_trains_and_writes_as_with_ddp_on_one_worker(groups: dict[str, list[Any]], name: str) -> None:
    expected, _, output, text = steps(WorkerContext(), gpt(), GPTS[name][1], strategy="ddp")
    actual, _, every, first_text = groups[name][0]
    assert actual == pytest.approx(expected, rel=1e-4) and actual[-1] < actual[0] - 0.02
    assert first_text == text and {answer[3] for answer in groups[name][1:]} == {""}
    for answer in groups[name]:
        torch.testing.assert_close(answer[2], output, rtol=1e-3, atol=1e-2)
    outputs = torch.cat([answer[1] for answer in groups[name][::2]])
    torch.testing.assert_close(outputs, every, rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_images_pass_through_stages(groups: dict[str, list[Any]]) -> None:
    expected, _, output, _ = steps(WorkerContext(), vision("small"), 3, strategy="ddp")
    assert groups["vision"][1][0] == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(groups["vision"][0][2], output, rtol=1e-3, atol=1e-4)


@pytest.mark.full
def test_a_loss_that_is_not_finite_names_the_pipeline(groups: dict[str, list[Any]]) -> None:
    assert all("the loss is nan, from worker 0 (shards 0 to 7)" in message for message in groups["nan"])


def test_stages_of_each_place() -> None:
    assert stages_by_place("1F1B", 3) == [[0], [1], [2]]
    assert stages_by_place("Interleaved1F1B", 3) == [[0, 3], [1, 4], [2, 5]]
    assert stages_by_place("ZBVZeroBubble", 3) == [[0, 5], [1, 4], [2, 3]]


def test_microbatches_have_one_size_and_every_row_counts_once() -> None:
    microbatches = Microbatches(4, 10)
    for rows in (10, 5, 0, 1):
        batch = {"x": torch.arange(rows * 2).view(rows, 2)}
        actual = list(microbatches.divide_step(batch))
        assert [len(filled["x"]) for filled, _ in actual] == [3] * 4
        assert torch.equal(torch.cat([counted["x"] for _, counted in actual]), batch["x"])
        assert all(torch.equal(filled["x"][: len(counted["x"])], counted["x"]) for filled, counted in actual)
        assert [len(part["x"]) for part in microbatches.divide_evenly(batch)] == [max(1, len(part)) for part in batch["x"].tensor_split(4)]


def make_settings(**changes: Any) -> Train:
    parallel = {"kind": "sharded", "pipeline": 2, **changes.pop("strategy", {})}
    return Train.model_validate({"global_batch": ROWS, "shards": 4, "workers": parallel["pipeline"], "strategy": parallel, **changes})


@pytest.mark.parametrize(
    ("rows", "grad_accum_steps", "count"), [(16, 1, 8), (16, 2, 16), (16, 4, 16), (4, 1, 4), (12, 3, 12), (512, 2, 16)]
)
def test_the_number_of_microbatches_by_default(rows: int, grad_accum_steps: int, count: int) -> None:
    assert microbatches_per_step(make_settings(global_batch=rows, grad_accum_steps=grad_accum_steps), 2) == count


class Ties(Language):
    """A model whose head is its embedding."""

    def model(self) -> nn.Module:
        model = super().model()
        model.network.head.weight = model.network.embedding.weight
        return model


class WithoutStages(Language):
    stages = Task.stages


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (
            gpt(1),
            {},
            "train.strategy cuts the model into 2 stages, but it has 1 block; lower train.strategy.pipeline, choose",
        ),
        (
            gpt(3),
            {"strategy": {"kind": "sharded", "schedule": "ZBVZeroBubble"}},
            "cuts the model into 4 stages, but it has 3 blocks; lower",
        ),
        (
            Ties(gpt().settings, gpt().data),
            {},
            "network.embedding.weight of task Ties is in stages 0 and 1, which cannot share weights",
        ),
        (
            WithoutStages(gpt().settings, gpt().data),
            {},
            "pipeline is 2, but task WithoutStages supports only replicate, shard, tensor, context; set",
        ),
        (
            vision("resnet18"),
            {},
            "pipeline is 2, but network.0.1 of task Vision is a batch norm, whose statistics would be those",
        ),
        (gpt(), {"precision": "fp16"}, "pipeline is 2, but train.precision is fp16, .* set it to bf16 or fp32"),
        (
            gpt(),
            {"strategy": {"kind": "sharded", "reduce_every_pass": True}},
            "but reduce_every_pass is true, and a pipeline sums gradients after its last",
        ),
        (
            gpt(),
            {"strategy": {"kind": "sharded", "microbatches": 3}},
            "microbatches is 3; it must be a multiple of 2, the degree pipeline, such as 4",
        ),
        (
            gpt(),
            {"strategy": {"kind": "sharded", "microbatches": 6}, "grad_accum_steps": 3},
            "microbatches is 6 in each of 3 passes, more than the 16 rows",
        ),
        (
            gpt(),
            {"strategy": {"kind": "sharded", "schedule": "ZBVZeroBubble"}, "compile": True},
            "divides backward passes, as train.compile does not allow",
        ),
        (
            gpt(),
            {"strategy": {"kind": "sharded", "schedule": "InterleavedZeroBubble", "activation_checkpointing": "full"}},
            "divides backward passes, as activation_checkpointing does not allow; set the schedule to 1F1B or Interleaved1F1B",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Task) else None,
)
def test_what_cannot_be_a_pipeline_is_said_before_a_worker_starts(task: Task, changes: dict[str, Any], message: str) -> None:
    settings = make_settings(**changes)
    assert strategy_class(settings) is Pipelined
    with pytest.raises(ConfigError, match=message):
        Pipelined.check(settings, task, None)  # type: ignore[arg-type]
