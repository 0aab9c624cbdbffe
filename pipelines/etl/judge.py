"""Gives every row its split, or the reason for refusing it, gathers what the encoders are fitted on, and fits them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipelines.config import Config
from pipelines.data.features import fit_encoders
from pipelines.data.features.auto.choice import Choice, settle
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.rewrite import Removal
from pipelines.data.versions.versions import Version
from pipelines.etl.auto_features import choose_features
from pipelines.etl.increments.known_keys import compare_keys
from pipelines.etl.query import reads_one_table
from pipelines.etl.refusals import check_rows_left, refuse_unexpected
from pipelines.etl.splits import split_assignment
from pipelines.etl.statistics.gather import RowSummary, count_new_rows, gather


@dataclass(frozen=True)
class JudgedRows:
    """All rows with their split, or the reason for refusing them, and what the encoders are fitted on."""

    rows: DataFrame
    cuts_note: str
    """What is to be said of the strata."""
    choice: Choice
    summary: RowSummary


def judge(rows: DataFrame, config: Config, is_deterministic: bool) -> DataFrame:
    """The rows with their identity and split, or the reason for refusing them; persisted if not `is_deterministic`."""
    expected = split_assignment.find_and_refuse_repeats(_expect(rows, config, is_deterministic), config.dataset.key)
    return split_assignment.assign_split(expected, config.dataset.split)


def judge_and_summarize(rows: DataFrame, config: Config, rows_parsed: int, is_deterministic: bool) -> JudgedRows:
    """Judge the rows of the query, choose encoders for `auto`, and gather statistics in one pass over them. Rows whose keys repeat are
    rare: only where the pass counts some, they are looked for and refused, and a second pass follows. `rows_parsed` are the tables'."""
    expected = _expect(rows, config, is_deterministic)
    most_rows = rows_parsed if reads_one_table(rows) else math.inf
    judged = _split_and_summarize(expected, config, rows_parsed, most_rows)
    if judged.summary.keys_repeat:
        judged = _split_and_summarize(split_assignment.refuse_repeats(expected, config.dataset.key), config, rows_parsed, most_rows)
    return judged


def judge_new_rows(rows: DataFrame, config: Config, is_deterministic: bool, parent: Version) -> tuple[DataFrame, RowSummary, list[Removal]]:
    """Judge the rows of an increment, and count them. Those are refused whose key another one has, new or not, and which lose against it;
    rows of the parent that lose are to leave."""
    rows, removals = compare_keys(_expect(rows, config, is_deterministic), config.dataset.key, parent)
    judged = split_assignment.assign_split(rows, config.dataset.split)
    return judged, count_new_rows(judged), removals


def _split_and_summarize(expected: DataFrame, config: Config, rows_parsed: int, most_rows: float) -> JudgedRows:
    cuts = split_assignment.stratify(expected, config.dataset.split)
    rows = split_assignment.assign_split(expected, config.dataset.split, cuts)
    choice = choose_features(rows, config.dataset, rows_parsed)
    summary = gather(rows, choice.dataset, sorted(choice.columns_read), most_rows)
    return JudgedRows(rows, cuts.note if cuts else "", choice, summary)


def _expect(rows: DataFrame, config: Config, is_deterministic: bool) -> DataFrame:
    """The rows with their identity, or the reason for refusing them; persisted if not `is_deterministic`."""
    rows = refuse_unexpected(split_assignment.add_identity(rows, config.dataset.key, config.dataset.newest), config.source.expect)
    return rows.persist() if not is_deterministic and config.source.expect else rows


def fit_columns(summary: RowSummary, choice: Choice, handed_on: Mapping[str, int]) -> tuple[Choice, dict[str, FittedEncoder]]:
    """Settle what was chosen for `auto`, and fit the encoders. `handed_on` are the rows of each table that the query reads. Raises
    SourceError if no row is left, or a split that the config asks for has none, ConfigError if the rows cannot fit an encoder."""
    check_rows_left(handed_on, summary.query_rows, summary.refused)
    split_assignment.check_splits(summary.rows, choice.dataset.split)
    settled = settle(choice, summary.statistics, summary.missing, sum(summary.rows.values())) if choice.columns else choice
    return settled, fit_encoders(settled.dataset, summary.statistics, summary.schema)
