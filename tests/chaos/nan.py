"""A row that is not a number: the training ends in the documented error, which names the step and the worker."""

import random
import re
from pathlib import Path

from chaos.processes import Nodes
from chaos.training import BATCH, ROWS, Outcome, Scene
from pipelines.errors import NonFiniteError


def train_with_nan(folder: Path, seed: int, strategy: str, nodes: Nodes) -> Outcome:
    """Train on a version with a NaN in a random row."""
    row = random.Random(f"{seed}/{strategy}").randrange(ROWS // BATCH * BATCH)
    scene = Scene(folder, {"strategy": strategy, "workers": 2, "checkpoint": {"every_steps": 1}}, 3, nodes, "", 0.0, nan_row=row)
    code = scene.finish()
    worker_steps = [steps for attempt in scene.attempts() for steps in attempt.steps.items()]
    places = [(record.step, rank) for rank, records in worker_steps for record in records if row in record.rows]
    message = re.search(r"error: step (\d+): the loss is nan, from worker (\d)", scene.job.tail())
    is_right = code == NonFiniteError.exit_code and message is not None and places == [(int(message[1]), int(message[2]))]
    has_checkpoint = scene.checkpoints() or places[0][0] == 1
    return Outcome("row that is not a number", bool(is_right and has_checkpoint), note=scene.job.tail(1))
