"""The manifest of a version, with the row counts of all stages, and the digest of its content."""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, AwareDatetime, Field, PlainSerializer, ValidationError

from pipelines.config.messages.words import name_list, show_count
from pipelines.config.section import Section
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.row_groups import collect_row_groups, text_scalar
from pipelines.data.versions.rows_digest import rows_digest
from pipelines.data.versions.schema import TensorColumn, schema_from_text, schema_to_text
from pipelines.data.versions.storage import seal, unseal
from pipelines.errors import CorruptError, DatasetError, OutdatedError
from pipelines.runtime.notebook_html import html_summary

FORMAT = 2
SPLITS = ("train", "validation", "test")
DAMAGED = "the version is damaged: remove its folder, and run jobs/etl.py again"
RESTORE = "restore the file, or remove the version's folder and run jobs/etl.py again"
"""Of a damaged part: ETL alone would find the version up to date."""


class TableBalance(Section):
    parsed: int
    """Records in the table's files."""
    handed_on: int
    """Valid records, which the query reads."""
    refused: int
    """The others, in the quarantine."""


class Balance(Section):
    """Three stages count rows: parsing, fitting on the query's rows, and writing."""

    tables: dict[str, TableBalance] = {}
    query: int
    """Rows that the query gave."""
    taken: int
    """Rows that every encoder accepted."""
    refused: int
    """The others, in the quarantine."""
    made: int
    """Rows expected in the parts: the same number, or the number of windows that documents are cut into."""
    superseded: int = 0
    """Rows left out since a newer one has their key."""
    inherited: int = 0
    """Rows that a version shares with its parent; the other counts are of the rows that came since."""

    @property
    def parsed(self) -> int:
        """Records of all tables, or the query's rows if it reads no table."""
        return sum(table.parsed for table in self.tables.values()) or self.query


def check_balance(balance: Balance, in_parts: int, in_quarantine: int) -> None:
    """Raises DatasetError, with the numbers, if a row is lost or comes twice. `in_parts` and `in_quarantine` are the rows
    of the files that a version names."""
    faults = [
        f"{table.parsed:,} records of {name} were parsed, {table.handed_on:,} handed on and {table.refused:,} refused"
        for name, table in balance.tables.items()
        if table.parsed != table.handed_on + table.refused
    ]
    if balance.query != balance.taken + balance.refused + balance.superseded:
        superseded = f", and {balance.superseded:,} superseded" if balance.superseded else ""
        faults.append(
            f"the query gave {balance.query:,} rows, of which {balance.taken:,} were taken and {balance.refused:,} refused{superseded}"
        )
    if balance.made + balance.inherited != in_parts:
        shared = f" with {balance.inherited:,} of the parent" if balance.inherited else ""
        faults.append(f"{balance.taken:,} rows taken make {balance.made:,} rows{shared}, and the parts hold {in_parts:,}")
    refused = balance.refused + sum(table.refused for table in balance.tables.values())
    if refused != in_quarantine:
        faults.append(f"{refused:,} rows were refused, and the quarantine holds {in_quarantine:,}")
    if faults:
        raise DatasetError(
            f"rows do not balance, so that nothing is committed: {'; '.join(faults)}; run again, and if it happens again, "
            "look for what in source.query or source.expect gives other rows each time it is computed"
        )


def _is_schema(text: str) -> str:
    try:
        schema_from_text(text)
    except (ValueError, OSError) as error:
        raise ValueError("it holds no Arrow schema") from error
    return text


SchemaText = Annotated[str, AfterValidator(_is_schema)]
"""A setting that holds an Arrow schema as text."""


class SourceSummary(Section):
    """Summary of a raw table's files as they were read; sources-<attempt>.parquet lists them."""

    files: int
    bytes: int
    digest: str
    """Hex SHA-256 over the path, size and checksum of each."""


class FittedEncoder(Section):
    """An encoder's settings with its fitted state: sufficient to encode raw rows anywhere."""

    feature: dict[str, Any]
    """Its settings, a class of `pipelines.config.features`."""
    inputs: tuple[str, ...]
    """The query's columns it reads."""
    state: dict[str, Any]
    column: Annotated[TensorColumn, PlainSerializer(TensorColumn.to_values)]
    """The tensor column that it produces."""
    package: str = ""
    """The package of the slice, or of somebody else, that the encoder is of; empty for one of the core, or named by its import path."""
    class_counts: tuple[int, ...] = ()
    """How often each class stands in the encoded values of the training split, as in the pixels of masks; else empty. It follows
    from the rows, so the digest of the content is without it."""


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class ServedQuery(Section):
    """A row-by-row query for the served model, in DuckDB's SQL over a table `raw`."""

    table: str
    """The raw table whose rows it takes."""
    inputs: SchemaText
    """The columns that it reads, encoded by `schema.schema_to_text`."""
    columns: dict[str, str]
    """An expression for each column of the query that features read."""
    conditions: dict[str, str]
    """Conditions that a row must satisfy, by the reason for refusing it; without those on columns that only the target uses."""

    @property
    def input_schema(self) -> pa.Schema:
        return schema_from_text(self.inputs)

    def select(self, names: Collection[str]) -> Self:
        """The query with only the columns of these names. It takes what those read, and what the conditions read, which all stay."""
        columns = {name: expression for name, expression in self.columns.items() if name in names}
        expressions = [*columns.values(), *self.conditions.values()]
        read = [field for field in self.input_schema if any(quote_identifier(field.name) in expression for expression in expressions)]
        return self.model_copy(update={"columns": columns, "inputs": schema_to_text(pa.schema(read))})


