"""Checks of the data, for a person: single columns that give the target away, as a duration does that only ends early for those who
left; values that cannot be; and numbers that may stand for a missing value.

`leak_doubt` predicts the target from each column alone: its values, or ranges of a number, have the mean of the target, or their most
frequent class, in one half of the rows, and are scored on the other half. A column that predicts nearly all where no other comes near is
named, and stays a feature: whether it is known before the target, only a person can say.
"""

import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from pipelines.config.messages.words import name_list
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.features.auto.encoder_choice import free_name
from pipelines.init.tables.header import section_name
from pipelines.init.tables.sql import sql_name
from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial import AUC, R_SQUARED, r_squared
from pipelines.ranking import roc_area, rows_by_score

LEAK_SCORE = 0.99
"""AUC, share of the errors of the most frequent class, or R², from which one column tells the target."""
LEAST_LEAD = 5.0
"""How many times more the next best column must fall short of 1."""
MOST_LEAKS = 3
"""Columns beyond which the target is easy, and no column gives it away."""
LEAST_ROWS, MOST_ROWS = 100, 20_000
LEAST_RARE_ROWS = 10
"""Rows of the rarer class, held out, below which a score may be chance."""
_RANGES = 64
_METRICS = {"two classes": AUC, "classes": "share of explained errors", "number": R_SQUARED}
"""By the kind of the target."""
_NEVER_NEGATIVE = re.compile(
    r"(^|_)(age|ages|count|counts|hours?|minutes?|seconds?|days?|years?|distance|duration|weight|height|length|width|size|area|price|"
    r"population|rooms|passengers|speed|quantity|qty)($|_)",
    re.IGNORECASE,
)
_AGE = re.compile(r"(^|_)age$", re.IGNORECASE)
_OLDEST = 120
MOST_IMPOSSIBLE = 0.005
"""Share of the rows beyond which a value is no mistake; a version may have 1 % of refused rows for all reasons together."""
_LEAST_MARK, _LEAST_MARKED = 99, 0.005
"""Size of a number that marks missing values, such as 999, and the share of the rows that has it."""


def leak_doubt(features: Sequence[ColumnFacts], target: TargetChoice, feature_names: Collection[str]) -> str:
    """A line about the features that predict the target, each alone, while no other comes near; empty if there are none.

    It tells how to remove them from a draft with features of these names: a column that has none of its own is one of a pattern."""
    known_rows = np.flatnonzero(target.column.typed.values.is_valid().to_numpy(zero_copy_only=False))
    if len(known_rows) < LEAST_ROWS:
        return ""
    rows = known_rows[np.linspace(0, len(known_rows) - 1, min(len(known_rows), MOST_ROWS)).astype(int)]
    rows = np.random.default_rng(0).permutation(rows)
    if target.kind == "number":
        outputs = target.column.places[rows]
    else:
        outputs = np.unique(target.column.codes[rows], return_inverse=True)[1].astype(float)
        if np.unique(outputs[1::2], return_counts=True)[1].min() < LEAST_RARE_ROWS:
            return ""
    compared = [column for column in features if column.kind not in ("list", "other")]
    scores = {column.name: _score(_ranges(column, rows), outputs, target.kind) for column in compared}
    ranking = sorted(scores, key=lambda name: -scores[name])
    leaks = [name for name in ranking if scores[name] >= LEAK_SCORE]
    if not 0 < len(leaks) <= MOST_LEAKS:
        return ""
    next_name = next((name for name in ranking if name not in leaks), "")
    score, next_score = scores[leaks[-1]], scores.get(next_name, 0.0)
    is_ahead = 1 - next_score >= LEAST_LEAD * (1 - score)
    if not is_ahead:
        return ""
    verb, end = ("tells", "") if len(leaks) == 1 else ("tell", " each")
    rival = f", where {next_name}, the next best, has {next_score:.2f}" if next_name else ""
    moments = {column.name for column in features if column.kind == "moment"}  # whose features are parts of them, by other names
    named = [name for name in leaks if name in moments or name in feature_names]
    settings = name_list([f"the features of {name}" if name in moments else f"dataset.features.{name}" for name in named])
    unnamed = ", ".join(sql_name(name) for name in leaks if name not in named)
    remedies = [f"remove {settings}"] if named else []
    remedies += [f"leave {unnamed} out in source.query: SELECT * EXCEPT ({unnamed})"] if unnamed else []
    return (
        f"{name_list(leaks)} alone {verb} the target, with a held-out {_METRICS[target.kind]} of {score:.3f}{end}{rival}: "
        f"what is only known afterwards is no feature, so {' and '.join(remedies)} then"
    )


