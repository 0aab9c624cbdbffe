"""Corrects what `auto` chose by a sample, by exact statistics of all rows."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipelines.config.features import encoder_settings
from pipelines.config.features.base import EncoderSettings
from pipelines.config.features.categories import BinarySettings, HashSettings, SequenceSettings, VocabularySettings
from pipelines.config.features.numbers import IdentitySettings, NumericSettings, QuantileSettings
from pipelines.config.messages.words import name_list
from pipelines.data.features.auto.choice import Choice
from pipelines.data.features.auto.column_facts import IDENTIFIER, IDENTIFIER_SHARE, many_texts
from pipelines.data.features.auto.encoder_choice import category_encoder
from pipelines.data.features.statistics import Statistics
from pipelines.errors import ConfigError

_MOST_REASONS = 3


def settle(choice: Choice, statistics: Mapping[str, Statistics], missing: Mapping[str, int], rows: int) -> Choice:
    """Correct a choice by the statistics of the training split, and by the rows of all splits, and their NULL and NaN
    in each column.

    Raises ConfigError if no feature is left."""
    left_out, features, reasons = dict(choice.left_out), dict[str, EncoderSettings](), dict[str, str]()
    for name, columns in choice.columns.items():
        for column in columns if name not in choice.named else ():
            is_numbered = column in choice.different and _is_dense(statistics[column], rows)
            settings, is_category = choice.dataset.features[name], name in choice.categories
            if reason := IDENTIFIER if is_numbered else _reason_against(settings, statistics[column], missing.get(column, 0), is_category):
                left_out[column] = reason
    for name, settings in choice.dataset.features.items():
        columns = choice.columns.get(name, ())
        if any(column in left_out for column in columns):
            continue
        features[name] = settings
        if columns:
            nulls = max(missing.get(column, 0) for column in columns)
            features[name] = _correct(settings, statistics[columns[0]], nulls, name in choice.categories)
            reasons[name] = choice.reasons[name] if features[name] == settings else _correction(features[name], nulls)
    if not features:
        raise ConfigError(f"dataset.features: auto leaves out every column, {list_left_out(left_out)}; name a feature with its encoder")
    dataset = choice.dataset.model_copy(update={"features": features})
    return replace(choice, dataset=dataset, left_out=left_out, reasons={name: reason for name, reason in reasons.items() if reason})


def describe_choice(choice: Choice) -> Iterator[str]:
    """The choice in a line or two."""
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


def _reason_against(settings: EncoderSettings, statistics: Statistics, missing: int, is_category: bool) -> str:
    """Why all rows make the column no feature."""
    counts = statistics.counts
    filled = statistics.values
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


def _correction(settings: EncoderSettings, missing: int) -> str:
    return f"{missing:,} missing" if missing else settings.encoder


def _is_dense(statistics: Statistics, rows: int) -> bool:
    """Whether the values are numbers of rows, from the least to the greatest."""
    low, high = statistics.minimum, statistics.maximum
    return low is not None and high is not None and high - low < rows