class SplitSummary(Section):
    rows: int
    parts: int
    row_groups: int
    bytes: int
    """Compressed size of the columns."""
    decoded_bytes: int
    rows_digest: str = ""
    """Digest of the set of rows, whatever their order; see `data.versions.rows_digest`. Empty in a version of an earlier ETL."""


class Shares(Section):
    """The shares of the splits among the rows that were dealt. By column, they are of the rows that were marked `train`."""

    asked: dict[str, float] = {}
    """Those of the config; empty if it asks for none."""
    came: dict[str, float] = {}
    beyond_chance: float = 0.0
    """The largest difference, as a share of the rows, without what chance explains."""
    said: str = ""
    """What differs, why, and what helps, in one line; empty if nothing is worth a word."""


class Folds(Section):
    """The folds of a version for cross-validation, all of whose rows are in the split `train`."""

    rows: dict[str, tuple[int, ...]]
    """Rows of each fold, by the column that has the fold of each row, from 1; one column for each repeat."""
    by_time: bool = False
    """Whether a fold's rows are later than those of the fold before it. Then the first two folds test no model."""
    selected: int | None = None
    """The training, of 1 to `trainings`, whose splits are those of the manifest; None if no fold is selected."""

    @property
    def trainings(self) -> int:
        """Number of models of a cross-validation: one for each fold of each repeat that tests one."""
        return sum(map(len, self.rows.values())) - (2 if self.by_time else 0)


class Erasure(Section):
    """Rows that were erased from a version by their keys."""

    certificate: str
    """Name of the certificate, which is that of the attempt that wrote the parts again: erasures/<certificate>.json beside the version."""
    digest_before: str
    """Digest of the content with those rows."""
    attempt_before: str
    """The attempt before, of which the version keeps the parts that lost no row."""
    rows: dict[str, int]
    """Rows that were erased, by split."""


class Manifest(Section):
    format: int = FORMAT
    name: str
    """Of the pipeline."""
    version: str
    """First 12 hex digits of the digest of the inputs."""
    digest: str
    """Hex SHA-256 of the content; see `content_digest`."""
    attempt: str
    """The attempt, which names the folder of the parts: data-<attempt>/."""
    row_groups_checksum: str = ""
    """`sha256:…` of row_groups-<attempt>.parquet; known when the file is written."""
    sources_checksum: str = ""
    """The same for sources-<attempt>.parquet; empty if there are no raw tables."""
    created: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    parent: str = ""
    """The version that this one adds rows to, and whose parts it shares; empty if ETL read all rows."""
    parent_digest: str = ""
    """Digest of the parent's content."""
    erasures: tuple[Erasure, ...] = ()
    """Those of this version, the latest last. Counts of ETL, such as `balance` and `quarantined`, are from before them."""
    encoders: dict[str, FittedEncoder]
    splits: dict[str, SplitSummary]

    # Fields that only ETL sets.
    identity: dict[str, Any] = {}
    """The part of the config that decides the rows."""
    sources: dict[str, SourceSummary] = {}
    """Summaries of the raw tables, by name."""
    raw_schema: SchemaText | Literal[""] = ""
    """The query's columns, encoded by `schema.schema_to_text`; a served model takes them without the target."""
    served_query: ServedQuery | None = None
    """The query as a served model applies it to raw rows; None if the model takes the query's columns."""
    rows_parsed: int = 0
    quarantined: dict[str, int] = {}
    """Refused rows by reason."""
    balance: Balance | None = None
    """Row counts of all stages, which `commit` has compared."""
    shares: Shares = Shares()
    """Compared with those that `dataset.split` asks for."""
    folds: Folds | None = None
    """Those of cross-validation; None for a version that is split otherwise."""
    profile: dict[str, Any] = {}
    """Statistics of the training split, by raw column."""
    auto_reasons: dict[str, str] = {}
    """Why `auto` chose the encoder of a feature, where it is not that of any such column."""
    auto_left_out: dict[str, str] = {}
    """Why `auto` made no feature of a column, by the columns of the query."""
    warnings: tuple[str, ...] = ()
    """Parts of the query or the sources that may make another run of the same config differ."""
    notes: tuple[str, ...] = ()
    """What else a reader of the rows should know of the sources, such as keys of JSON that no schema names."""
    versions: dict[str, str] = {}
    """Versions of the software that wrote it."""
    run_id: str = ""
    """MLflow run of the ETL."""

    def _repr_html_(self) -> str:
        """The table of splits, columns and refused rows that a notebook shows."""
        rows = {split: show_count(summary.rows, "row") for split, summary in self.splits.items()}
        refused = {f"refused: {reason}": show_count(count, "row") for reason, count in self.quarantined.items()}
        columns = name_list([f"{name} ({fitted.feature.get('encoder', '')})" for name, fitted in self.encoders.items()])
        lines = (f"digest {self.digest[:12]}", *self.warnings, *self.notes)
        return html_summary(f"{self.name} {self.version}", {**rows, **refused, "columns": columns}, lines)

    @property
    def columns(self) -> tuple[TensorColumn, ...]:
        return tensor_columns(self.encoders)

    @property
    def attempts(self) -> frozenset[str]:
        """The attempts that have files of the version: the committed one, and those before erasures."""
        return frozenset({self.attempt, *(erasure.attempt_before for erasure in self.erasures)})

    @property
    def digests(self) -> frozenset[str]:
        """All digests that the version has had."""
        return frozenset({self.digest, *(erasure.digest_before for erasure in self.erasures)})

    @property
    def target(self) -> TensorColumn:
        return next(column for column in self.columns if column.role == "target")

    def to_json(self) -> bytes:
        return seal(self.model_dump(mode="json"))


