"""The encoders of `auto`, by the rules of `lockstep init`. The choice is a pure function of the rows, whatever their files and partitions.

1. `choose` decides by facts of a sample of rows, those of smallest hash, which encoders a column has.
2. `auto_exact.settle` corrects that by exact statistics of all rows: what is constant, what has NULL, how many values there are.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pipelines.config.dataset.dataset import ByTime, ByTimeFold, Dataset
from pipelines.config.features import encoder_settings
from pipelines.config.features.base import AutoSettings, EncoderSettings
from pipelines.config.features.numbers import NumericSettings, QuantileSettings
from pipelines.config.features.targets import CountSettings, VectorSettings
from pipelines.data.features.auto.column_facts import (
    COPY,
    IDENTIFIER,
    ROW_NUMBER,
    ColumnFacts,
    convert_column,
    is_copy,
    is_identifier,
    is_member,
    is_row_number,
    unusable_reason,
)
from pipelines.data.features.auto.encoder_choice import (
    Encoding,
    NumberStyle,
    encodings,
    member,
    number_style,
    place_encoding,
)

AUTO_VERSION = 3
"""Part of the identity of a dataset version that has `auto`. Increase it when a change chooses other encoders for equal rows."""
_MOST_REASONS = 3


@dataclass(frozen=True)
class Choice:
    """A dataset without `auto`, and what was chosen for it."""

    dataset: Dataset
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns of each chosen feature, by the feature's name."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """By feature; a feature without one is as any of its kind."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reasons by column."""
    named: frozenset[str] = frozenset()
    """Features that the config names, which are not left out."""
    categories: frozenset[str] = frozenset()
    """Features of texts whose encoder the number of distinct ones decides."""
    different: frozenset[str] = frozenset()
    """Columns of whole numbers, a different one in each row of the sample."""

    @property
    def columns_read(self) -> frozenset[str]:
        return frozenset(column for columns in self.columns.values() for column in columns)


def auto_columns(dataset: Dataset) -> dict[str, str]:
    """The column of each feature that is `auto`, by the feature's name."""
    return {name: settings.inputs(name)[0] for name, settings in dataset.features.items() if isinstance(settings, AutoSettings)}


def target_columns(dataset: Dataset) -> tuple[str, ...]:
    (name, settings), *_ = dataset.target.items()
    return tuple(settings.inputs(name))


def choose(dataset: Dataset, named: Collection[str], sample: pa.Table) -> Choice:
    """Choose encoders by a sample of the training split, which has the columns of `auto` and of the target.

    `named` are the features that the config names, which are not left out."""
    autos = auto_columns(dataset)
    facts = {name: ColumnFacts(convert_column(column, sample.column(column))) for name, column in autos.items()}
    targets = [ColumnFacts(convert_column("", sample.column(column))) for column in target_columns(dataset)]
    is_number = _is_number(next(iter(dataset.target.values())))
    left_out = {
        facts[name].name: reason for name in autos if (reason := _reason_against(facts[name], targets, is_number)) and name not in named
    }
    used = {name: column for name, column in facts.items() if column.name not in left_out}
    style = number_style(len(used), not is_number, isinstance(dataset.split, ByTime | ByTimeFold))
    used_names = {name.lower() for name in (*dataset.encoders, *sample.column_names)}
    features: dict[str, EncoderSettings] = {}
    choice = Choice(dataset, left_out=left_out, named=frozenset(named))
    columns, reasons, categories = dict[str, tuple[str, ...]](), dict[str, str](), set[str]()
    for name, settings in dataset.features.items():
        if name not in autos:
            features[name] = settings
            continue
        for encoding in _encodings(used[name], style, used_names) if name in used else ():
            feature = name if encoding.feature == used[name].name else encoding.feature
            features[feature] = _settings(encoding, feature, used[name].name)
            columns[feature], reasons[feature] = (used[name].name,), encoding.reason
            if used[name].kind == "text" and features[feature].encoder in ("vocabulary", "hash") and not is_member(used[name]):
                categories.add(feature)
    if place := place_encoding([column for column in used.values() if len(column.filled)], used_names):
        features[place.feature] = encoder_settings(place.encoder)
        columns[place.feature], reasons[place.feature] = tuple(place.encoder["columns"]), place.reason
    chosen = dataset.model_copy(update={"features": features})
    different = frozenset(column.name for column in used.values() if column.is_whole and column.is_unique)
    return replace(choice, dataset=chosen, columns=columns, reasons=reasons, categories=frozenset(categories), different=different)


def _is_number(target: EncoderSettings) -> bool:
    return isinstance(target, NumericSettings | CountSettings | VectorSettings) and not isinstance(target, QuantileSettings)


def _reason_against(column: ColumnFacts, targets: Sequence[ColumnFacts], is_number: bool) -> str:
    """Why the sample makes the column no feature. Constants and texts that differ in every row are known by all rows only."""
    if reason := unusable_reason(column):
        return reason
    if column.kind == "moment":
        return f"of type {column.typed.ddl}, whose parts the query can make, such as month(…)"
    if not len(column.filled):
        return "no array in the sample" if column.kind == "list" else ""
    if column.kind == "number" and is_row_number(column, column.rows):
        return ROW_NUMBER
    if column.kind == "number" and is_identifier(column):
        return IDENTIFIER
    is_target_copy = any("list" not in (column.kind, target.kind) and is_copy(column, target, is_number) for target in targets)
    return COPY if is_target_copy else ""


def _encodings(column: ColumnFacts, style: NumberStyle, used_names: set[str]) -> Iterator[Encoding]:
    """The features of a column; a default for one that the sample does not know."""
    if not len(column.filled):
        encoder = {"encoder": "standardize", "impute": "mean"} if column.kind == "number" else "vocabulary"
        yield Encoding(column.name, encoder, "NULL in nearly every row")
    elif is_member(column):
        yield member(column)
    else:
        yield from encodings(column, style, used_names)


def _settings(encoding: Encoding, feature: str, column: str) -> EncoderSettings:
    values = {"encoder": encoding.encoder} if isinstance(encoding.encoder, str) else encoding.encoder
    return encoder_settings(values if feature == column else {**values, "column": column})
