"""Reads a dataset on disk, for `lockstep init`."""

from dataclasses import replace
from pathlib import Path

from pipelines.config.messages.words import name_list
from pipelines.formats.huggingface_dataset.folders import SPLITS, STATE, find_shards
from pipelines.formats.huggingface_dataset.shards import ShardReader
from pipelines.init.draft import Draft, Request
from pipelines.init.media.class_folders import folder_splits
from pipelines.init.tables.arrow_samples import table_of_batches
from pipelines.init.tables.table_draft import draft_sampled_table


def draft_dataset(request: Request) -> Draft | None:
    """Draft the config of a folder that `save_to_disk` wrote; None for other data."""
    folder = Path(request.data)
    if not folder.is_dir() or not any((folder / name).is_file() for name in (STATE, SPLITS)):
        return None
    shards = find_shards([request.data])
    names = list(dict.fromkeys(shard.split for shard in shards))
    splits = folder_splits(names) if len(names) > 1 else {}
    settings = {split: _settings(request.data, name) for name, split in splits.items()}
    if not {"train", "test"} <= settings.keys():
        settings, name = {}, names[0]
    else:
        name = next(name for name, split in splits.items() if split == "train")
    doubts = (f"the split {name} is read, and not {name_list(names[1:])}",) if len(names) > 1 and not settings else ()
    paths = [shard.file.path for shard in shards if shard.split == name]
    table = table_of_batches(_settings(request.data, name), paths, ShardReader({}, "split"), doubts)
    return draft_sampled_table(replace(table, splits=settings), request)


def _settings(folder: str, split: str) -> dict[str, str]:
    return {"format": "huggingface_dataset", "path": f"{folder.rstrip('/')}/{split}" if split else folder}


DRAFTERS = (draft_dataset,)
