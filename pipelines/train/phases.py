"""Names of the phases of a step. Loads no torch, so that monitors outside of a training can name them too."""

DATA, FORWARD, BACKWARD, EXCHANGE, OPTIMIZER, CHECKPOINT = "data", "forward", "backward", "exchange", "optimizer", "checkpoint"
PHASES = (DATA, FORWARD, BACKWARD, EXCHANGE, OPTIMIZER, CHECKPOINT)
OTHER = "other"
"""Starting, evaluating, logging: all that belongs to no step."""
