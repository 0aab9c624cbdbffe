"""The draft of a config for a table: each choice with its reason."""

from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any

from pipelines.config.messages.did_you_mean import show_count
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.features.auto.encoder_choice import Encoding, NumberStyle, free_name
from pipelines.errors import ConfigError, SourceError
from pipelines.init.draft import LEFT_OUT, Draft, KeyPath, Request
from pipelines.init.tables.column_names import section_name
from pipelines.init.tables.expectations import expectations
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
from pipelines.init.tables.trial import try_models

_SMALL = 2_000
"""Rows below which validation and test need more than a tenth each."""
_MOST_REASONS = 12


def draft_table(request: Request) -> Draft | None:
    """Draft the config of a file or a folder of tables; None for other data."""
    table = find_table(request.data, request.skip_rows)
    return draft_of_table(table, request.name, request.target, request.data) if table else None


def draft_of_table(table: SampledTable, name: str, target_name: str, data: str) -> Draft:
    """Draft the config of a table. Raises ConfigError or SourceError if no model can be trained on it."""
    if table.rows < LEAST_ROWS:
        raise SourceError(f"{data} has {show_count(table.rows, 'row')}, too few for three splits; give a table of at least {LEAST_ROWS}")
    table, target = choose_target(table, target_name, data)
    table = add_moments(table, target.columns)
    roles = find_roles(table, target)
    order = _row_order(table, roles)
    series = find_series(roles.features, target, order) if order else _find_counted_series(table, target, roles)
    split, split_reason = _split(table, target, roles, series.sequence if series else order)
    query = _query(table, target, roles)
    features, task, train, reason = _model(table, target, roles, query, series, split)
    if not features:
        raise ConfigError(
            f"{data}: no column besides {target.column.name} is a feature ({_reasons(roles, '; ')}); name another with --target"
        )
    expected = expectations([column for column in table.columns if column.name not in roles.left_out])
    comments: dict[KeyPath, str] = {
        **{("dataset", "features", feature.feature): feature.reason for feature in features if feature.reason},
        **{("source", "expect", rule): why for rule, (_, why) in expected.items()},
        ("source", "windows"): fill(series.reason, LINE_CHARACTERS) if series else "",
        ("dataset", "split"): split_reason,
        ("dataset", "features"): _reasons(roles, "\n"),
        ("dataset", "target"): target.reason,
        ("train",): reason,
        ("train", "monitor"): "a class is rare" if "monitor" in train else "",
    }
    sections = {
        "name": name,
        "source": _source(table, name, query, {rule: condition for rule, (condition, _) in expected.items()}, series),
        "dataset": {
            "path": f"data/{name}",
            **({"key": [roles.key]} if roles.key else {}),
            "split": split,
            "features": {feature.feature: feature.encoder for feature in features},
            "target": _target(table, target),
        },
        "task": task,
        "train": train,
    }
    doubts = [*_doubts(table, target, roles), *([series.doubt] if series else [])]
    return Draft(sections, _introduction(table, data), {path: text for path, text in comments.items() if text}, tuple(doubts))


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
        return {**shares, "stratify": target.column.name}, f"a class has about {fewest:,} rows: each split gets its share of every class"
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


def _model(
    table: SampledTable, target: TargetChoice, roles: Roles, query: Query, series: SeriesWindows | None, split: Mapping[str, Any]
) -> tuple[list[Encoding], dict[str, Any], dict[str, Any], str]:
    """The features, the sections `task` and `train`, and the reason of the last."""
    if not target.further and not roles.panel and (sides := rating_sides(roles, target)):
        names = {column.name for side in sides for column in side}
        dropped = [column for column in roles.features if column.name not in names]
        roles.left_out |= {column.name: "neither of the user nor of the item" for column in dropped}
        features = [
            encoding
            for side in sides
            for column in side
            for encoding in column_features(column, roles, NumberStyle(False, False, True), set())
        ]
        task, train = recommendation(*([column.name for column in side] for side in sides))
        reason = "as conf/movielens.yaml has it"
    else:
        features, task, train, reason = _tabular_model(table, target, roles, query, series, split)
    for feature in features:
        if feature.sql:
            query.change(table.column(feature.feature), feature.sql)
    return features, task, train, reason


def _tabular_model(
    table: SampledTable, target: TargetChoice, roles: Roles, query: Query, series: SeriesWindows | None, split: Mapping[str, Any]
) -> tuple[list[Encoding], dict[str, Any], dict[str, Any], str]:
    """The features, the sections `task` and `train`, and the reason of the last, of a table without ratings."""
    texts = [column for column in roles.features if is_text_feature(column, roles)]
    columns = [*(column for column in roles.features if column not in texts), *(series.columns if series else [])]
    if not columns:
        features = table_features(table, target, roles, query, "time" in split)
        return features, *(text_task(target, table.rows) if features else ({}, {})), ""
    time, group = (table.column(split[name]) if name in split else None for name in ("time", "group"))
    trial = None if target.further else try_models(columns, texts, target, time, group)
    task, train, reason = task_and_training(target, table.rows, trial)
    if target.has_rare_class and target.kind == "two classes":
        train["monitor"] = "average_precision"  # the ROC area hardly says which epoch finds the rare rows
    is_linear = task.get("hidden") == []
    features = [*table_features(table, target, roles, query, "time" in split, is_linear), *(series.features if series else [])]
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
    return (f"{data}: {about}{table.rows:,} rows of {len(table.columns)} columns. Drafted by `lockstep init`, to be edited.{basis}",)


def _doubts(table: SampledTable, target: TargetChoice, roles: Roles) -> Iterator[str]:
    yield from target.doubts
    yield from table.doubts
    yield from (column.typed.doubt for column in table.columns if column.typed.doubt)
    if table.broken > 0.005:
        yield f"{100 * table.broken:.1f} % of the records are broken and will be refused: source.max_quarantined allows it"
    yield from roles.doubts
    if leak := find_leak(roles.features, target):
        yield leak.text
    mark = table.settings.get("options", {}).get("nullValue", "")
    marked = f", and so are those with {mark}, a missing value in other columns; if it is a class, remove nullValue" if mark else ""
    for column in target.columns:
        if column.nulls:
            text = f"rows without {column.name} are left out by the query: {column.nulls:,} of those read"
            yield f"{text}{marked if column.kind == 'text' else ''}"
