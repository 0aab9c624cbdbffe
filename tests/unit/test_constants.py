"""Tensors of a task on the devices where losses need them."""

import torch

from pipelines.tasks.data import Constant


def test_a_constant_is_copied_to_a_device_once_for_each_dtype() -> None:
    levels = torch.tensor([0.1, 0.5], dtype=torch.float64)
    constant, device = Constant(levels), torch.device("meta")
    copy = constant.to(device, torch.float32)
    assert (copy.device.type, copy.dtype) == ("meta", torch.float32)
    assert constant.to(device, torch.float32) is copy
    assert constant.to(device).dtype == torch.float64
    assert torch.equal(constant.to(torch.device("cpu")), levels)