def parse_manifest(text: bytes, path: str) -> Manifest:
    """Raises CorruptError if a byte was altered, OutdatedError or DatasetError if the format is older or newer."""
    try:
        values, is_sealed = unseal(text)
    except ValueError as error:
        raise CorruptError(f"{path} is not a manifest as it was written: {error}; {DAMAGED}") from error
    match values.get("format"):
        case int(older) if 0 < older < FORMAT:
            raise OutdatedError(f"{path} has format {older}; this version of Lockstep reads format {FORMAT}: run jobs/etl.py again")
        case int(newer) if newer > FORMAT:
            raise DatasetError(f"{path} has format {newer}; this version of Lockstep reads format {FORMAT}: upgrade Lockstep")
        case int(number) if number == FORMAT and is_sealed:
            pass
        case _:
            raise CorruptError(f"{path} is not a manifest as it was written: it has no format, or no checksum; {DAMAGED}")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        raise CorruptError(f"{path} is not a manifest: {'.'.join(map(str, fault['loc']))}: {fault['msg']}; {DAMAGED}") from error


def tensor_columns(encoders: Mapping[str, FittedEncoder]) -> tuple[TensorColumn, ...]:
    return tuple(fitted.column for fitted in encoders.values())


def split_summaries(
    encoders: dict[str, FittedEncoder], row_groups: Iterable[RowGroup], row_sums: Mapping[str, int] | None = None
) -> dict[str, SplitSummary]:
    """A summary of every split, including those without rows. `row_sums` are the sums of the rows' hashes, by split."""
    row_bytes = sum(column.row_bytes for column in tensor_columns(encoders))
    summaries, all_groups = {}, collect_row_groups(row_groups)
    for split in SPLITS:
        groups = all_groups.select_split(split)
        rows = int(groups.rows.sum())
        summaries[split] = SplitSummary(
            rows=rows,
            parts=len(np.unique(groups.part)),
            row_groups=len(groups),
            bytes=groups.bytes,
            decoded_bytes=rows * row_bytes,
            rows_digest="" if row_sums is None else rows_digest(row_sums.get(split, 0)),
        )
    return summaries


def content_digest(encoders: dict[str, FittedEncoder], row_groups: Iterable[RowGroup]) -> str:
    """Hex SHA-256 of everything that a model can see: columns, encoders' states, and every row group's rows and digest. Row groups count in
    the order of splits, then (part, index). File names, compression and creation do not count."""
    digest = sha256()
    for name, fitted in encoders.items():
        content = [name, fitted.column.to_values(), list(fitted.inputs), fitted.feature, fitted.state]
        digest.update(json.dumps(content, sort_keys=True).encode())
    groups = collect_row_groups(row_groups)
    assert groups.splits <= {*SPLITS}, "row groups of another split would not count"
    for split in SPLITS:
        for batch in groups.select_split(split).batches():
            digest.update(_digest_lines(batch))
    return digest.hexdigest()


def _digest_lines(batch: pa.RecordBatch) -> memoryview:
    """A line for each row group: split, part, index, rows and digest. A million of them take 0.3 s, and as Python's texts 1.5 s."""
    numbers = [batch[name].cast(pa.string()) for name in ("part", "index", "rows")]
    ends = pc.binary_join_element_wise(batch["digest"], text_scalar(""), text_scalar("\n"))
    lines = pc.binary_join_element_wise(batch["split"], *numbers, ends, text_scalar(" "))
    _, offsets, content = lines.buffers()
    return memoryview(content)[: int(np.frombuffer(offsets, np.int32)[len(lines)])]
