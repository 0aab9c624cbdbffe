"""A row that is not a number: the training ends in the documented error, which names the step and the worker."""

import random
import re
from pathlib import Path

from chaos.processes import Nodes
from chaos.training import BATCH, ROWS, Outcome, Scene
from pipelines.errors import NonFiniteError


def poisoned(folder: Path, seed: int, strategy: str, nodes: Nodes) -> Outcome:
    """Train on a version with a NaN in a random row."""
    row = random.Random(f"{seed}/{strategy}").randrange(ROWS // BATCH * BATCH)
    scene = Scene(folder, {"strategy": strategy, "workers": 2, "checkpoint": {"every_steps": 1}}, 3, nodes, "", 0.0, nan_row=row)
    code = scene.finish()
    made = [(step.step, rank) for attempt in scene.attempts() for rank, steps in attempt.made.items() for step in steps if row in step.rows]
    told = re.search(r"error: step (\d+): the loss is nan, from worker (\d)", scene.job.tail())
    right = code == NonFiniteError.exit_code and told is not None and made == [(int(told[1]), int(told[2]))]
    kept = scene.checkpoints() or made[0][0] == 1
    return Outcome("row that is not a number", bool(right and kept), note=scene.job.tail(1))
