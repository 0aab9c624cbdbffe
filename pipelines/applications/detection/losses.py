"""The targets that a network learns from the boxes of a row, and the loss of the row.

As in CenterNet (Zhou et al. 2019), the middle of an object is a peak of the heat of its class, a Gaussian. As in TTFNet (Liu et al. 2020),
its width and height follow those of the box, and all cells near the middle learn the box, with the weight of a Gaussian. Each of these
figures is of one row, so that no other row changes its loss.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pipelines.applications.detection.predicted_boxes import LIMITS, NO_BOX

_REACH = 0.54
"""Part of a box whose cells learn it, along each axis, as in TTFNet."""
LEAST_DISTANCE = 0.01
"""In pixels: of an edge that the middle of its cell lies beyond."""


@dataclass(frozen=True)
class Targets:
    """Of each cell; boxes in pixels."""

    heat: Tensor
    """Shape (rows, classes, height, width), from 0 to 1."""
    boxes: Tensor
    """Edges of the box that a cell learns: left, top, right, bottom; shape (rows, 4, height, width)."""
    weights: Tensor
    """Shape (rows, height, width). Those of a box sum to 1, and are 0 where there is none."""
    counts: Tensor
    """Boxes of each row, shape (rows,)."""


def make_targets(boxes: Tensor, classes: int, size: tuple[int, int], stride: int) -> Targets:
    """Targets of a map of this size, from boxes of shape (rows, most, 5): class, left, top, right, bottom, where class −1 is none."""
    rows, (height, width) = len(boxes), size
    present = boxes[..., 0] != NO_BOX
    if rows and boxes.device.type == "cpu":  # boxes that no row has are no work; on a GPU, the host would wait for their number
        order = present.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, : max(int(present.sum(1).max()), 1)]
        boxes, present = boxes.gather(1, order.unsqueeze(-1).expand(-1, -1, 5)), present.gather(1, order)
    edges = boxes[..., 1:]
    along_x, inside_x = _along(edges[..., 0], edges[..., 2], width, stride)
    along_y, inside_y = _along(edges[..., 1], edges[..., 3], height, stride)
    bells = (along_y.unsqueeze(-1) * along_x.unsqueeze(-2) * present[..., None, None]).flatten(2)
    inside = (inside_y.unsqueeze(-1) & inside_x.unsqueeze(-2) & present[..., None, None]).flatten(2)
    bells = torch.where(inside, bells, 0)
    # The class beyond the last one takes what is padding.
    number = torch.where(present, boxes[..., 0], classes).long().unsqueeze(-1).expand_as(bells)
    heat = bells.new_zeros((rows, classes + 1, height * width)).scatter_reduce(1, number, bells, "amax")[:, :classes]
    areas = (edges[..., 2] - edges[..., 0]) * (edges[..., 3] - edges[..., 1])
    # Where boxes overlap, a cell learns the smaller one, which has fewer cells.
    smallest, owner = torch.where(inside, areas.unsqueeze(-1), torch.inf).min(1, keepdim=True)
    owned = inside & (torch.arange(bells.shape[1], device=bells.device)[:, None] == owner) & smallest.isfinite()
    weights = torch.where(owned, bells, 0)
    weights = weights / weights.sum(2, keepdim=True).clamp(min=1e-12)
    boxes_of_cells = edges.gather(1, owner.squeeze(1).unsqueeze(-1).expand(-1, -1, 4))
    return Targets(
        heat.reshape(rows, classes, height, width),
        boxes_of_cells.transpose(1, 2).reshape(rows, 4, height, width),
        weights.sum(1).reshape(rows, height, width),
        present.sum(1).to(bells.dtype),
    )


def _along(low: Tensor, high: Tensor, cells: int, stride: int) -> tuple[Tensor, Tensor]:
    """Along one axis, a bell around the middle cell of each box, and which cells learn it; both of shape (rows, most, cells)."""
    middle = ((low + high) / (2 * stride)).floor().clamp(0, cells - 1).unsqueeze(-1)
    reach = ((high - low) * (_REACH / (2 * stride))).floor().unsqueeze(-1)
    distance = torch.arange(cells, device=low.device, dtype=low.dtype) - middle
    deviation = (2 * reach + 1) / 6
    return (-(distance**2) / (2 * deviation**2)).exp(), distance.abs() <= reach


def decode_boxes(output: Tensor, stride: int) -> Tensor:
    """Edges of the box of each cell in pixels, shape (rows, 4, height, width), from logarithms of the distances from the cell's middle."""
    distances, middles = output.clamp(*LIMITS).exp(), _middles(output, stride)
    return torch.cat([middles - distances[:, :2], middles + distances[:, 2:]], 1)


def distances_to(boxes: Tensor, stride: int) -> Tensor:
    """The distances of each cell's middle to the edges of its box, in pixels, both of shape (rows, 4, height, width)."""
    middles = _middles(boxes, stride)
    return torch.cat([middles - boxes[:, :2], boxes[:, 2:] - middles], 1)


def _middles(maps: Tensor, stride: int) -> Tensor:
    """Places of the cells' middles, to the right and downwards, shape (2, height, width)."""
    y, x = ((torch.arange(cells, device=maps.device, dtype=maps.dtype) + 0.5) * stride for cells in maps.shape[2:])
    return torch.stack([x.expand(len(y), -1), y.unsqueeze(-1).expand(-1, len(x))])


def focal_losses(logits: Tensor, heat: Tensor) -> Tensor:
    """Focal loss of the heat of each row, shape (rows,), summed over cells: Law and Deng 2018, equation 1."""
    log_share, log_rest = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    share = logits.sigmoid()
    is_peak = heat == 1
    return -torch.where(is_peak, (1 - share) ** 2 * log_share, (1 - heat) ** 4 * share**2 * log_rest).flatten(1).sum(1)


def giou(first: Tensor, second: Tensor) -> Tensor:
    """Generalised intersection over union (Rezatofighi et al. 2019) of boxes of shape (rows, 4, …), which gives (rows, …)."""
    both = torch.minimum(first[:, 2:], second[:, 2:]) - torch.maximum(first[:, :2], second[:, :2])
    hull = torch.maximum(first[:, 2:], second[:, 2:]) - torch.minimum(first[:, :2], second[:, :2])
    overlap, hull_area = _area(both.clamp(min=0)), _area(hull).clamp(min=1e-6)
    union = (_area(first[:, 2:] - first[:, :2]) + _area(second[:, 2:] - second[:, :2]) - overlap).clamp(min=1e-6)
    return overlap / union - (hull_area - union) / hull_area


def _area(sides: Tensor) -> Tensor:
    """Of sides of shape (rows, 2, …). The host waits for a GPU in the backward pass of torch's product over an axis."""
    return sides[:, 0] * sides[:, 1]


def row_losses(output: Tensor, boxes: Tensor, stride: int, box_weight: float) -> Tensor:
    """The loss of each row, shape (rows,), from outputs of shape (rows, classes + 4, height, width), per box of the row."""
    _, maps, height, width = output.shape
    classes = maps - 4
    targets = make_targets(boxes, classes, (height, width), stride)
    counts = targets.counts.clamp(min=1)
    heat_loss = focal_losses(output[:, :classes], targets.heat) / counts
    box_losses = (1 - giou(decode_boxes(output[:, classes:], stride), targets.boxes)) * targets.weights
    return heat_loss + box_weight * box_losses.flatten(1).sum(1) / counts
