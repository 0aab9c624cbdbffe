"""The module of an ensemble: the networks of its members, and the average of their outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.tasks.data import Batch
from pipelines.tasks.targets.base import Target
from pipelines.tasks.targets.classes import BinaryTarget


class EnsembleNetwork(nn.Module):
    """Averages the outputs of networks. A member that is not used needs no weights, and is not computed."""

    uses: Tensor
    """How often each member counts: int64 of shape (members,)."""
    shares: Tensor
    """Share in the average of each member that is used: float32, sums to 1."""
    calibration: Tensor | None
    """For two classes, the scale and shift of each member's logits, as its run has fitted them: float32 of shape (members, 2)."""

    def __init__(self, members: Sequence[nn.Module], target: Target) -> None:
        super().__init__()
        count = len(members)
        self.members = nn.ModuleList(members)
        self._average, self._used = target.average, [*range(count)]
        self.register_buffer("uses", torch.ones(count, dtype=torch.int64))
        self.register_buffer("shares", torch.full((count,), 1 / count), persistent=False)
        has_logit = isinstance(target, BinaryTarget)
        self.register_buffer("calibration", torch.tensor([[1.0, 0.0]]).repeat(count, 1) if has_logit else None)

    def choose(self, uses: Sequence[int]) -> None:
        """Have each member count so often in the average."""
        self.uses.copy_(torch.tensor(uses))
        self._used = [number for number, count in enumerate(uses) if count]
        self.shares = torch.tensor([uses[number] / sum(uses) for number in self._used], device=self.uses.device)

    def forward(self, batch: Batch) -> Tensor:
        """Output of shape (rows, outputs)."""
        return self._average(self._outputs(batch, self._used), self.shares)

    def member_outputs(self, batch: Batch) -> Tensor:
        """float32 of shape (rows, members, outputs), also of members that are not used."""
        return self._outputs(batch, range(len(self.members)))

    def _outputs(self, batch: Batch, numbers: Sequence[int]) -> Tensor:
        return torch.stack([self._calibrate(number, self.members[number](batch).float()) for number in numbers], 1)

    def _calibrate(self, number: int, output: Tensor) -> Tensor:
        return output if self.calibration is None else output * self.calibration[number, 0] + self.calibration[number, 1]

    def weights(self) -> dict[str, Tensor]:
        """Weights by name on the CPU, without those of members that are not used."""
        unused = tuple(f"members.{number}." for number in range(len(self.members)) if number not in self._used)
        return {name: values.cpu().clone() for name, values in self.state_dict().items() if not name.startswith(unused)}

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        """Removes the networks that have no weights because they are not used."""
        uses = state_dict.get(f"{prefix}uses", self.uses).tolist()
        for number in [number for number, count in enumerate(uses) if not count][: len(self.members)]:
            if not any(name.startswith(f"{prefix}members.{number}.") for name in state_dict):
                self.members[number] = nn.Identity()
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self.choose(self.uses.tolist())
