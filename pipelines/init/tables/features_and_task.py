"""The features of a table: every column that is a feature, the terms of texts and the parts of moments; and the task that its columns ask
for, where a trial of models does not decide. The figures were tried on public tables."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipelines.config.slices import slice_modules
from pipelines.data.features.auto.column_facts import ColumnFacts, has_sentences
from pipelines.data.features.auto.encoder_choice import (
    Encoding,
    NumberStyle,
    category,
    encodings,
    free_name,
    member,
    number_style,
    place_encoding,
)
from pipelines.init.media.labelled_texts import term_encoder
from pipelines.init.tables.date_columns import MomentPart, moment_parts
from pipelines.init.tables.keys_and_groups import Roles
from pipelines.init.tables.sample import SampledTable
from pipelines.init.tables.sql import Query
from pipelines.init.tables.target import TargetChoice

LEAST_TEXTS = 20
"""Different texts below which they are categories: so few may share no word."""
MOST_NAMED_COLUMNS = 100
"""Columns of one kind beyond which a pattern stands for all of them."""


def is_text_feature(column: ColumnFacts, roles: Roles) -> bool:
    """Whether the words of the column are its feature."""
    return has_sentences(column) and column not in roles.members and column.distinct >= LEAST_TEXTS


def table_features(
    table: SampledTable, target: TargetChoice, roles: Roles, query: Query, is_split_by_time: bool, is_linear: bool = False
) -> list[Encoding]:
    """The features of the columns and of the parts of moments, which the query adds. A linear model takes numbers, not their quantiles."""
    style = replace(number_style(len(roles.features), target.has_classes, is_split_by_time or is_linear), is_linear=is_linear)
    used_names = {column.name.lower() for column in table.columns}
    texts, features = list[Encoding](), list[Encoding]()
    for column in roles.features:
        if has_sentences(column) and column not in roles.members:
            if column.distinct < LEAST_TEXTS:
                texts.append(category(column))
            else:  # a text that is NULL, in the sample or perhaps beyond it, is an empty one
                encoder, reason = term_encoder(column.filled.to_pylist())
                texts.append(Encoding(column.name, encoder, reason, "coalesce({}, '')" if column.nulls or not table.is_complete else ""))
            features.append(texts[-1])
        else:
            features += column_features(column, roles, style, used_names)
    if place := place_encoding(roles.features, used_names):
        features.append(place)
    parts = list[Encoding]()
    moments = [column for column in roles.features if column.kind == "moment"]
    for part in moment_parts(moments, is_split_by_time, query.expression, table.derived):
        name = free_name(part.name, used_names)
        query.added[name] = part.sql
        parts.append(_part_encoding(part, name, style))
    if max(Counter(column.kind for column in roles.features).values(), default=0) <= MOST_NAMED_COLUMNS:
        return [*features, *parts]
    encodings_of_auto = [feature for feature in features if feature not in texts]
    for feature in encodings_of_auto:
        if feature.sql:
            query.change(table.column(feature.feature), feature.sql)
    numbers = [Encoding("*:number", {"encoder": "standardize", "impute": "mean"}, "")] if is_linear else []
    encoders = Counter(feature.encoder_name for feature in encodings_of_auto if not (is_linear and feature.encoder_name == "standardize"))
    if not encoders:
        return [*parts, *texts, *numbers]
    counts = ", ".join(f"{encoder} {count:,}" for encoder, count in encoders.most_common())
    return [*parts, *texts, *numbers, Encoding("*", "auto", f"ETL chooses by all rows; by these, {counts}")]


def _part_encoding(part: MomentPart, name: str, style: NumberStyle) -> Encoding:
    if part.is_category:
        return Encoding(name, "vocabulary", "")
    encoder = "normal_quantile" if style.has_quantiles and not style.is_linear else "standardize"
    impute = {"impute": "median" if style.has_quantiles else "mean"} if part.has_nulls else {}
    return Encoding(name, {"encoder": encoder, **impute} if impute else encoder, "")


def column_features(column: ColumnFacts, roles: Roles, style: NumberStyle, used_names: set[str]) -> Iterator[Encoding]:
    """The features of a column. An identifier that repeats is a category, also if it is a number; moments have parts."""
    if column in roles.members:
        yield member(column)
    elif column.kind != "moment":
        yield from encodings(column, style, used_names)


@dataclass(frozen=True)
class TableTask:
    """A task, its training and its features."""

    columns: Sequence[ColumnFacts]
    left_out_reason: str
    """Why other columns are no features."""
    task: Mapping[str, Any]
    train: Mapping[str, Any]
    reason: str
    """Of the section `train`."""


def table_task(roles: Roles, target: TargetChoice) -> TableTask | None:
    """The first task that a function in `TABLE_TASKS` of a slice's module `draft` recognizes."""
    recognizers = (recognize for module in slice_modules("draft").values() for recognize in getattr(module, "TABLE_TASKS", ()))
    return next((task for recognize in recognizers if (task := recognize(roles, target))), None)
