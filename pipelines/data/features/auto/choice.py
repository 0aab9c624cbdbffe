"""The encoders of `auto`, by the rules of `lockstep init`. The choice is a pure function of the rows, whatever their files and partitions.

1. `choose` decides by facts of a sample of rows, those of smallest hash, which encoders a column has.
2. `settle` corrects that by exact statistics of all rows: what is constant, what has NULL, how many values there are.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pipelines.config.dataset.dataset import ByTime, ByTimeFold, Dataset
from pipelines.config.features import encoder_settings
from pipelines.config.features.base import AutoSettings, EncoderSettings
from pipelines.config.features.categories import BinarySettings, HashSettings, SequenceSettings, VocabularySettings
from pipelines.config.features.numbers import IdentitySettings, NumericSettings, QuantileSettings
from pipelines.config.features.targets import CountSettings, VectorSettings
from pipelines.config.messages.words import name_list
from pipelines.data.features.auto.column_facts import (
    COPY,
    IDENTIFIER,
    IDENTIFIER_SHARE,
    ROW_NUMBER,
    ColumnFacts,
    convert_column,
    is_copy,
    is_identifier,
    is_member,
    is_row_number,
    many_texts,
    unusable_reason,
)
from pipelines.data.features.auto.encoder_choice import (
    Encoding,
    NumberStyle,
    category_encoder,
    encodings,
    member,
    number_style,
    place_encoding,
)
from pipelines.data.features.statistics import Statistics
from pipelines.errors import ConfigError

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
    """Choose encoders by a sample of the training split, which has the columns of `auto` and of the target. `named` are the features that
    the config names, which are not left out."""
    autos = auto_columns(dataset)
    facts = {name: ColumnFacts(convert_column(column, sample.column(column))) for name, column in autos.items()}
    targets = [ColumnFacts(convert_column("", sample.column(column))) for column in target_columns(dataset)]
    target = next(iter(dataset.target.values()))
    is_number = isinstance(target, NumericSettings | CountSettings | VectorSettings) and not isinstance(target, QuantileSettings)
    left_out = {
        facts[name].name: reason for name in autos if (reason := _reason_by_sample(facts[name], targets, is_number)) and name not in named
    }
    used = {name: column for name, column in facts.items() if column.name not in left_out}
    style = number_style(len(used), not is_number, isinstance(dataset.split, ByTime | ByTimeFold))
    used_names = {name.lower() for name in (*dataset.encoders, *sample.column_names)}
    features, columns = dict[str, EncoderSettings](), dict[str, tuple[str, ...]]()
    reasons, categories = dict[str, str](), set[str]()
    for name, settings in dataset.features.items():
        if name not in autos:
            features[name] = settings
            continue
        if name not in used:
            continue
        column = used[name]
        for encoding in _encodings(column, style, used_names):
            feature = name if encoding.feature == column.name else encoding.feature
            values = {"encoder": encoding.encoder} if isinstance(encoding.encoder, str) else encoding.encoder
            features[feature] = encoder_settings(values if feature == column.name else {**values, "column": column.name})
            columns[feature], reasons[feature] = (column.name,), encoding.reason
            if column.kind == "text" and features[feature].encoder in ("vocabulary", "hash") and not is_member(column):
                categories.add(feature)
    if place := place_encoding([column for column in used.values() if len(column.filled)], used_names):
        features[place.feature] = encoder_settings(place.encoder)
        columns[place.feature], reasons[place.feature] = tuple(place.encoder["columns"]), place.reason
    chosen = dataset.model_copy(update={"features": features})
    different = frozenset(column.name for column in used.values() if column.is_whole and column.is_unique)
    return Choice(chosen, columns, reasons, left_out, frozenset(named), frozenset(categories), different)


def _reason_by_sample(column: ColumnFacts, targets: Sequence[ColumnFacts], is_number: bool) -> str:
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


def settle(choice: Choice, statistics: Mapping[str, Statistics], missing: Mapping[str, int], rows: int) -> Choice:
    """Correct a choice by the statistics of the training split, and by the rows of all splits, and their NULL and NaN in each column.
    Raises ConfigError if no feature is left."""
    left_out, features, reasons = dict(choice.left_out), dict[str, EncoderSettings](), dict[str, str]()
    for name, columns in choice.columns.items():
        for column in columns if name not in choice.named else ():
            low, high = statistics[column].minimum, statistics[column].maximum
            reason = _reason_by_all_rows(
                choice.dataset.features[name], statistics[column], missing.get(column, 0), name in choice.categories
            )
            if column in choice.different and low is not None and high is not None and high - low < rows:
                reason = IDENTIFIER
            if reason:
                left_out[column] = reason
    for name, settings in choice.dataset.features.items():
        columns = choice.columns.get(name, ())
        if any(column in left_out for column in columns):
            continue
        features[name] = settings
        if columns:
            nulls = max(missing.get(column, 0) for column in columns)
            features[name] = _correct(settings, statistics[columns[0]], nulls, name in choice.categories)
            correction = f"{nulls:,} missing" if nulls else features[name].encoder
            reasons[name] = choice.reasons[name] if features[name] == settings else correction
    if not features:
        raise ConfigError(f"dataset.features: auto leaves out every column, {list_left_out(left_out)}; name a feature with its encoder")
    dataset = choice.dataset.model_copy(update={"features": features})
    return replace(choice, dataset=dataset, left_out=left_out, reasons={name: reason for name, reason in reasons.items() if reason})


def describe_choice(choice: Choice) -> Iterator[str]:
    encoders = Counter(choice.dataset.features[name].encoder for name in choice.columns if name in choice.dataset.features)
    if encoders:
        yield f"auto: {', '.join(f'{encoder} {count:,}' for encoder, count in encoders.most_common())}"
    if choice.left_out:
        yield f"auto leaves out {list_left_out(choice.left_out)}"


def list_left_out(left_out: Mapping[str, str]) -> str:
    """Columns by reason, a few of many."""
    by_reason: dict[str, list[str]] = {}
    for column, reason in left_out.items():
        by_reason.setdefault(reason.partition(",")[0], []).append(column)
    parts = [f"{name_list(columns)} ({reason})" for reason, columns in list(by_reason.items())[:_MOST_REASONS]]
    more = sum(len(columns) for columns in list(by_reason.values())[_MOST_REASONS:])
    return ", ".join(parts) + (f" and {more:,} more" if more else "")


def _reason_by_all_rows(settings: EncoderSettings, statistics: Statistics, missing: int, is_category: bool) -> str:
    counts, filled = statistics.counts, statistics.values
    if not filled:
        return "empty"
    if not missing and statistics.minimum is not None and statistics.minimum == statistics.maximum:
        return f"constant, always {statistics.minimum:g}"
    if isinstance(settings, BinarySettings | VocabularySettings | HashSettings) and counts is not None:
        if len(counts) == 1 and not missing:
            return f"constant, always {counts['value'][0].as_py()[:40]}"
        if is_category and statistics.distinct > IDENTIFIER_SHARE * filled:
            return many_texts(statistics.distinct, filled)
    if missing and (isinstance(settings, SequenceSettings) or _is_array(settings)):
        return "has NULL, which its encoder refuses: coalesce() in the query"
    return ""


def _correct(settings: EncoderSettings, statistics: Statistics, missing: int, is_category: bool) -> EncoderSettings:
    """The settings with what all rows say, where the sample did not."""
    if missing and isinstance(settings, BinarySettings):
        return VocabularySettings(column=settings.column)
    if missing and isinstance(settings, NumericSettings) and not isinstance(settings, QuantileSettings) and settings.impute == "none":
        return settings if _is_array(settings) else settings.model_copy(update={"impute": "mean"})
    if is_category and statistics.counts is not None:
        encoder = category_encoder(statistics.distinct)
        values = {"encoder": encoder} if isinstance(encoder, str) else encoder
        return encoder_settings({**values, "column": settings.column})
    return settings


def _is_array(settings: EncoderSettings) -> bool:
    """Whether the column has arrays, of which no encoder imputes elements."""
    return isinstance(settings, IdentitySettings) and bool(settings.shape)
