"""Batch norm over all workers' rows is that of one process with all of them: outputs, gradients, statistics."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from torch import Tensor, nn

from pipelines.train.buffers import _Normalise, convert_sync_batch_norm
from pipelines.train.workers import WorkerContext

ROWS, CHANNELS, WORKERS = 24, 5, 3
SHARES = {"equal": (8, 8, 8), "unequal": (15, 7, 2), "two have none": (0, 24, 0), "one has one": (1, 23, 0)}
KINDS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "rows": (nn.BatchNorm1d, ()),
    "1d": (nn.BatchNorm1d, (7,)),
    "2d": (nn.BatchNorm2d, (4, 3)),
    "3d": (nn.BatchNorm3d, (2, 3, 2)),
}
FEW = {"none": 0, "one": 1}
"""Rows of all workers in a pass that has no variance."""
SETTINGS: dict[str, dict[str, Any]] = {
    "cumulative": {"momentum": None},
    "still": {"momentum": 0.0},
    "without weight and bias": {"affine": False},
    "without running statistics": {"track_running_stats": False},
}
HALVES = {"bf16": (torch.bfloat16, 2**-7), "fp16": (torch.float16, 2**-10)}
FAR = 3000.0


def norm(kind: str = "2d", dtype: torch.dtype = torch.float64, **settings: Any) -> nn.Module:
    module = KINDS[kind][0](CHANNELS, **settings)
    for parameter, start in zip(module.parameters(), (0.5, -1.0), strict=False):
        nn.init.trunc_normal_(parameter, start, 0.1, generator=torch.Generator().manual_seed(1))
    return module.to(dtype)


def values(kind: str = "2d", mean: float = 0.3) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(ROWS, CHANNELS, *KINDS[kind][1], generator=generator, dtype=torch.float64) + mean


def run_passes(module: nn.Module, inputs: Tensor, first: int = 0) -> dict[str, Tensor]:
    """Two passes forward and one backward of the rows from `first` on, with another gradient for every value."""
    inputs = inputs.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    module(inputs.detach() * 2 + 1)
    output = module(inputs)
    size = output.shape[1:].numel()
    gradients = torch.arange(first * size, (first + len(inputs)) * size, dtype=torch.float64).sin()
    output.backward(gradients.view(output.shape).to(output.dtype))
    assert inputs.grad is not None
    return {"output": output.detach(), "gradient": inputs.grad, **dict(module.named_buffers()), **gradients_by_name(module)}


def gradients_by_name(module: nn.Module) -> dict[str, Tensor]:
    return {f"gradient of {name}": values.grad for name, values in module.named_parameters() if values.grad is not None}


def run_few(module: nn.Module, rows: int, context: WorkerContext) -> dict[str, Tensor]:
    """The statistics after a pass of few rows, all of them on the last rank, which come first, and again after one with all rows."""
    few = values("rows")[: rows if context.rank == WORKERS - 1 else 0]
    statistics = []
    for inputs in (few, values("rows").split(SHARES["unequal"])[context.rank], few):
        module(inputs)
        statistics.append({name: buffer.clone() for name, buffer in module.named_buffers()})
    return {f"{name} {number}": buffer for number, buffers in enumerate(statistics) for name, buffer in buffers.items()}


def cases() -> dict[str, tuple[Callable[[], nn.Module], Tensor, str]]:
    """By name: the module, all workers' values, and how they are shared."""
    results: dict[str, tuple[Callable[[], nn.Module], Tensor, str]] = {}
    for kind in KINDS:
        for share in SHARES:
            results[f"{kind}, {share}"] = (lambda kind=kind: norm(kind)), values(kind), share
    for name, settings in SETTINGS.items():
        results[name] = (lambda settings=settings: norm(**settings)), values(), "unequal"
    results["channels last"] = norm, values().to(memory_format=torch.channels_last), "unequal"
    results["far from zero"] = (lambda: norm(dtype=torch.float32)), values(mean=FAR).float(), "unequal"
    for name, (dtype, _) in HALVES.items():
        results[name] = (lambda: norm(dtype=torch.float32)), values().to(dtype), "two have none"
        results[f"{name} weights"] = (lambda dtype=dtype: norm(dtype=dtype)), values().to(dtype), "unequal"
    return results


def worker_results(context: WorkerContext) -> dict[str, dict[str, Tensor]]:
    """All that the tests below look at: starting processes takes longer than the passes."""
    results = {}
    for name, (make, inputs, share) in cases().items():
        worker_inputs, first = inputs.split(SHARES[share])[context.rank], sum(SHARES[share][: context.rank])
        results[name] = run_passes(convert_sync_batch_norm(make()), worker_inputs, first)
    for momentum in (0.1, None):
        for name, rows in FEW.items():
            results[f"{name}, {momentum}"] = run_few(convert_sync_batch_norm(norm("rows", momentum=momentum)), rows, context)
    compiled = convert_sync_batch_norm(norm())
    compiled.compile(backend="eager")
    results["compiled"] = run_passes(compiled, values().split(SHARES["unequal"])[context.rank], sum(SHARES["unequal"][: context.rank]))
    if context.rank == 0:  # alone: nothing that is evaluated may wait for another worker
        results["evaluated"] = {"output": convert_sync_batch_norm(norm(track_running_stats=False).eval())(values())}
    return results


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    return run_group(WORKERS, tmp_path_factory.mktemp("group"), worker_results)


