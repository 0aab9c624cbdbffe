"""Reads the records of Avro files, for `lockstep init`."""

from pipelines.formats.avro.records import RecordReader, check_fastavro
from pipelines.init.tables.arrow_samples import table_of_batches
from pipelines.init.tables.find_table import TableKind
from pipelines.init.tables.sample import SampledTable


def read_avro(paths: list[str], data: str, _: int | None) -> SampledTable:
    check_fastavro(data)
    return table_of_batches({"format": "avro", "path": data}, paths, RecordReader())


TABLE_KINDS = (TableKind("avro", (".avro",), read_avro),)
