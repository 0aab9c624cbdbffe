"""Gives every row its split, or the reason for refusing it, and gathers what the encoders are fitted on."""

import math
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipelines.config import Config
from pipelines.data.features.auto.choice import Choice
from pipelines.etl.auto_features import choose_features
from pipelines.etl.quality import refuse_unexpected
from pipelines.etl.query import reads_one_table
from pipelines.etl.read import QueriedRows
from pipelines.etl.splits import splits
from pipelines.etl.statistics.gather import RowSummary, gather


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
    expected = splits.find_and_refuse_repeats(_expect(rows, config, is_deterministic), config.dataset.key)
    return splits.assign_split(expected, config.dataset.split)


def judge_and_summarize(queried: QueriedRows, config: Config) -> JudgedRows:
    """Judge the rows, choose encoders for `auto`, and gather statistics in one pass over them. Rows whose keys repeat are rare: only
    where the pass counts some, they are looked for and refused, and a second pass follows."""
    expected = _expect(queried.rows, config, queried.is_deterministic)
    rows_parsed = queried.tables.rows_parsed
    most_rows = rows_parsed if reads_one_table(queried.rows) else math.inf
    judged = _summarize(expected, config, rows_parsed, most_rows)
    if judged.summary.keys_repeat:
        judged = _summarize(splits.refuse_repeats(expected, config.dataset.key), config, rows_parsed, most_rows)
    return judged


def _expect(rows: DataFrame, config: Config, is_deterministic: bool) -> DataFrame:
    """The rows with their identity, or the reason for refusing them; persisted if not `is_deterministic`."""
    rows = refuse_unexpected(splits.add_identity(rows, config.dataset.key), config.source.expect)
    return rows.persist() if not is_deterministic and config.source.expect else rows


def _summarize(expected: DataFrame, config: Config, rows_parsed: int, most_rows: float) -> JudgedRows:
    """Split the rows, which are `most_rows` or fewer, choose encoders for `auto`, and summarize the rows."""
    dataset = config.dataset
    cuts = splits.stratify(expected, dataset.split)
    rows = splits.assign_split(expected, dataset.split, cuts)
    choice = choose_features(rows, dataset, rows_parsed)
    summary = gather(rows, choice.dataset, sorted(choice.columns_read), most_rows)
    return JudgedRows(rows, cuts.note if cuts else "", choice, summary)
