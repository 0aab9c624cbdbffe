"""The features of a table, its task and its training: every column that is a feature, the terms of texts and the parts of moments; the task
that the columns ask for, or the model that a trial finds best, by the number of rows and the kind of target. The figures were tried on
public tables."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any

from pipelines.config.messages.words import show_count
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
from pipelines.init.tables.trial import LINEAR, NETWORK, Trial, TrialModel, fit_linear, fit_network

LEAST_TEXTS = 20
"""Different texts below which they are categories: so few may share no word."""
MOST_NAMED_COLUMNS = 100
"""Columns of one kind beyond which a pattern stands for all of them."""
LEAST_ROWS = 50
"""Rows that a split into three and a batch of training need."""
LEAST_STEPS = 4_000
"""Of an optimizer. A network of five numbers whose product counts had an AUC of 0.930 after 160 steps, and of 0.972 after 5,400."""
LINEAR_LR = 0.05
"""Of Adam, for a linear model. Where two columns nearly give each other, as the fare and the total of a ride, 4,000 steps of 0.01 end at
twice the error that the equations have."""
_HEAVY_PENALTY = 0.02
"""Of squared weights, per row, from which the weights of a linear model are held small: its columns are many for its rows."""
LEAST_EPOCHS, MOST_EPOCHS = 3, 120
MOST_EMBEDDED_COLUMNS = 300
"""Columns beyond which numbers are not embedded: their vectors would outgrow the network."""


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


def task_and_training(target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The sections `task` and `train` of a table of so many rows, and the reason. Without a trial, a network."""
    choice, reason = (trial.choice, "; ".join([trial.text, *trial.untried])) if trial else (NETWORK, f"for about {show_count(rows, 'row')}")
    task, train = next(model for model in trial_models() if model.name == choice).write(target, rows, trial)
    return task, {"workers": 1 if rows < 20_000 else 2, **train}, reason


def linear_sections(target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of a linear model."""
    decay = {"weight_decay": 1.0} if trial and trial.penalty >= _HEAVY_PENALTY else {}
    return {"kind": "tabular", "hidden": []}, {**_length(rows), "lr": LINEAR_LR, **decay, "schedule": "one_cycle"}


def network_sections(target: TargetChoice, rows: int, trial: Trial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections `task` and `train` of a perceptron, the wider and freer the more rows there are."""
    if rows < 5_000:
        hidden, dropout = [128, 128], 0.1
    elif rows < 100_000 and target.has_classes:
        hidden, dropout = [256, 256], 0.3
    else:
        hidden, dropout = [256, 256], 0.1 if rows < 30_000 or 100_000 <= rows < 1_000_000 else 0.0
    return {"kind": "tabular", "hidden": hidden, "dropout": dropout}, {**_length(rows), "lr": 0.002, "schedule": "one_cycle"}


def trial_models() -> list[TrialModel]:
    """The models that a trial compares: those in `MODELS` of slices' modules `trial`, and the core's."""
    of_slices = [model for module in slice_modules("trial").values() for model in module.MODELS]
    return [*of_slices, TrialModel(LINEAR, fit_linear, linear_sections), TrialModel(NETWORK, fit_network, network_sections)]


def _length(rows: int) -> dict[str, Any]:
    """The batch, a power of two that grows with the root of the number of rows and leaves at least ten steps of an epoch; and as many
    epochs as LEAST_STEPS need, within bounds."""
    batch = min(max(2 ** round(log2(max(rows, 1) ** 0.5 / 1.5)), 32), 4_096)
    while batch > max(rows // 10, 8):
        batch //= 2
    epochs = min(max(-(-LEAST_STEPS * batch // max(rows * 8 // 10, 1)), LEAST_EPOCHS), MOST_EPOCHS)
    return {"epochs": epochs, "global_batch": batch}
