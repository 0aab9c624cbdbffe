"""The draft of a config for a table: each choice with its reason."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from pipelines.config.messages.words import show_count
from pipelines.data.features.auto.encoder_choice import Encoding, NumberStyle, free_name
from pipelines.errors import ConfigError, SourceError
from pipelines.init.draft import LEFT_OUT, LINE_CHARACTERS, Draft, KeyPath, Request
from pipelines.init.media.labelled_texts import text_training
from pipelines.init.tables.data_checks import expectations, leak_doubt, missing_value_doubts
from pipelines.init.tables.date_columns import add_moments, find_order, has_equal_steps, time_split
from pipelines.init.tables.features_and_task import (
    TableTask,
    column_features,
    is_text_feature,
    table_features,
    table_task,
)
from pipelines.init.tables.find_table import find_table
from pipelines.init.tables.header import section_name
from pipelines.init.tables.json_table import OBJECTS
from pipelines.init.tables.keys_and_groups import Roles, find_roles
from pipelines.init.tables.sample import SampledTable
from pipelines.init.tables.sql import Query
from pipelines.init.tables.target import SPLIT_COUNT, TargetChoice, choose_target, rare_class_doubts
from pipelines.init.tables.time_series import RowOrder, SeriesWindows, find_series
from pipelines.init.tables.trial import Trial, try_models
from pipelines.init.tables.trial_models import alternative_models, choose_model, task_and_training, trial_models

LEAST_ROWS = 50
"""Rows that a split into three and a batch of training need."""
MOST_EMBEDDED_COLUMNS = 300
"""Columns beyond which numbers are not embedded: their vectors would outgrow the network."""
_SMALL = 2_000
"""Rows below which validation and test need more than a tenth each."""
_MOST_REASONS = 12
"""Columns that are left out, each with its reason; of more, the reasons are given, each with its columns."""


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


def draft_table(request: Request) -> Draft | None:
    """Draft the config of a file or a folder of tables; None for other data. Raises ConfigError or SourceError if they train no model."""
    table = find_table(request.data, request.skip_rows, request.target)
    return draft_sampled_table(table, request) if table else None


def draft_sampled_table(table: SampledTable, request: Request) -> Draft:
    """Draft the config of a table, from its sample. Raises ConfigError or SourceError if it trains no model."""
    if table.rows < LEAST_ROWS:
        raise SourceError(_too_few_rows(table, request.data))
    plan = _plan(table, request)
    trial = _try_models(plan, request)
    sections, features, training_reason = _write_sections(plan, trial)
    left_out = _left_out(plan)
    if not features:
        target = plan.target.column.name
        why_none = "; ".join(f"{', '.join(names)}: {why}" for names, why in left_out)
        raise ConfigError(
            f"{request.data}: no column besides {target} is a feature ({why_none}); give data with a column that varies and is no "
            "identifier, or name another target with --target"
        )
    lines = (f": {names[0]}, {why}." if len(names) == 1 else f", {why}: {', '.join(names)}." for names, why in left_out)
    comments: dict[KeyPath, str] = {
        **{("dataset", "features", feature.feature): feature.reason for feature in features if feature.reason},
        **{("source", "expect", rule): why for rule, (_, why) in plan.expected.items()},
        ("source", "windows"): fill(plan.series.reason, LINE_CHARACTERS - len("  # ")) if plan.series else "",
        ("dataset", "split"): plan.split_reason,
        ("dataset", "features"): "\n".join(f"{LEFT_OUT}{line}" for line in lines),
        ("dataset", "target"): plan.target.reason,
        ("train",): training_reason,
        ("train", "monitor"): "a class is rare" if "monitor" in sections["train"] else "",
    }
    size = f"{show_count(plan.table.rows, 'row')} of {show_count(len(plan.table.columns), 'column')}"
    about, basis = ("", "") if plan.table.is_complete else ("about ", " The reasons below are from a sample of them.")
    introduction = f"{request.data}: {about}{size}. Drafted by `lockstep init`, to be edited.{basis}"
    doubts = tuple(_doubts(plan, {feature.feature for feature in features}))
    return Draft(sections, (introduction,), comments, doubts, _alternatives(plan, trial, features))


def _too_few_rows(table: SampledTable, data: str) -> str:
    text = f"{data} has {show_count(table.rows, 'row')}, too few for three splits; give a table of at least {LEAST_ROWS}"
    name = next((column.name for column in table.columns if column.typed.ddl == OBJECTS), "")
    if not name:
        return text
    keys = "".join(f'["{key}"]' for key in table.raw_names.get(name, name).split("."))
    records = ".[]" if table.settings.get("options", {}).get("multiLine") else "."
    return f"{text}, such as the objects of {name}, each in a line of its own: jq -c '{records}{keys}[]' {data}"


def _plan(table: SampledTable, request: Request) -> _Plan:
    table, target = choose_target(table, request.target, request.data)
    table = add_moments(table, target.columns)
    roles = find_roles(table, target)
    order, series = _order_and_series(table, target, roles)
    split, split_reason = _split(table, target, roles, order)
    expected = expectations([column for column in table.columns if column.name not in roles.left_out])
    return _Plan(request.name, table, target, roles, series, split, split_reason, expected, table_task(roles, target))


def _try_models(plan: _Plan, request: Request) -> Trial | None:
    """The trial of models on the features; None if the kind of the data decides on the model, or if they say too little."""
    roles, table, series = plan.roles, plan.table, plan.series
    texts = [column for column in roles.features if is_text_feature(column, roles)]
    columns = [*(column for column in roles.features if column not in texts), *(series.columns if series else [])]
    if plan.task or not columns:
        return None
    request.announce(_write_sections(plan, None)[0])  # nearly always with the dataset of the final draft
    time, group = (table.column(plan.split[name]) if name in plan.split else None for name in ("time", "group"))
    return try_models(trial_models(), columns, texts, plan.target, time, group)


def _write_sections(plan: _Plan, trial: Trial | None) -> tuple[dict[str, Any], list[Encoding], str]:
    """The sections of the draft, with the model that the trial found best; its features; and the reason of the section `train`."""
    query = _query(plan.table, plan.target, plan.roles)
    features, task, train, reason = _choose_model(plan, query, trial)
    for feature in features:
        if feature.sql:
            query.change(plan.table.column(feature.feature), feature.sql)
    name, table, roles, targets = plan.name, plan.table, plan.roles, plan.target.columns
    tables = dict(table.splits) or {section_name(name): table.settings}
    text = query.text(tables, plan.split.get("by", ""))
    source: dict[str, Any] = {
        "tables": tables,
        **({"query": text} if text else {}),
        **({"windows": plan.series.settings} if plan.series else {}),
        **({"expect": {rule: condition for rule, (condition, _) in plan.expected.items()}} if plan.expected else {}),
        **({"max_quarantined": round(2 * table.broken + 0.01, 2)} if table.broken > 0.005 else {}),
    }
    target: dict[str, Any] = {targets[0].name: plan.target.encoder}
    if len(targets) > 1:
        name_of_all = free_name("targets", {column.name.lower() for column in table.columns})
        target = {name_of_all: {"encoder": plan.target.encoder, "columns": [column.name for column in targets]}}
    values = {
        "name": name,
        "source": source,
        "dataset": {
            "path": f"data/{name}",
            **({"key": [roles.key]} if roles.key else {}),
            "split": plan.split,
            "features": {feature.feature: feature.encoder for feature in features},
            "target": target,
        },
        "task": task,
        "train": train,
    }
    return values, features, reason


def _order_and_series(table: SampledTable, target: TargetChoice, roles: Roles) -> tuple[RowOrder | None, SeriesWindows | None]:
    """The order of time in which the rows stand, or that of each series of a panel, and the windows of a target that depends on its past;
    None if the rows are in none, or a group divides them.

    Years may count the rows, or row numbers where the target is all that there is besides; the count is no feature then."""
    if roles.panel:
        return roles.panel, find_series(roles.features, target, roles.panel)
    if table.splits or roles.group or roles.members or not table.is_complete:
        return None, None
    if time := find_order([column for column in roles.features if column.kind == "moment"]):
        order = RowOrder(time)
        return order, find_series(roles.features, target, order)
    for column in table.columns:
        is_count = not target.holds(column) and has_equal_steps(column)
        features = [feature for feature in roles.features if feature is not column]
        may_order = is_count and (column in roles.features or not features)  # a number of rows may only say how a file was sorted
        if may_order and (series := find_series(features, target, RowOrder(column))):
            roles.features, roles.left_out[column.name] = features, "the order of the rows"
            roles.dropped = [name for name in roles.dropped if name != column.name]
            return series.order, series
    return None, None


def _split(table: SampledTable, target: TargetChoice, roles: Roles, order: RowOrder | None) -> tuple[dict[str, Any], str]:
    """The section `dataset.split`, and the reason."""
    if table.splits:
        has_validation = "validation" in table.splits
        by = free_name("split", {column.name.lower() for column in table.columns})
        return {"by": by, **({} if has_validation else {"validation": 0.1})}, "as the names of the files say"
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


def _query(table: SampledTable, target: TargetChoice, roles: Roles) -> Query:
    """The query that makes the values of the columns that are used."""
    query = Query(table, dropped=roles.dropped)
    for column in table.columns:
        if column.typed.sql and (column.name not in roles.left_out or column.name in (roles.key, roles.group)):
            query.change(column, column.typed.sql)
    conditions = []
    for column in target.columns:
        if column.nulls:
            value = query.expression(column)
            conditions += [f"{value} IS NOT NULL", *([f"NOT isnan({value})"] if column.has_nan else [])]
    query.condition = " AND ".join(conditions)
    if target.sql:
        query.change(target.column, target.sql)
    return query


def _choose_model(plan: _Plan, query: Query, trial: Trial | None) -> tuple[list[Encoding], dict[str, Any], dict[str, Any], str]:
    """The features, the sections `task` and `train`, and the reason of the last: what the columns ask for, or the best of a trial."""
    table, target, roles, series = plan.table, plan.target, plan.roles, plan.series
    if plan.task:
        style = NumberStyle(False, False, True)
        features = [part for column in plan.task.columns for part in column_features(column, roles, style, set())]
        return features, dict(plan.task.task), dict(plan.task.train), plan.task.reason
    if roles.features and not series and all(is_text_feature(column, roles) for column in roles.features):
        features = table_features(table, target, roles, query, "time" in plan.split)
        return features, {"kind": "text"}, text_training(table.rows * 8 // 10), ""
    name, reason = choose_model(table.rows, trial)
    task, train = task_and_training(name, target, table.rows, trial)
    if target.is_judged_by_precision:
        train["monitor"] = "average_precision"  # the ROC area hardly says which epoch finds the rare rows
    features = table_features(table, target, roles, query, "time" in plan.split, task.get("hidden") == [])
    features = [*features, *(Encoding(column.name, "standardize", "") for column in (series.columns if series else []))]
    return features, task | _number_embedding(task, features, len(roles.features)), train, reason


def _number_embedding(task: Mapping[str, Any], features: Sequence[Encoding], columns: int) -> dict[str, Any]:
    """The embedding of numbers of a network; nothing for another model, for many columns, and without numbers."""
    if task["kind"] != "tabular" or task.get("hidden") == [] or columns > MOST_EMBEDDED_COLUMNS:
        return {}
    has_numbers = any(feature.encoder_name in ("standardize", "normal_quantile", "log1p", "auto") for feature in features)
    return {"number_embedding": "piecewise"} if has_numbers else {}


def _alternatives(plan: _Plan, trial: Trial | None, features: Sequence[Encoding]) -> tuple[Mapping[str, Any], ...]:
    """Models of other kinds, which a search compares with the draft's."""
    sections = []
    for name in alternative_models(trial):
        task, train = task_and_training(name, plan.target, plan.table.rows, trial)
        del train["workers"]  # where a model is trained does not depend on its kind
        sections.append({"task": task | _number_embedding(task, features, len(plan.roles.features)), "train": train})
    return tuple(sections)


