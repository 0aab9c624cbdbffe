"""A dataset of Hugging Face on disk."""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from pipelines.data.sources.arrow_table import ArrowTable
from pipelines.data.sources.files.file_table import stats
from pipelines.data.sources.files.listing import File
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.formats.huggingface_dataset.folders import DatasetFile, find_shards
from pipelines.formats.huggingface_dataset.settings import HuggingfaceDatasetTable
from pipelines.formats.huggingface_dataset.shards import ShardReader


class HuggingfaceDataset(ArrowTable[HuggingfaceDatasetTable]):
    @cached_property
    def shards(self) -> list[DatasetFile]:
        return find_shards(self.settings.paths)

    @cached_property
    def files(self) -> Sequence[File]:
        return sorted((shard.file for shard in self.shards), key=lambda file: file.path)

    @property
    def reader(self) -> ShardReader:
        return ShardReader({shard.file.path: shard.split for shard in self.shards if shard.split}, self.settings.split_column)

    @property
    def _has_names(self) -> bool:
        """Whether a row has the name of its split."""
        return any(shard.split for shard in self.shards)

    def state(self) -> Sequence[SourceFile]:
        return stats([shard.file for shard in find_shards(self.settings.paths)])

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        """Checksums, with the split that makes a column."""
        splits = {shard.file.path: shard.split for shard in self.shards}
        yield from sorted(f"{file.checksum} {splits.get(file.path, '')}".strip() for file in files)
