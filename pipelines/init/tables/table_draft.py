"""The draft of a config for a table: each choice with its reason."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from pipelines.config.messages.words import show_count
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.features.auto.encoder_choice import Encoding, NumberStyle, free_name
from pipelines.errors import ConfigError, SourceError
from pipelines.init.draft import LEFT_OUT, LINE_CHARACTERS, Draft, KeyPath, Request
from pipelines.init.media.labelled_texts import text_training
from pipelines.init.tables.data_checks import expectations, find_leak, missing_value_doubts
from pipelines.init.tables.date_columns import add_moments, find_order, has_equal_steps, time_split
from pipelines.init.tables.features import column_features, is_text_feature, table_features
from pipelines.init.tables.find_table import find_table
from pipelines.init.tables.header import section_name
from pipelines.init.tables.json_table import OBJECTS
from pipelines.init.tables.keys_and_groups import Roles, find_roles
from pipelines.init.tables.sample import SampledTable
from pipelines.init.tables.sql import Query
from pipelines.init.tables.target import SPLIT_COUNT, TargetChoice, choose_target, rare_class_doubts
from pipelines.init.tables.task_and_training import LEAST_ROWS, TableTask, embedding_settings, table_task, task_and_training, trial_models
from pipelines.init.tables.time_series import RowOrder, SeriesWindows, find_series
from pipelines.init.tables.trial import Trial, try_models

_SMALL = 2_000
"""Rows below which validation and test need more than a tenth each."""
_MOST_REASONS = 12


def draft_table(request: Request) -> Draft | None:
    """Draft the config of a file or a folder of tables; None for other data."""
    table = find_table(request.data, request.skip_rows, request.target)
    return draft_of_table(table, request) if table else None


def draft_of_table(table: SampledTable, request: Request) -> Draft:
    """Draft the config of a table. Raises ConfigError or SourceError if no model can be trained on it."""
    if table.rows < LEAST_ROWS:
        raise SourceError(_too_few_rows(table, request.data))
    plan = _plan(table, request)
    columns, texts = _columns_to_try(plan)
    trial = None
    if columns:
        request.announce(_write_sections(plan, None).values)  # nearly always with the dataset of the final draft
        time, group = (plan.table.column(plan.split[name]) if name in plan.split else None for name in ("time", "group"))
        trial = try_models(trial_models(), columns, texts, plan.target, time, group)
    sections = _write_sections(plan, trial)
    if not sections.features:
        target = plan.target.column.name
        reasons = "; ".join(f"{', '.join(names)}: {why}" for names, why in _reasons(plan.left_out))
        raise ConfigError(
            f"{request.data}: no column besides {target} is a feature ({reasons}); give data with a column that varies and is no "
            "identifier, or name another target with --target"
        )
    comments: dict[KeyPath, str] = {
        **{("dataset", "features", feature.feature): feature.reason for feature in sections.features if feature.reason},
        **{("source", "expect", rule): why for rule, (_, why) in plan.expected.items()},
        ("source", "windows"): fill(plan.series.reason, LINE_CHARACTERS - len("  # ")) if plan.series else "",
        ("dataset", "split"): plan.split_reason,
        ("dataset", "features"): "\n".join(_left_out_lines(plan.left_out)),
        ("dataset", "target"): plan.target.reason,
        ("train",): sections.reason,
        ("train", "monitor"): "a class is rare" if "monitor" in sections.values["train"] else "",
    }
    doubts = [*_doubts(plan, {feature.feature for feature in sections.features}), *([plan.series.doubt] if plan.series else [])]
    introduction = _introduction(plan.table, request.data)
    return Draft(sections.values, introduction, {path: text for path, text in comments.items() if text}, tuple(doubts))


def _too_few_rows(table: SampledTable, data: str) -> str:
    text = f"{data} has {show_count(table.rows, 'row')}, too few for three splits; give a table of at least {LEAST_ROWS}"
    name = next((column.name for column in table.columns if column.typed.ddl == OBJECTS), "")
    if not name:
        return text
    keys = "".join(f'["{key}"]' for key in table.raw_names.get(name, name).split("."))
    records = ".[]" if table.settings.get("options", {}).get("multiLine") else "."
    return f"{text}, such as the objects of {name}, each in a line of its own: jq -c '{records}{keys}[]' {data}"


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
    task: TableTask | None
    """The task that the columns ask for; None if a trial of models decides."""

    @property
    def left_out(self) -> dict[str, str]:
        """Why columns are no features. Those that the task does not take stay in the query, since the split may be by one."""
        if not self.task:
            return self.roles.left_out
        features = {column.name for column in self.task.columns}
        unused = [column.name for column in self.roles.features if column.name not in features]
        return {**self.roles.left_out, **dict.fromkeys(unused, self.task.left_out_reason)}


@dataclass(frozen=True)
class _Sections:
    """The sections of the draft, with a model."""

    values: dict[str, Any]
    features: list[Encoding]
    reason: str
    """Of the section `train`."""


def _plan(table: SampledTable, request: Request) -> _Plan:
    table, target = choose_target(table, request.target, request.data)
    table = add_moments(table, target.columns)
    roles = find_roles(table, target)
    order = _row_order(table, roles)
    series = find_series(roles.features, target, order) if order else _find_counted_series(table, target, roles)
    split, split_reason = _split(table, target, roles, series.order if series else order)
    expected = expectations([column for column in table.columns if column.name not in roles.left_out])
    return _Plan(request.name, table, target, roles, series, split, split_reason, expected, table_task(roles, target))


def _columns_to_try(plan: _Plan) -> tuple[list[ColumnFacts], list[ColumnFacts]]:
    """The columns of a trial of models, and the texts among the features; no columns where the kind of the data decides on the model."""
    texts = [column for column in plan.roles.features if is_text_feature(column, plan.roles)]
    if plan.task:
        return [], texts
    return [*(column for column in plan.roles.features if column not in texts), *(plan.series.columns if plan.series else [])], texts


def _write_sections(plan: _Plan, trial: Trial | None) -> _Sections:
    """The sections of the draft, with the model that the trial found best."""
    query = _query(plan.table, plan.target, plan.roles)
    features, task, train, reason = _task_of_columns(plan.task, plan.roles) if plan.task else _tabular_model(plan, query, trial)
    for feature in features:
        if feature.sql:
            query.change(plan.table.column(feature.feature), feature.sql)
    name, roles = plan.name, plan.roles
    values = {
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
    return _Sections(values, features, reason)


def _row_order(table: SampledTable, roles: Roles) -> RowOrder | None:
    """The order of time in which the rows stand, or that of each series of a panel; None if they are in none, or a group divides them."""
    if roles.panel or table.splits or roles.group or roles.members or not table.is_complete:
        return roles.panel
    time = find_order([column for column in roles.features if column.kind == "moment"])
    return RowOrder(time) if time else None


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
    if order and (by_time := time_split(order.time)):
        return by_time, "the rows are in order of time: later ones are predicted from earlier ones"
    shares = {"train": 0.7, "validation": 0.15, "test": 0.15} if table.rows < _SMALL else {"train": 0.8, "validation": 0.1, "test": 0.1}
    if roles.group:  # whose rows may have several classes, which strata refuse
        return {**shares, "group": roles.group}, f"equal {roles.group} go to one split"
    if fewest := target.fewest_rows(table.rows):
        reason = f"a class has about {show_count(fewest, 'row')}: each split gets its share of every class" + (
            f" of {SPLIT_COUNT} rows or more" if fewest < SPLIT_COUNT else ""
        )
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
    conditions = [condition for column in target.columns if column.nulls for condition in _presence_conditions(query, column)]
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


def _presence_conditions(query: Query, column: ColumnFacts) -> Iterator[str]:
    """Conditions of rows that have a value of the column."""
    value = query.expression(column)
    yield f"{value} IS NOT NULL"
    if column.has_nan:
        yield f"NOT isnan({value})"


def _task_of_columns(task: TableTask, roles: Roles) -> tuple[list[Encoding], dict[str, Any], dict[str, Any], str]:
    """The features, the sections `task` and `train`, and the reason of the last, of a task that the columns ask for."""
    style = NumberStyle(False, False, True)
    features = [part for column in task.columns for part in column_features(column, roles, style, set())]
    return features, dict(task.task), dict(task.train), task.reason


def _tabular_model(plan: _Plan, query: Query, trial: Trial | None) -> tuple[list[Encoding], dict[str, Any], dict[str, Any], str]:
    """The features, the sections `task` and `train`, and the reason of the last, by a trial of models."""
    table, target, roles, series = plan.table, plan.target, plan.roles, plan.series
    if roles.features and not series and all(is_text_feature(column, roles) for column in roles.features):
        features = table_features(table, target, roles, query, "time" in plan.split)
        return features, {"kind": "text"}, text_training(table.rows * 8 // 10), ""
    task, train, reason = task_and_training(target, table.rows, trial)
    if target.is_judged_by_precision:
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


def _reasons(left_out: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """Names of columns and why they are left out: each of few columns, and many by reason."""
    if len(left_out) <= _MOST_REASONS:
        return [([name], why) for name, why in left_out.items()]
    by_reason: dict[str, list[str]] = {}
    for name, why in left_out.items():
        by_reason.setdefault(why, []).append(name)
    return [(names, why) for why, names in by_reason.items()]


def _left_out_lines(left_out: Mapping[str, str]) -> Iterator[str]:
    """The lines of a comment about the columns that are no features."""
    for names, why in _reasons(left_out):
        yield f"{LEFT_OUT}: {names[0]}, {why}." if len(names) == 1 else f"{LEFT_OUT}, {why}: {', '.join(names)}."


def _introduction(table: SampledTable, data: str) -> tuple[str, ...]:
    about = "" if table.is_complete else "about "
    basis = "" if table.is_complete else " The reasons below are from a sample of them."
    size = f"{show_count(table.rows, 'row')} of {show_count(len(table.columns), 'column')}"
    return (f"{data}: {about}{size}. Drafted by `lockstep init`, to be edited.{basis}",)


def _doubts(plan: _Plan, feature_names: Collection[str]) -> Iterator[str]:
    table, target, roles = plan.table, plan.target, plan.roles
    yield from target.doubts
    yield from table.doubts
    yield from (column.typed.doubt for column in table.columns if column.typed.doubt)
    if table.broken > 0.005:
        yield f"{100 * table.broken:.1f} % of the records are broken and will be refused: source.max_quarantined allows it"
    if table.is_complete and not table.splits:
        yield from rare_class_doubts(target)
    yield from roles.doubts
    yield from missing_value_doubts(roles.features, feature_names)
    if leak := find_leak(roles.features, target):
        yield leak.text(feature_names)
    mark = table.settings.get("options", {}).get("nullValue", "")
    marked = f", and so are those with {mark}, a missing value in other columns; if it is a class, remove nullValue" if mark else ""
    for column in target.columns:
        if column.nulls:
            text = f"rows without {column.name} are left out by the query: {column.nulls:,} of those read"
            yield f"{text}{marked if column.kind == 'text' else ''}"