def assert_whole(answers: list[dict[str, Tensor]], expected: dict[str, Tensor], tolerance: float = 1e-9) -> None:
    """Values of the workers, side by side or added up, are those of one process."""
    for name, expected_values in expected.items():
        if name in ("output", "gradient"):
            actual = torch.cat([answer[name] for answer in answers])
        elif name.startswith("gradient"):
            actual = torch.stack([answer[name] for answer in answers]).sum(0)
        else:
            actual = answers[-1][name]
            assert all(torch.equal(answer[name], actual) for answer in answers)
        torch.testing.assert_close(actual, expected_values, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", [name for name in cases() if not name.startswith(("bf16", "fp16", "far"))])
def test_it_is_the_norm_of_the_whole_batch(workers: list[dict[str, dict[str, Tensor]]], name: str) -> None:
    make, inputs, _ = cases()[name]
    assert_whole([answer[name] for answer in workers], run_passes(make(), inputs))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("few", FEW)
def test_a_pass_without_a_variance_changes_no_statistics(
    workers: list[dict[str, dict[str, Tensor]]], few: str, momentum: float | None
) -> None:
    alone = norm("rows", momentum=momentum)
    first = {name: buffer.clone() for name, buffer in alone.named_buffers()}
    alone(values("rows"))
    for answer in workers:
        statistics = answer[f"{few}, {momentum}"]
        for name, buffer in alone.named_buffers():
            assert torch.equal(statistics[f"{name} 0"], first[name])
            torch.testing.assert_close(statistics[f"{name} 1"], buffer, rtol=1e-9, atol=1e-9)
            assert torch.equal(statistics[f"{name} 2"], statistics[f"{name} 1"])


@pytest.mark.parametrize("name", [f"{half}{of}" for half in HALVES for of in ("", " weights")])
def test_halves_are_summed_in_float32(workers: list[dict[str, dict[str, Tensor]]], name: str) -> None:
    make, inputs, _ = cases()[name]
    _, rounding = HALVES[name.removesuffix(" weights")]
    answers = [answer[name] for answer in workers]
    assert answers[0]["output"].dtype == inputs.dtype
    expected = run_passes(make().double(), inputs.double())
    for answer in answers:
        for key, actual in answer.items():
            answer[key] = actual.double() if actual.is_floating_point() else actual
    assert_whole(answers, expected, 16 * rounding)


def test_a_variance_of_one_is_one_far_from_zero(workers: list[dict[str, dict[str, Tensor]]]) -> None:
    inputs = values(mean=FAR).float()
    expected = run_passes(norm(), inputs.double())
    answers = [{key: actual.double() for key, actual in answer["far from zero"].items()} for answer in workers]
    for answer in answers:
        answer["num_batches_tracked"] = answer["num_batches_tracked"].long()
    assert_whole(answers, expected, 2e-3)
    torch.testing.assert_close(answers[0]["running_var"], expected["running_var"], rtol=1e-5, atol=0)


def test_a_compiled_model_s_is_the_same(workers: list[dict[str, dict[str, Tensor]]]) -> None:
    assert_whole([answer["compiled"] for answer in workers], run_passes(norm(), values()))


def test_what_is_evaluated_waits_for_nobody(workers: list[dict[str, dict[str, Tensor]]]) -> None:
    torch.testing.assert_close(workers[0]["evaluated"]["output"], norm(track_running_stats=False).eval()(values()))


def test_channels_stay_last(workers: list[dict[str, dict[str, Tensor]]]) -> None:
    answer = workers[0]["channels last"]
    assert answer["output"].is_contiguous(memory_format=torch.channels_last)
    assert answer["gradient"].is_contiguous(memory_format=torch.channels_last)


def passes_gradcheck(_: WorkerContext, affine: bool) -> bool:
    inputs = values()[:6].clone().requires_grad_()
    parameters = [values.requires_grad_() for values in norm().parameters()] if affine else [None, None]
    return torch.autograd.gradcheck(lambda *inputs: _Normalise.apply(*inputs, 1e-5)[0], (inputs, *parameters))


@pytest.mark.parametrize("affine", [True, False])
def test_its_gradients_are_its_outputs_differences(tmp_path: Path, affine: bool) -> None:
    assert run_group(1, tmp_path, passes_gradcheck, affine) == [True]