def _left_out(plan: _Plan) -> list[tuple[list[str], str]]:
    """Names of columns and why they are no features: each of few, many by reason. The split may be by one that the task does not take."""
    reasons = dict(plan.roles.left_out)
    if plan.task:
        features = {column.name for column in plan.task.columns}
        reasons |= {column.name: plan.task.left_out_reason for column in plan.roles.features if column.name not in features}
    if len(reasons) <= _MOST_REASONS:
        return [([name], why) for name, why in reasons.items()]
    by_reason: dict[str, list[str]] = {}
    for name, why in reasons.items():
        by_reason.setdefault(why, []).append(name)
    return [(names, why) for why, names in by_reason.items()]


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
    if leak := leak_doubt(roles.features, target, feature_names):
        yield leak
    mark = table.settings.get("options", {}).get("nullValue", "")
    marked = f", and so are those with {mark}, a missing value in other columns; if it is a class, remove nullValue" if mark else ""
    for column in target.columns:
        if column.nulls:
            text = f"rows without {column.name} are left out by the query: {column.nulls:,} of those read"
            yield f"{text}{marked if column.kind == 'text' else ''}"
    if plan.series:
        reason = plan.series.reason
        yield f"{reason}. A prediction needs the rows before its own; to predict without them, remove source.windows and its features"
