"""Reads a dataset on disk, for `lockstep init`."""

from pathlib import Path

from pipelines.formats.huggingface_dataset.folders import SPLITS, STATE, find_shards
from pipelines.formats.huggingface_dataset.shards import ShardReader
from pipelines.init.draft import Draft, Request
from pipelines.init.tables.arrow_samples import table_of_batches
from pipelines.init.tables.table_draft import draft_sampled_table


def draft_dataset(request: Request) -> Draft | None:
    """Draft the config of a folder that `save_to_disk` wrote; None for other data."""
    folder = Path(request.data)
    if not folder.is_dir() or not any((folder / name).is_file() for name in (STATE, SPLITS)):
        return None
    shards = find_shards([request.data])
    splits = {shard.file.path: shard.split for shard in shards if shard.split}
    reader = ShardReader(splits, "split")
    table = table_of_batches({"format": "huggingface_dataset", "path": request.data}, [shard.file.path for shard in shards], reader)
    return draft_sampled_table(request, table)


DRAFTERS = (draft_dataset,)
