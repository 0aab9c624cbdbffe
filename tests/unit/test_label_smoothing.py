"""`task.label_smoothing`: the training loss against torch's own, with weights and members; the loss of evaluation does not change."""

from typing import Any

import pytest
import torch
from remedies_of_targets import check
from test_tasks import make_batch, make_task, measure
from torch.nn import functional

from pipelines.config.plugins import import_class
from pipelines.config.tasks.functions import FunctionSettings
from pipelines.config.tasks.task import TASKS
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Task
from pipelines.tasks.supervised import Supervised

SMOOTHING = 0.15
WEIGHTS = (0.5, 1.0, 2.0)


def losses_by_torch(output: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The smoothed loss of each row; of two classes by the softmax of 0 and the logit."""
    logits = output if output.shape[1] > 1 else torch.cat([torch.zeros_like(output), output], 1)
    return functional.cross_entropy(logits, batch["y"].long(), label_smoothing=SMOOTHING, reduction="none")


@pytest.mark.parametrize("kind", ["binary", "classes"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_training_loss_is_torch_s_and_a_row_s_weight_multiplies_it(kind: str, is_weighted: bool) -> None:
    torch.manual_seed(0)
    weights = torch.tensor(WEIGHTS[: 2 if kind == "binary" else 3])
    settings: dict[str, Any] = {"class_weights": tuple(weights.tolist()), "sample_weight": "w"} if is_weighted else {}
    task, batch = make_task(kind, label_smoothing=SMOOTHING, **settings), make_batch(kind)
    batch["w"] = torch.rand(len(batch["y"]))
    row_weights = weights[batch["y"].long()] * batch["w"] if is_weighted else torch.ones(len(batch["y"]))
    model = task.model()
    expected = losses_by_torch(model(batch), batch)
    torch.testing.assert_close(task.loss(model, batch), ((expected * row_weights).sum(), row_weights.sum()))


def test_the_losses_of_members_are_smoothed_each() -> None:
    torch.manual_seed(0)
    task, batch = make_task("classes", label_smoothing=SMOOTHING, members=3, hidden=[4]), make_batch("classes")
    output = task.model().train()(batch)
    assert output.shape[1:] == (3, 3)
    expected = torch.stack([losses_by_torch(output[:, member], batch) for member in range(3)]).mean(0)
    torch.testing.assert_close(task.row_losses(output, batch)[0], expected)


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_metrics_have_labels_as_they_are(kind: str) -> None:
    batch, output = make_batch(kind), torch.randn(257, 1 if kind == "binary" else 3)
    assert measure(make_task(kind, label_smoothing=SMOOTHING), (output, batch)) == measure(make_task(kind), (output, batch))


def test_the_best_constant_is_between_the_shares_and_equal_ones() -> None:
    """The minimum of the loss over constants is (1 - smoothing) * shares + smoothing / classes."""
    task, batch = make_task("classes", label_smoothing=SMOOTHING), make_batch("classes")
    shares = torch.bincount(batch["y"], minlength=3) / len(batch["y"])
    logits = ((1 - SMOOTHING) * shares + SMOOTHING / 3).log().requires_grad_()
    task.row_losses(logits.expand(len(batch["y"]), 3), batch)[0].sum().backward()
    assert logits.grad is not None and logits.grad.abs().max() < 1e-4


@pytest.mark.parametrize(
    "task", [{"target": "standardize"}, {"target": "labels"}, {"target": {"encoder": "label", "order": ["a", "b", "c"]}, "loss": "ordinal"}]
)
def test_other_targets_are_refused(task: dict[str, Any]) -> None:
    target, settings = task["target"], {name: value for name, value in task.items() if name != "target"}
    check(target, **settings)(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"task.label_smoothing is 0.15, but rows of the target y have no single class"):
        check(target, label_smoothing=SMOOTHING, **settings)(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [*TASKS.by_name.values(), FunctionSettings], ids=[*TASKS.by_name, "function"])
def test_it_is_for_networks_with_the_loss_of_their_target(settings: Any) -> None:
    implementation = import_class(settings.implementation, Task, "a task")
    is_of_others = settings is FunctionSettings or bool(settings.origins_setting)
    assert settings.has_average is (issubclass(implementation, Supervised) and not is_of_others)
    assert settings.smooths_labels is (issubclass(implementation, Supervised) and not settings.needs_own_strategy)