def _ranges(column: ColumnFacts, rows: np.ndarray) -> np.ndarray:
    """The number of the range or of the value that each of the rows has, from 0; NULL is one more."""
    if column.kind in ("text", "boolean"):
        return column.codes[rows] + 1
    values = column.places[rows]
    fitted = values[::2][np.isfinite(values[::2])]
    edges = np.unique(np.quantile(fitted, np.arange(1, _RANGES) / _RANGES)) if len(fitted) else np.empty(0)
    edges = np.unique(np.concatenate([edges, np.nextafter(edges, np.inf)]))  # a frequent value is a range of its own
    return np.where(np.isfinite(values), np.searchsorted(edges, values, side="right") + 1, 0)


def _score(ranges: np.ndarray, outputs: np.ndarray, kind: str) -> float:
    """How well the ranges of every other row predict the outputs of the rows between."""
    fitted, held_out = slice(0, None, 2), slice(1, None, 2)
    size, true = int(ranges.max()) + 1, outputs[held_out]
    if kind == "classes":
        counts = np.zeros((size, int(outputs.max()) + 1))
        np.add.at(counts, (ranges[fitted], outputs[fitted].astype(int)), 1)
        most_frequent = counts.sum(0).argmax()
        predicted = np.where(counts.any(1), counts.argmax(1), most_frequent)[ranges[held_out]]
        errors_without = (true != most_frequent).mean()
        return float(1 - (true != predicted).mean() / errors_without) if errors_without else 0.0
    rows_of_ranges = np.bincount(ranges[fitted], minlength=size)
    mean = outputs[fitted].mean()
    predicted = ((np.bincount(ranges[fitted], outputs[fitted], size) + mean) / (rows_of_ranges + 1))[ranges[held_out]]
    if kind == "number":
        return r_squared(true, predicted)
    # Rows held out of one class say nothing, and so do not make a column suspect.
    return float(np.nan_to_num(roc_area(*rows_by_score(predicted, true == 1))))


def expectations(columns: Sequence[ColumnFacts]) -> dict[str, tuple[str, str]]:
    """Condition and reason by name, for columns whose name says what they measure."""
    conditions, used_names = {}, set[str]()
    for column in columns:
        if column.kind != "number" or not _NEVER_NEGATIVE.search(column.name) or column.typed.sql:
            continue
        negative = int(np.sum(column.numbers < 0))
        too_old = int(np.sum(column.numbers > _OLDEST)) if _AGE.search(column.name) else 0
        if not 0 < negative + too_old <= MOST_IMPOSSIBLE * column.rows:
            continue
        name = sql_name(column.name)
        condition = f"{name} BETWEEN 0 AND {_OLDEST}" if too_old else f"{name} >= 0"
        nullable = f"{condition} OR {name} IS NULL" if column.nulls else condition
        rule = free_name(section_name(f"plausible {column.name}"), used_names)
        conditions[rule] = (nullable, f"{negative + too_old:,} of {column.rows:,} rows are not")
    return conditions


def missing_value_doubts(columns: Sequence[ColumnFacts], feature_names: Collection[str]) -> Iterator[str]:
    """A line for each column with a number far from all others in many rows, as -999 is among temperatures. Of a column without a feature
    of its own, among those of the draft, ETL chooses what NULL becomes."""
    for column in columns:
        if column.kind != "number" or column.distinct < 3:
            continue
        for mark in (column.numbers[0], column.numbers[-1]):
            unmarked = column.numbers[column.numbers != mark]
            share = 1 - len(unmarked) / len(column.numbers)
            gap = min(abs(mark - unmarked[0]), abs(mark - unmarked[-1]))
            is_far = gap >= unmarked[-1] - unmarked[0] or (mark < 0 <= unmarked[0])
            if is_far and abs(mark) >= _LEAST_MARK and mark == int(mark) and share >= _LEAST_MARKED:
                name = column.name
                impute = ", and its feature impute: median" if name in feature_names else ""
                yield (
                    f"{mark:.0f} of {name}, in {100 * share:.1f} % of the rows and far from all others, is a number; if it marks a missing "
                    f"value, give nullif({sql_name(name)}, {mark:.0f}) AS {sql_name(name)} in source.query{impute}"
                )
