"""Reads the columns of versions, and of tables of raw rows, as samples that can be compared.

A version has only encoded values of its training split. Where an encoder has an inverse they are decoded, so that another fitted state does
not matter; classes, and values of a vocabulary, are compared by their names. All other encodings, such as hashes and bins, are compared as
they are, if both sides have the same state, or else in the raw rows that versions keep of validation and test. Of columns of several
numbers in a row, their mean is compared, and of indices how many a row has.

Missing values were imputed; their number is in the manifest, and so many rows of the imputed value are left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features import restore_encoder
from pipelines.data.features.base import Encoder, ListEncoder, Packer
from pipelines.data.features.raw import categories, is_category, is_number, missing_values, numbers
from pipelines.data.versions.manifest import SPLITS, FittedEncoder, Manifest
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.raw_inputs import read_raw_rows
from pipelines.data.versions.schema import FREE, TensorColumn, schema_from_text, to_numpy
from pipelines.data.versions.versions import Version, read_stored_columns
from pipelines.diff.drift import ColumnSample
from pipelines.errors import DatasetError

TRAIN = SPLITS[0]
MOST_ROWS = 20_000_000
"""Rows of a version that are read; of more, row groups at equal distances. Rows lie in parts by a hash, so these are a random sample."""
MOST_RAW_ROWS = 100_000
"""Raw rows of a split that are read."""
_BATCH_BYTES = 256 * 2**20
"""Decoded bytes of columns that are read at once."""
_UNNAMED_SHOWN = 5


@dataclass(frozen=True)
class ComparedColumn:
    """A column that both sides have, with the encoder of each."""

    label: str
    """The raw column, or the tensor column where that is encoded from several."""
    name: str
    """Of the tensor column."""
    before: FittedEncoder
    now: FittedEncoder

    @property
    def is_encoded_alike(self) -> bool:
        return self.before.feature == self.now.feature and self.before.state == self.now.state

    @property
    def missing_in(self) -> str:
        """The raw column whose missing values are counted; empty if there are several."""
        return self.before.inputs[0] if len(self.before.inputs) == 1 else ""

    def refusal(self) -> str:
        """Why values of both sides cannot be compared; empty if they can."""
        encoders = restore_encoder(self.before), restore_encoder(self.now)
        forms = [form_of_values(encoder, fitted.column) for encoder, fitted in zip(encoders, (self.before, self.now), strict=True)]
        if forms[0] != forms[1]:
            return f"encoded by {self.before.feature['encoder']} before and by {self.now.feature['encoder']} now"
        if forms[0] == "codes" and not self.is_encoded_alike:
            return f"{self.before.feature['encoder']} cannot be decoded, and its settings or its state differ"
        return ""


def form_of_values(encoder: Encoder, column: TensorColumn) -> str:
    """`numbers` that can be decoded, `names` of categories, or `codes`, which mean nothing under another state."""
    if column.shape or isinstance(encoder, Packer):
        return "codes"
    if column.cardinality is None:
        return "numbers"
    return "names" if isinstance(encoder, ListEncoder) or encoder.classes else "codes"


def columns_to_compare(before: Mapping[str, FittedEncoder], now: Mapping[str, FittedEncoder]) -> list[ComparedColumn]:
    """The columns of both sides, each raw column once: where several encoders read it, by the one that says most of its values."""
    columns: dict[str, tuple[int, ComparedColumn]] = {}
    for name, fitted in before.items():
        if name not in now or now[name].inputs != fitted.inputs:
            continue
        label = fitted.inputs[0] if len(fitted.inputs) == 1 else name
        compared = ComparedColumn(label, name, fitted, now[name])
        rank = ("numbers", "names", "codes").index(form_of_values(restore_encoder(fitted), fitted.column)) + 3 * bool(compared.refusal())
        if label not in columns or rank < columns[label][0]:
            columns[label] = rank, compared
    return [compared for _, compared in columns.values()]


def version_samples(version: Version, columns: Mapping[str, FittedEncoder]) -> Iterator[tuple[str, ColumnSample]]:
    """The sample of each tensor column of the training split, by name. Raises CorruptError as `read_stored_columns` does."""
    groups = spread_groups(version.split_row_groups(TRAIN))
    rows = sum(group.rows for group in groups)
    for names in _batches(columns, rows):
        tensor_columns = [columns[name].column for name in names]
        folds = version.manifest.folds
        deciding = [version.manifest.encoders[name].column for name in folds.rows] if folds else []
        arrays = read_stored_columns(version.filesystem, version.root, groups, [*tensor_columns, *deciding])
        selected = [group.select(values) for group, values in zip(groups, arrays, strict=True)]
        for name in names:
            parts = [values[name] for values in selected]
            empty = np.empty((0, *columns[name].column.shape), columns[name].column.dtype)
            yield name, _version_sample(version, columns[name], np.concatenate([empty, *parts]))


def spread_groups(groups: Sequence[RowGroup], most_rows: int = MOST_ROWS) -> Sequence[RowGroup]:
    """Row groups at equal distances with about `most_rows`; all if they have no more."""
    rows = sum(group.rows for group in groups)
    if rows <= most_rows:
        return groups
    count = max(1, len(groups) * most_rows // rows)
    return [groups[place * len(groups) // count] for place in range(count)]


def raw_samples(version: Version, columns: Iterable[str]) -> dict[str, ColumnSample]:
    """Samples of raw columns of numbers or categories in the other splits, whose raw rows are kept; none if they are not."""
    tables = []
    for split in SPLITS[1:]:
        with suppress(OSError, DatasetError, pa.ArrowException):
            rows = range(min(version.rows(split), MOST_RAW_ROWS))
            tables.append(read_raw_rows(version.filesystem, version.root, version.parts(split), rows))
    present = [table for table in tables if table is not None]
    if not present:
        return {}
    table = pa.concat_tables(present, promote_options="permissive")
    return {name: _raw_sample(table.column(name).combine_chunks()) for name in columns if name in table.column_names}


def _raw_sample(values: pa.Array) -> ColumnSample:
    missing = missing_values(values)
    if is_number(values.type) and not pa.types.is_boolean(values.type):
        raw_numbers = numbers(values)
        return ColumnSample(len(values), missing, numbers=raw_numbers[np.isfinite(raw_numbers)])
    counts = pc.value_counts(categories(values).drop_null())
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    return ColumnSample(len(values), missing, categories=dict(pairs))


def _batches(columns: Mapping[str, FittedEncoder], rows: int) -> Iterator[list[str]]:
    names, size = list[str](), 0
    for name, fitted in columns.items():
        if names and size + rows * fitted.column.row_bytes > _BATCH_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += rows * fitted.column.row_bytes
    if names:
        yield names


def _version_sample(version: Version, fitted: FittedEncoder, values: np.ndarray) -> ColumnSample:
    manifest = version.manifest
    profile = manifest.profile.get(fitted.inputs[0], {}) if len(fitted.inputs) == 1 else {}
    missing = None
    if fitted.column.missing and not fitted.column.shape:
        missing = int(np.isnan(values).sum())
    elif profile.get("rows") and not other_rows(version):
        missing = round(profile["nulls"] * len(values) / profile["rows"])
    sample = sample_encoded_values(fitted, values, missing, raw_type(manifest, fitted))
    if missing is not None and profile.get("rows") and not fitted.column.missing:  # the sample may be of fewer rows
        sample = replace(sample, rows=profile["rows"], missing=profile["nulls"])
    if sample.unnamed:
        frequent = profile.get("most_frequent", {})
        names = [name for name in frequent if sample.categories is not None and name not in sample.categories]
        sample = replace(sample, names_of_unnamed=tuple(map(str, names[:_UNNAMED_SHOWN])))
    return sample


def other_rows(version: Version) -> str:
    """Why the statistics in a manifest are of other rows than the version has; empty if they are not."""
    if version.manifest.parent:
        return "rows came with an increment"
    if any(erasure.rows.get(TRAIN) for erasure in version.manifest.erasures):
        return "rows were erased"
    return ""


def hidden_missing(version: Version, column: ComparedColumn) -> str:
    """Why nothing says how many missing values of a column have become values; empty if something does, or if none have."""
    reason = other_rows(version)
    if not reason or column.before.column.missing:
        return ""
    encoders = (restore_encoder(fitted) for fitted in (column.before, column.now))
    imputes = any(encode_null(encoder, raw_type(version.manifest, column.now)) is not None for encoder in encoders)
    return f"{reason}, and its missing values were imputed and are not counted" if imputes else ""


def raw_type(manifest: Manifest, fitted: FittedEncoder) -> pa.DataType | None:
    """The type of the only column that an encoder reads; None if there are several, or it is not known."""
    if not manifest.raw_schema or len(fitted.inputs) != 1:
        return None
    schema = schema_from_text(manifest.raw_schema)
    return schema.field(fitted.inputs[0]).type if fitted.inputs[0] in schema.names else None


def sample_encoded_values(fitted: FittedEncoder, values: np.ndarray, missing: int | None, kind: pa.DataType | None) -> ColumnSample:
    """The sample of encoded values, shape (rows, …), of which `missing` were imputed, or are a category of their own. `kind` is the type
    of the raw column."""
    encoder, column, rows = restore_encoder(fitted), fitted.column, len(values)
    if column.shape:
        return ColumnSample(rows, missing, numbers=_row_numbers(values, column))
    fill = encode_null(encoder, kind) if missing else None
    if column.cardinality is None:
        if fill is not None and missing:
            values = np.delete(values, np.flatnonzero(values == fill)[:missing])
        numbers = np.asarray(encoder.decode(values[np.isfinite(values)]), np.float64)
        return ColumnSample(rows, missing, numbers=numbers[np.isfinite(numbers)])
    counts = np.bincount(values.astype(np.int64), minlength=column.cardinality)
    if fill is not None and missing:
        counts[int(fill)] -= min(missing, counts[int(fill)])
    first = encoder.first_number if isinstance(encoder, ListEncoder) else 0
    names = encoder.names(len(counts))
    named = {name: int(count) for name, count in list(zip(names, counts, strict=True))[first:] if count}
    return ColumnSample(rows, missing, categories=named, unnamed=int(counts[:first].sum()))


def _row_numbers(values: np.ndarray, column: TensorColumn) -> np.ndarray:
    """A number for each row: of indices how many it has, of other values their mean."""
    flat = values.reshape(len(values), -1)
    if column.cardinality is not None:
        indices = values[..., 0].reshape(len(values), -1) if column.counted else flat
        return (indices != FREE).sum(axis=1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        is_number = np.isfinite(flat)
        sums = np.where(is_number, flat, 0).sum(axis=1, dtype=np.float64)
    return sums / np.maximum(is_number.sum(axis=1), 1)


def encode_null(encoder: Encoder, kind: pa.DataType | None) -> float | None:
    """Encode a missing value; None if it is refused, kept as NaN, or not known."""
    if kind is None:
        return None
    encoded = encoder.encode(pa.nulls(1, kind))
    value = encoded[0].as_py()
    return None if value is None or value != value else float(value)


@dataclass(frozen=True)
class TableSamples:
    """The samples of a table of raw rows, as the encoders of a version see it."""

    samples: Mapping[str, ColumnSample]
    """By tensor column."""
    refused: Mapping[str, int]
    """Values that the encoder of a tensor column refuses, by its name."""


def table_samples(table: pa.Table, columns: Mapping[str, FittedEncoder]) -> TableSamples:
    """Encode the columns of a table of raw rows as the version that the encoders are of. The table has all their inputs."""
    samples, refused = {}, {}
    for name, fitted in columns.items():
        inputs = [table.column(column).combine_chunks() for column in fitted.inputs]
        output = restore_encoder(fitted).encode(*inputs)
        missing = missing_values(inputs[0]) if len(inputs) == 1 else None
        if count := output.null_count - (missing or 0) * bool(output.null_count and _refuses_missing(fitted, inputs)):
            refused[name] = count
        accepted = output.drop_null()
        values = to_numpy(fitted.column, accepted)
        imputed = missing if missing is not None and not fitted.column.missing and not _refuses_missing(fitted, inputs) else 0
        sample = sample_encoded_values(fitted, values, imputed, inputs[0].type if len(inputs) == 1 else None)
        sample = replace(sample, rows=len(table), missing=missing)
        samples[name] = _name_unnamed(sample, inputs[0]) if sample.unnamed and is_category(inputs[0].type) else sample
    return TableSamples(samples, refused)


def _refuses_missing(fitted: FittedEncoder, inputs: Sequence[pa.Array]) -> bool:
    return len(inputs) == 1 and restore_encoder(fitted).encode(pa.nulls(1, inputs[0].type)).null_count == 1


def _name_unnamed(sample: ColumnSample, values: pa.Array) -> ColumnSample:
    """The sample with the most frequent ones of its values that have no name in the vocabulary."""
    counts = pc.value_counts(categories(values).drop_null())
    names = set(sample.categories or {})
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    unnamed = sorted(((name, rows) for name, rows in pairs if name not in names), key=lambda pair: (-pair[1], pair[0]))
    return replace(sample, names_of_unnamed=tuple(name for name, _ in unnamed[:_UNNAMED_SHOWN]))
