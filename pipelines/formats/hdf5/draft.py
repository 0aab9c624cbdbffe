"""Reads the datasets of an HDF5 file, for `lockstep init`."""

from pipelines.config.messages.words import name_list
from pipelines.errors import SourceError
from pipelines.formats.hdf5.datasets import DatasetReader, check_h5py, table_groups
from pipelines.init.tables.arrow_samples import table_of_batches
from pipelines.init.tables.find_table import TableKind
from pipelines.init.tables.sample import SampledTable


def read_hdf5(paths: list[str], data: str, _: int | None) -> SampledTable:
    """The group whose datasets have the most rows."""
    check_h5py(data)
    groups = table_groups(paths[0])
    if not any(groups.values()):
        raise SourceError(f"{paths[0]} has no dataset with rows; give a file that has one")
    group = max(groups, key=lambda name: groups[name])
    other_groups = [name or "/" for name in groups if name != group]
    doubts = (f"the group {group or '/'} is read, and not {name_list(other_groups)}; set group to another",) if other_groups else ()
    settings = {"format": "hdf5", "path": data, **({"group": group} if group else {})}
    return table_of_batches(settings, paths, DatasetReader(group), doubts)


TABLE_KINDS = (TableKind("hdf5", (".h5", ".hdf5", ".hdf"), read_hdf5),)
