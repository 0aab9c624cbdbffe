"""Which rows are refused, under which reason, and how many may be."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import QualityError

Parted = tuple[DataFrame, DataFrame | None]
"""The rows kept, and the others as quarantine; None where there can be none."""


def quarantine(rows: DataFrame, reason: Column) -> DataFrame:
    """Rows of the query that are refused, as they are kept: reason, the row as JSON, and no source, for a query mixes them."""
    record = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    return rows.select(reason.alias("reason"), record.alias("record"), F.lit(None).cast("string").alias("source"))


def expectations(rows: DataFrame, expect: dict[str, str]) -> Parted:
    """The rows for which every condition is true, and the others as quarantine, under the first name that failed.

    A condition that is NULL is not true. `expect` is {name: SQL condition}.
    """
    if not expect:
        return rows, None
    failed = F.coalesce(*[F.when(~F.coalesce(F.expr(condition), F.lit(False)), F.lit(name)) for name, condition in expect.items()])
    return rows.where(failed.isNull()), quarantine(rows.where(failed.isNotNull()), failed)


def check_quarantined(parsed: int, refused: dict[str, int], limit: float, samples: dict[str, str]) -> None:
    """Raises QualityError if more than `limit`, a share of the rows parsed, were refused; says why, with samples."""
    total = sum(refused.values())
    if total <= limit * parsed:
        return
    reasons = [
        f"  {count:,} × {reason}{_sample(samples.get(reason))}" for reason, count in sorted(refused.items(), key=lambda pair: -pair[1])
    ]
    raise QualityError(
        f"{total:,} of {parsed:,} rows were refused ({total / max(parsed, 1):.2%}); source.max_quarantined allows {limit:.2%}. "
        "Mend the source or the query, or raise it:\n" + "\n".join(reasons)
    )


def _sample(record: str | None) -> str:
    return "" if record is None else f", such as {record[:200]}"
