"""Which rows are refused, under which reason, and how many may be."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import QualityError


def quarantine(rows: DataFrame, reason: Column, source: Column | None = None) -> DataFrame:
    """Refused rows as they are kept: (reason, the row as JSON, where it came from if that is known)."""
    record = F.to_json(F.struct(*[F.col(f"`{name}`") for name in rows.columns]), {"ignoreNullFields": "false"})
    return rows.select(
        reason.cast("string").alias("reason"),
        record.alias("record"),
        (F.lit(None) if source is None else source).cast("string").alias("source"),
    )


def expectations(rows: DataFrame, expect: dict[str, str]) -> tuple[DataFrame, DataFrame]:
    """The rows for which every condition is true, and the others as quarantine, under the first name that failed.

    A condition that is NULL is not true. `expect` is {name: SQL condition}.
    """
    if not expect:
        return rows, quarantine(rows.limit(0), F.lit(None))
    held = [(name, F.coalesce(F.expr(condition), F.lit(False))) for name, condition in expect.items()]
    failed = F.coalesce(*[F.when(~condition, F.lit(name)) for name, condition in held])
    return rows.where(reduce(Column.__and__, [condition for _, condition in held])), quarantine(rows.where(failed.isNotNull()), failed)


def check_quarantined(parsed: int, refused: dict[str, int], limit: float, samples: dict[str, str] | None = None) -> None:
    """Raises QualityError if more than `limit`, a share of the rows parsed, were refused; says why, with samples."""
    total = sum(refused.values())
    if total <= limit * parsed:
        return
    reasons = [
        f"  {count:,} × {reason}{_sample((samples or {}).get(reason))}"
        for reason, count in sorted(refused.items(), key=lambda pair: -pair[1])
    ]
    raise QualityError(
        f"{total:,} of {parsed:,} rows were refused ({total / max(parsed, 1):.2%}); source.max_quarantined allows {limit:.2%}. "
        "Mend the source or the query, or raise it:\n" + "\n".join(reasons)
    )


def _sample(record: str | None) -> str:
    return "" if record is None else f", such as {record[:200]}"
