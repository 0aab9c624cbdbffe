"""Which divisions of a step into passes keep rows in pairs: two rows are one if the first is at an even place of its pass."""

from pipelines.config.train.train import Train

_WHY = "but the task mixes rows with their neighbours, so that each pass needs an even number of rows"


def check_row_pairs(train: Train) -> None:
    """Raise ValueError if the passes of a step could part other pairs on one number of workers than on another.

    Where strategies do not read rows in the order of shards, no number of workers divides them otherwise."""
    if not train.strategy.reads_in_order:
        return
    if train.remainder == "keep":
        raise ValueError(f"train.remainder is keep, {_WHY}, and an epoch's last step may have an odd one; set it to drop")
    least = 2 * train.grad_accum_steps * train.shards
    if train.global_batch % least:
        raise ValueError(
            f"train.global_batch is {train.global_batch} for {train.shards} shards with grad_accum_steps {train.grad_accum_steps}, {_WHY}; "
            f"set it to a multiple of {least}, such as {-(-train.global_batch // least) * least}"
        )
