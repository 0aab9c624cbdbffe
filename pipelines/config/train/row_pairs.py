"""Refuses divisions of a step into passes that part pairs of rows. Rows 2k and 2k + 1 of a pass are a pair."""

from pipelines.config.train.train import Train

_WHY = "but the task mixes rows with their neighbours, so that each pass needs an even number of rows"


def check_row_pairs(train: Train) -> None:
    """Raise ValueError unless every pass has an even number of rows, so that pairs are the same for any number of workers.

    A strategy that does not read rows in the order of shards divides them alike on any number of workers, and may have odd passes."""
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
