"""Remedies of errors that only several workers meet, all in one group."""

from pathlib import Path

import pytest
import torch
from groups import run_group
from remedies_of_strategies import Draws, Linear, Mean, Puts, Table, Twice, Unused, take_step
from torch import nn

from pipelines.errors import ConfigError
from pipelines.train.workers import WorkerContext


def check_remedies(context: WorkerContext) -> None:
    """On a worker of two: what one worker alone does not raise, or what another strategy can do with several."""
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match="spare had no part in the loss, and strategy ddp waits for the gradients of all parameters"):
        take_step(Unused(), "ddp", context)
    take_step(Linear(), "ddp", context)
    take_step(Unused(requires_grad=False), "ddp", context)
    take_step(Unused(), "exact", context)
    for model in (Mean("replaced"), Mean("in place", persistent=False), Mean("counted"), Puts(), Draws(of_torch=False)):
        take_step(model, "ddp", context)
    take_step(nn.SyncBatchNorm(2), "ddp", context, sync_batch_norm=True)
    take_step(Table(sparse=False), "exact", context)
    take_step(Twice(use_reentrant=False), "exact", context)


def test_what_an_error_offers_works_on_several_workers(tmp_path: Path) -> None:
    assert run_group(2, tmp_path, check_remedies) == [None, None]
