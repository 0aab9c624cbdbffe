"""The draft of a config for a table: each choice with its reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from pipelines.config.messages.counting import show_count
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.features.auto.encoder_choice import Encoding, NumberStyle, free_name
from pipelines.errors import ConfigError, SourceError
from pipelines.init.draft import LEFT_OUT, Draft, KeyPath, Request
from pipelines.init.tables.column_names import section_name
from pipelines.init.tables.expectations import expectations, missing_value_doubts
from pipelines.init.tables.features import column_features, is_text_feature, table_features
from pipelines.init.tables.files import find_table
from pipelines.init.tables.leaks import find_leak
from pipelines.init.tables.moments import add_moments, find_order, has_equal_steps, time_split
from pipelines.init.tables.network import LEAST_ROWS, embedding_settings, recommendation, task_and_training, text_task
from pipelines.init.tables.query import LINE_CHARACTERS, Query
from pipelines.init.tables.ratings import rating_sides
from pipelines.init.tables.roles import Roles, find_roles
from pipelines.init.tables.series import RowOrder, SeriesWindows, find_series
from pipelines.init.tables.table import SampledTable
from pipelines.init.tables.target import TargetChoice, choose_target
from pipelines.init.tables.trial import Trial, try_models

_SMALL = 2_000
"""Rows below which validation and test need more than a tenth each."""
_MOST_REASONS = 12


def draft_table(request: Request) -> Draft | None:
    """Draft the config of a file or a folder of tables; None for other data."""
    table = find_table(request.data, request.skip_rows)
    return draft_of_table(table, request) if table else None


def draft_of_table(table: SampledTable, request: Request) -> Draft:
    """Draft the config of a table. Raises ConfigError or SourceError if no model can be trained on it."""
    if table.rows < LEAST_ROWS:
        raise SourceError(_too_few_rows(table, request.data))
    plan = _plan(table, request)
    columns, texts = _columns_to_try(plan)
    trial = None
    if columns:
        request.announce(_choose_model(plan, None).sections)  # nearly always with the dataset of the final draft
        time, group = (plan.table.column(plan.split[name]) if name in plan.split else None for name in ("time", "group"))
        trial = try_models(columns, texts, plan.target, time, group)
    model = _choose_model(plan, trial)
    if not model.features:
        target = plan.target.column.name
        raise ConfigError(
            f"{request.data}: no column besides {target} is a feature ({_reasons(plan.roles, '; ')}); name another with --target"
        )
    comments: dict[KeyPath, str] = {
        **{("dataset", "features", feature.feature): feature.reason for feature in model.features if feature.reason},
        **{("source", "expect", rule): why for rule, (_, why) in plan.expected.items()},
        ("source", "windows"): fill(plan.series.reason, LINE_CHARACTERS) if plan.series else "",
        ("dataset", "split"): plan.split_reason,
        ("dataset", "features"): _reasons(plan.roles, "\n"),
        ("dataset", "target"): plan.target.reason,
        ("train",): model.reason,
        ("train", "monitor"): "a class is rare" if "monitor" in model.sections["train"] else "",
    }
    doubts = [*_doubts(plan.table, plan.target, plan.roles), *([plan.series.doubt] if plan.series else [])]
    introduction = _introduction(plan.table, request.data)
    return Draft(model.sections, introduction, {path: text for path, text in comments.items() if text}, tuple(doubts))


def _too_few_rows(table: SampledTable, data: str) -> str:
    text = f"{data} has {show_count(table.rows, 'row')}, too few for three splits; give a table of at least {LEAST_ROWS}"
    arrays = [column.name for column in table.columns if column.typed.ddl.startswith("array<struct")]
    return f"{text}, such as the objects of {arrays[0]}, each in a line of its own: jq -c '.{arrays[0]}[]' {data}" if arrays else text


@dataclass(frozen=True)
class _Plan:
    """The decisions before the choice of a model."""

    name: str
    table: SampledTable
    target: TargetChoice
    roles: Roles
    series: SeriesWindows | None
    split: Mapping[str, Any]
    split_reason: str
    expected: Mapping[str, tuple[str, str]]
    """Condition and reason of each expectation."""


@dataclass(frozen=True)
class _Model:
    features: list[Encoding]
    sections: dict[str, Any]
    reason: str
    """Of the section `train`."""


def _plan(table: SampledTable, request: Request) -> _Plan:
    table, target = choose_target(table, request.target, request.data)
    table = add_moments(table, target.columns)
    roles = find_roles(table, target)
    order = _row_order(table, roles)
    series = find_series(roles.features, target, order) if order else _find_counted_series(table, target, roles)
    split, split_reason = _split(table, target, roles, series.sequence if series else order)
    expected = expectations([column for column in table.columns if column.name not in roles.left_out])
    return _Plan(request.name, table, target, roles, series, split, split_reason, expected)


def _columns_to_try(plan: _Plan) -> tuple[list[ColumnFacts], list[ColumnFacts]]:
    """The columns of a trial of models, and the texts among the features; no columns where the kind of the data decides on the model."""
    texts = [column for column in plan.roles.features if is_text_feature(column, plan.roles)]
    if _rating_sides(plan):
        return [], texts
    return [*(column for column in plan.roles.features if column not in texts), *(plan.series.columns if plan.series else [])], texts


def _choose_model(plan: _Plan, trial: Trial | None) -> _Model:
    """The sections of the draft, with the model that the trial found best."""
    query = _query(plan.table, plan.target, plan.roles)
    features, task, train, reason = _recommendation(plan) if _rating_sides(plan) else _tabular_model(plan, query, trial)
    for feature in features:
        if feature.sql:
            query.change(plan.table.column(feature.feature), feature.sql)
    name, roles = plan.name, plan.roles
    sections = {
        "name": name,
        "source": _source(plan.table, name, query, {rule: condition for rule, (condition, _) in plan.expected.items()}, plan.series),
        "dataset": {
            "path": f"data/{name}",
            **({"key": [roles.key]} if roles.key else {}),
            "split": plan.split,
            "features": {feature.feature: feature.encoder for feature in features},
            "target": _target(plan.table, plan.target),
        },
        "task": task,
        "train": train,
    }
    return _Model(features, sections, reason)


def _row_order(table: SampledTable, roles: Roles) -> RowOrder | None:
    """The order of time in which the rows stand, or that of each series of a panel; None if they are in none, or a group divides them."""
    if roles.panel or table.splits or roles.group or roles.members or not table.is_complete:
        return roles.panel
    order = find_order([column for column in roles.features if column.kind == "moment"])
    return RowOrder(order) if order else None


def _find_counted_series(table: SampledTable, target: TargetChoice, roles: Roles) -> SeriesWindows | None:
    """The series of rows that years count, or row numbers where the target is all that there is besides; the count is no feature then."""
    if table.splits or roles.group or roles.members or not table.is_complete:
        return None
    for column in table.columns:
        is_count = not target.holds(column) and has_equal_steps(column)
        features = [feature for feature in roles.features if feature is not column]
        may_order = is_count and (column in roles.features or not features)  # a number of rows may only say how a file was sorted
        if may_order and (series := find_series(features, target, RowOrder(column))):
            roles.features, roles.left_out[column.name] = features, "the order of the rows"
            roles.dropped = [name for name in roles.dropped if name != column.name]
            return series
    return None


def _split(table: SampledTable, target: TargetChoice, roles: Roles, order: RowOrder | None) -> tuple[dict[str, Any], str]:
    """The section `dataset.split`, and the reason."""
    if table.splits:
        has_validation = "validation" in table.splits
        return {"by": _split_column(table), **({} if has_validation else {"validation": 0.1})}, "as the names of the files say"
    if order and (by_time := time_split(order.order)):
        return by_time, "the rows are in order of time: later ones are predicted from earlier ones"
    shares = {"train": 0.7, "validation": 0.15, "test": 0.15} if table.rows < _SMALL else {"train": 0.8, "validation": 0.1, "test": 0.1}
    if roles.group:  # whose rows may have several classes, which strata refuse
        return {**shares, "group": roles.group}, f"equal {roles.group} go to one split"
    if fewest := target.fewest_rows(table.rows):
        reason = f"a class has about {show_count(fewest, 'row')}: each split gets its share of every class"
        return {**shares, "stratify": target.column.name}, reason
    return shares, ""


def _split_column(table: SampledTable) -> str:
    """The name of the column that says in which file a row is."""
    return free_name("split", {column.name.lower() for column in table.columns})


def _query(table: SampledTable, target: TargetChoice, roles: Roles) -> Query:
    """The query that makes the values of the columns that are used."""
    query = Query(table, dropped=roles.dropped)
    for column in table.columns:
        if column.typed.sql and (column.name not in roles.left_out or column.name in (roles.key, roles.group)):
            query.change(column, column.typed.sql)
    conditions = [condition for column in target.columns if column.nulls for condition in _is_there(query.expression(column), column)]
    query.condition = " AND ".join(conditions)
    if target.sql:
        query.change(target.column, target.sql)
    return query


def _target(table: SampledTable, target: TargetChoice) -> dict[str, Any]:
    """The section `dataset.target`."""
    if not target.further:
        return {target.column.name: target.encoder}
    name = free_name("targets", {column.name.lower() for column in table.columns})
    return {name: {"encoder": target.encoder, "columns": [column.name for column in target.columns]}}


def _is_there(value: str, column: ColumnFacts) -> Iterator[str]:
    """Conditions of rows that have a target."""
    yield f"{value} IS NOT NULL"
    if column.has_nan:
        yield f"NOT isnan({value})"


def _rating_sides(plan: _Plan) -> Sequence[Sequence[ColumnFacts]]:
    """The columns of the user and of the item, if the table is one of ratings; else nothing."""
    return () if plan.target.further or plan.roles.panel else rating_sides(plan.roles, plan.target) or ()


def _recommendation(plan: _Plan) -> tuple[list[Encoding], dict[str, Any], dict[str, Any], str]:
    """The features, the sections `task` and `train`, and the reason of the last, of a table of ratings."""
    sides, roles = _rating_sides(plan), plan.roles
    names = {column.name for side in sides for column in side}
    roles.left_out |= {column.name: "neither of the user nor of the item" for column in roles.features if column.name not in names}
    style = NumberStyle(False, False, True)
    features = [encoding for side in sides for column in side for encoding in column_features(column, roles, style, set())]
    task, train = recommendation(*([column.name for column in side] for side in sides))
    return features, task, train, "as conf/movielens.yaml has it"


def _tabular_model(plan: _Plan, query: Query, trial: Trial | None) -> tuple[list[Encoding], dict[str, Any], dict[str, Any], str]:
    """The features, the sections `task` and `train`, and the reason of the last, of a table without ratings."""
    table, target, roles, series = plan.table, plan.target, plan.roles, plan.series
    has_only_texts = not series and all(is_text_feature(column, roles) for column in roles.features)
    if has_only_texts:
        features = table_features(table, target, roles, query, "time" in plan.split)
        return features, *(text_task(target, table.rows) if features else ({}, {})), ""
    task, train, reason = task_and_training(target, table.rows, trial)
    if target.has_rare_class and target.kind == "two classes":
        train["monitor"] = "average_precision"  # the ROC area hardly says which epoch finds the rare rows
    is_linear = task.get("hidden") == []
    features = table_features(table, target, roles, query, "time" in plan.split, is_linear)
    features = [*features, *(series.features if series else [])]
    if task["kind"] == "tabular" and not is_linear:
        task |= embedding_settings(features, len(roles.features))
    return features, task, train, reason


def _source(table: SampledTable, name: str, query: Query, expected: Mapping[str, str], series: SeriesWindows | None) -> dict[str, Any]:
    tables = dict(table.splits) or {section_name(name): table.settings}
    text = query.text(tables, _split_column(table) if table.splits else "")
    refused = {"max_quarantined": round(2 * table.broken + 0.01, 2)} if table.broken > 0.005 else {}
    windows = {"windows": series.settings} if series else {}
    return {"tables": tables, **({"query": text} if text else {}), **windows, **({"expect": dict(expected)} if expected else {}), **refused}


def _reasons(roles: Roles, between: str) -> str:
    """Why columns are left out: each of few, and the names of many by reason."""
    if len(roles.left_out) <= _MOST_REASONS:
        return between.join(
            f"{LEFT_OUT}: {column}, {why}." if between == "\n" else f"{column}: {why}" for column, why in roles.left_out.items()
        )
    by_reason: dict[str, list[str]] = {}
    for column, why in roles.left_out.items():
        by_reason.setdefault(why, []).append(column)
    return between.join(f"{LEFT_OUT}, {why}: {', '.join(names)}." for why, names in by_reason.items())


def _introduction(table: SampledTable, data: str) -> tuple[str, ...]:
    about = "" if table.is_complete else "about "
    basis = "" if table.is_complete else " The reasons below are from a sample of them."
    size = f"{show_count(table.rows, 'row')} of {show_count(len(table.columns), 'column')}"
    return (f"{data}: {about}{size}. Drafted by `lockstep init`, to be edited.{basis}",)


def _doubts(table: SampledTable, target: TargetChoice, roles: Roles) -> Iterator[str]:
    yield from target.doubts
    yield from table.doubts
    yield from (column.typed.doubt for column in table.columns if column.typed.doubt)
    if table.broken > 0.005:
        yield f"{100 * table.broken:.1f} % of the records are broken and will be refused: source.max_quarantined allows it"
    yield from roles.doubts
    yield from missing_value_doubts(roles.features)
    if leak := find_leak(roles.features, target):
        yield leak.text
    mark = table.settings.get("options", {}).get("nullValue", "")
    marked = f", and so are those with {mark}, a missing value in other columns; if it is a class, remove nullValue" if mark else ""
    for column in target.columns:
        if column.nulls:
            text = f"rows without {column.name} are left out by the query: {column.nulls:,} of those read"
            yield f"{text}{marked if column.kind == 'text' else ''}"
