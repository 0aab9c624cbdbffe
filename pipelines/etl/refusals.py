"""Decides which rows are refused and why, and limits their number.

Each row is judged once, and the decision stays with it: REASON is NULL, or the reason for the refusal. Later
stages read that column and never decide again.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import QualityError, SourceError

REASON = "__reason"
SUPERSEDED = "superseded by a newer row"
"""In REASON: the row is left out, but is no fault, and neither counts against `max_quarantined` nor stands in the quarantine."""
SAMPLE_LENGTH = 200


def refuse(rows: DataFrame, reason: Column) -> DataFrame:
    """Refuse rows where `reason` is not NULL; rows that are refused already keep their reason."""
    return rows.withColumn(REASON, F.coalesce(F.col(REASON), reason))


def accepted_rows(rows: DataFrame) -> DataFrame:
    return rows.where(F.col(REASON).isNull())


def refuse_unexpected(rows: DataFrame, expect: Mapping[str, str]) -> DataFrame:
    """Refuse rows with the name of the first condition that is not true; NULL is not true. `expect` is {name: SQL condition}."""
    failed = [F.when(~F.coalesce(F.expr(condition), F.lit(False)), F.lit(name)) for name, condition in expect.items()]
    return refuse(rows, F.coalesce(*failed)) if failed else rows


def check_quarantined(parsed: int, refused: Mapping[str, int], limit: float, samples: Mapping[str, str]) -> None:
    """Raises QualityError, with reasons and samples, if more than `limit`, a share of the parsed rows, were refused."""
    total = sum(refused.values())
    if total > limit * parsed:
        raise QualityError(
            f"{share_text(parsed, refused)}; source.max_quarantined allows {limit:.2%}. Mend the source or the query, or raise it:\n"
            + "\n".join(reason_lines(refused, samples))
        )


def check_rows_left(handed_on: Mapping[str, int], query_rows: int, refused: Mapping[str, int]) -> None:
    """Raises SourceError, saying what removed them, if no row is left: of the tables `handed_on`, or of those that the query gave."""
    if not query_rows:
        tables = ", ".join(f"{name} {rows:,}" for name, rows in handed_on.items())
        raise SourceError(
            f"no row is left for any split: source.query gives none of those that it reads ({tables}), so its conditions or a join remove "
            "all of them; leave out one WHERE, HAVING or JOIN after another to see which"
        )
    if sum(refused.values()) == query_rows:
        raise SourceError(
            f"no row is left for any split: the query gives {query_rows:,} rows, and all are refused; "
            "change source.expect, dataset.split or the query:\n" + "\n".join(reason_lines(refused, {}))
        )


def share_text(parsed: int, refused: Mapping[str, int]) -> str:
    total = sum(refused.values())
    return f"{total:,} of {parsed:,} rows were refused ({total / max(parsed, 1):.2%})"


def reason_lines(refused: Mapping[str, int], samples: Mapping[str, str]) -> list[str]:
    """A line for each reason with its rows, the most frequent first, and a record where there is a sample."""
    lines = []
    for reason, count in sorted(refused.items(), key=lambda pair: (-pair[1], pair[0])):
        lines.append(f"  {count:,} × {reason}")
        if reason in samples:  # safe to print: a record may contain control sequences
            record = samples[reason][:SAMPLE_LENGTH]
            lines[-1] += ", such as " + "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in record)
    return lines
