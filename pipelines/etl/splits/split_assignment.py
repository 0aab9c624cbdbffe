"""Computes a row's split, part and position in the part from its key, or from its content if there is no key. Scheduling has no
influence.

1. `add_identity` names every row by a hash of its key.
2. `find_and_refuse_repeats` keeps one row of each key, and refuses the others.
3. `assign_split` gives a row its split, or refuses it, after `stratify` if every split is to have the same mix of values; `assign_part`
   gives it a part and a position. Each uses its own salt. Splits and folds by time have bounds that are values of a column.

Spark's xxhash64 skips NULLs, so (NULL, 5) and (5, NULL) would have the same hash: NULL flags are hashed as well.

A salt is a text. Spark would hash it anew for every row, which took a quarter of the time of an ETL of numbers: `salt_number` is the
number that has the same hash, and Java computes that of a constant once.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)
from xxhash import xxh64_intdigest

from pipelines.config.dataset.dataset import MOST_REPEATS, ByColumn, ByFold, ByFraction, ByTime, ByTimeFold, FoldSplit, Split
from pipelines.data.sources.spark_sql import quote_name, sql_text
from pipelines.data.versions.manifest import SPLITS
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.refusals import REASON, SUPERSEDED, accepted_rows, refuse
from pipelines.etl.splits.strata import FIRST_CUT, HASH_BITS, SECOND_CUT, STRATUM, Cuts, find_cuts

ROW, CONTENT, NEWEST, SPLIT, PART, PLACE, ALIKE = ("__row", "__content", "__newest", "__split", "__part", "__place", "__alike")
"""Columns added to the query's: hash of the key, hash of all columns, how new a row is, index of the split in SPLITS, number of the part
over all splits, the hash by which a part is sorted, and the hash of what `leakage` compares."""
FOLDS = tuple(f"__fold_{repeat + 1}" for repeat in range(MOST_REPEATS))
"""Columns with the fold of a row in each repeat of a cross-validation, from 1."""
INTERNAL = (ROW, CONTENT, NEWEST, SPLIT, PART, PLACE, ALIKE, REASON, STRATUM, FIRST_CUT, SECOND_CUT, *FOLDS)

VERSION = 1
"""Raise it whenever the placement of equal rows changes; part of a dataset version's identity."""

_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_SPARK_SEED = 42
TRAIN, VALIDATION, TEST = range(len(SPLITS))


def exact_column(name: str) -> Column:
    """A column by its exact name, which may contain dots."""
    return F.col(quote_name(name))


def add_identity(rows: DataFrame, key: tuple[str, ...], newest: str = "") -> DataFrame:
    """The rows with ROW, which decides everything else, and with an empty REASON. Without a key, all columns are the key. With one, a row
    has CONTENT too, and NEWEST if the column `newest` says which of two rows with one key is newer. Raises ConfigError if that column is
    neither a time nor a whole number."""
    columns = {ROW: _hash("row", rows, key or tuple(rows.columns)), REASON: F.lit(None).cast("string")}
    if key:
        columns[CONTENT] = _hash("content", rows, tuple(name for name in rows.columns if name not in INTERNAL))
    if newest:
        columns[NEWEST] = _age(rows, newest)
    return rows.withColumns(columns)


def _age(rows: DataFrame, newest: str) -> Column:
    """A column as a whole number that is larger for newer rows; the smallest one for NULL."""
    column, kind = exact_column(newest), rows.schema[newest].dataType
    if isinstance(kind, TimestampType | TimestampNTZType):
        column = F.unix_micros(column.cast("timestamp"))
    elif isinstance(kind, DateType):
        column = F.unix_date(column)
    elif not isinstance(kind, ByteType | ShortType | IntegerType | LongType):
        raise ConfigError(
            f"dataset.newest: {newest} is {kind.simpleString()}; give a column of dates, timestamps or whole numbers, or cast it in "
            "source.query"
        )
    return F.coalesce(column.cast("long"), F.lit(-(2**63)))


def find_and_refuse_repeats(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Of rows with the same key (NULL equals NULL), refuse all but the newest, or else the first by `content_order`. Equal keys have equal
    ROWs. Counting those costs less than `refuse_repeats`, and usually shows that no key repeats."""
    if not key or accepted_rows(rows).groupBy(ROW).count().where("count > 1").isEmpty():
        return rows
    return refuse_repeats(rows, key)


def repeat_reason(key: tuple[str, ...]) -> str:
    """The reason for refusing a row whose key another row has."""
    return f"repeated key: {', '.join(key)}"


def refuse_repeats(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Refuse rows as `find_and_refuse_repeats` does, where a key is known to repeat."""
    keys = [F.expr(hashable_sql(quote_name(name), rows.schema[name].dataType)) for name in key]
    newest = [F.desc(NEWEST)] if NEWEST in rows.columns else []
    copies = Window.partitionBy(F.col(REASON).isNull(), *keys).orderBy(*newest, *content_order(rows))
    repeated = F.when(F.row_number().over(copies) > 1, F.lit(SUPERSEDED if newest else repeat_reason(key)))
    # Fit and write both read them: sort once.
    return refuse(rows, repeated).persist()


def content_hash(rows: DataFrame) -> Column:
    """A 64-bit hash of all columns of the query."""
    return _hash("content", rows, tuple(name for name in rows.columns if name not in INTERNAL))


def content_order(rows: DataFrame) -> list[Column]:
    """An order in which only equal rows tie: of a hash of all columns and, since that skips NULLs inside nested values, of a hash of their
    JSON."""
    content = F.col(CONTENT) if CONTENT in rows.columns else content_hash(rows)
    nested = [field for field in rows.schema if isinstance(field.dataType, ArrayType | MapType | StructType)]
    values = (f"to_json(named_struct('v', {hashable_sql(quote_name(field.name), field.dataType)}))" for field in nested)
    return [content, *([F.expr(f"xxhash64({', '.join(values)})")] if nested else [])]


def stratify(rows: DataFrame, split: Split) -> Cuts | None:
    """Where the rows of each value of `split.stratify` are cut; None for a split without it. Raises SourceError if the column has too many
    values, or a group several."""
    if not isinstance(split, ByFraction) or not split.stratify:
        return None
    check_groups_have_one_value(rows, split)
    share = hash_share("split", split_hash(rows, split))
    return find_cuts(rows, stratum_hash(rows, split), exact_column(split.stratify), share, _shares(split), split.stratify)


def check_groups_have_one_value(rows: DataFrame, split: ByFraction | ByFold) -> None:
    """Raises SourceError if rows of one group have different values of `split.stratify`."""
    if not split.group:
        return
    stratum = stratum_hash(rows, split)
    groups = accepted_rows(rows).groupBy(split_hash(rows, split).alias(ROW)).agg(F.min(stratum) != F.max(stratum))
    if mixed := groups.where(groups[1]).count():
        raise SourceError(
            f"dataset.split.stratify: {mixed:,} groups of {split.group} have more than one value of {split.stratify}, and a group "
            "stays together; name a column with one value in a group, which source.query may compute, or leave stratify out"
        )


def assign_split(rows: DataFrame, split: Split, cuts: Cuts | None = None) -> DataFrame:
    """The rows with SPLIT; rows without a split are refused. `cuts` are those of `stratify` for the same rows, which are computed if they
    are not given."""
    if isinstance(split, ByFraction):
        return _split_by_fraction(rows, split, (cuts or stratify(rows, split)) if split.stratify else None)
    if isinstance(split, ByTimeFold):
        is_placed = exact_column(split.time).isNotNull()
        return refuse(rows.withColumn(SPLIT, F.lit(TRAIN)), F.when(~is_placed, F.lit(f"split: {split.time} is NULL")))
    if isinstance(split, ByFold):
        return rows.withColumn(SPLIT, F.lit(TRAIN))  # `fold_assignment` divides it
    if isinstance(split, ByColumn):
        published, moved = _column_split_number(split), hash_share("split", F.col(ROW)) < _limit(Fraction(str(split.validation)))
        number = F.when((published == TRAIN) & moved, VALIDATION).otherwise(published)
        reason = f"split: {split.by} is not train, validation or test"
    else:
        number, reason = split_by_time(rows, split), f"split: {split.time} is NULL"
    return refuse(rows.withColumn(SPLIT, number), F.when(F.col(SPLIT).isNull(), F.lit(reason)))


def _split_by_fraction(rows: DataFrame, split: ByFraction, cuts: Cuts | None) -> DataFrame:
    unit = split_hash(rows, split)
    share = hash_share("split", unit)
    if cuts is None:
        train, validation, _ = _shares(split)
        number = F.when(share < _limit(train), TRAIN).when(share < _limit(train + validation), VALIDATION).otherwise(TEST)
        return rows.withColumn(SPLIT, number)
    by_stratum = F.broadcast(rows.sparkSession.createDataFrame(cuts.table))
    number = F.when(share < F.col(FIRST_CUT), TRAIN).when(share < F.col(SECOND_CUT), VALIDATION).otherwise(TEST)
    placed = rows.withColumn(STRATUM, stratum_hash(rows, split)).join(by_stratum, STRATUM, "left").withColumn(SPLIT, number)
    return placed.drop(STRATUM, FIRST_CUT, SECOND_CUT)


def split_number(rows: DataFrame, split: ByColumn | ByTime | ByTimeFold) -> Column:
    """The number of a row's split, before rows of `train` move to validation, or of its fold by time: later ones have higher numbers. NULL
    if it has none."""
    if isinstance(split, ByColumn):
        return _column_split_number(split)
    return time_fold(rows, split) if isinstance(split, ByTimeFold) else split_by_time(rows, split)


def split_hash(rows: DataFrame, split: Split) -> Column:
    """The hash that decides a row's split: rows with the same one go to one split."""
    return _hash("group", rows, (split.group,)) if isinstance(split, ByFraction | ByFold) and split.group else F.col(ROW)


def check_splits(rows: dict[int, int], split: Split) -> None:
    """Raises SourceError if a split that the config asks for has no rows. `rows` are those of each split, by its index."""
    shares: tuple[float, ...] = (1, 1, 1)
    if isinstance(split, FoldSplit):
        shares = (1, 0, 0)
    elif isinstance(split, ByFraction):
        shares = (1, split.validation, split.test)
    elif isinstance(split, ByColumn):
        shares = (1, split.validation, 0)  # the publisher decided whether there is a test split
    if empty := [SPLITS[number] for number, share in enumerate(shares) if share and not rows[number]]:
        counts = ", ".join(f"{SPLITS[number]} {count:,}" for number, count in rows.items())
        raise SourceError(f"no row is left for {' and '.join(empty)} ({counts}); give more rows, or change dataset.split")


def assign_part(rows: DataFrame, parts: dict[int, range]) -> DataFrame:
    """The rows with PART and PLACE. `parts` are the numbers of each split's parts, by the split's index. Refused rows are
    assigned to any part, whose task moves them to the quarantine."""
    number = _hash_with_salt("part", F.col(ROW))
    refused_part = F.when(F.col(REASON).isNotNull(), F.pmod(number, F.lit(sum(map(len, parts.values())))))
    parts_of_splits = [
        F.when(F.col(SPLIT) == split, F.lit(numbers.start) + F.pmod(number, F.lit(len(numbers)))) for split, numbers in parts.items()
    ]
    return rows.withColumns({PART: F.coalesce(refused_part, *parts_of_splits).cast("int"), PLACE: _hash_with_salt("place", F.col(ROW))})


def _shares(split: ByFraction) -> list[Fraction]:
    shares = [Fraction(str(fraction)) for fraction in (split.train, split.validation, split.test)]
    return [share / sum(shares) for share in shares]


def stratum_hash(rows: DataFrame, split: ByFraction | ByFold) -> Column:
    """The hash of a row's value of `split.stratify`; NULL is a value, too."""
    return _hash("stratum", rows, (split.stratify,))


def _column_split_number(split: ByColumn) -> Column:
    name = exact_column(split.by).cast("string")
    return F.coalesce(*[F.when(name == split_name, number) for number, split_name in enumerate(SPLITS)])


def hash_share(salt: str, identity: Column) -> Column:
    """A salted hash as an integer below 2**HASH_BITS."""
    return F.shiftrightunsigned(_hash_with_salt(salt, identity), 64 - HASH_BITS)


def _hash_with_salt(salt: str, identity: Column) -> Column:
    return F.xxhash64(F.lit(salt_number(salt)).cast("bigint"), identity)


def _limit(share: Fraction) -> Column:
    return F.lit(int(share * 2**HASH_BITS))


def _hash(salt: str, rows: DataFrame, names: tuple[str, ...]) -> Column:
    """A 64-bit hash of the values and of their NULL flags. NULLs inside arrays are skipped."""
    kinds = {field.name: field.dataType for field in rows.schema}  # `rows.schema[name]` searches all of them
    return F.expr(hash_sql(salt, ((quote_name(name), hashable_sql(quote_name(name), kinds[name])) for name in names)))


def hash_sql(salt: str, values: Iterable[tuple[str, str]]) -> str:
    """SQL of a 64-bit hash of the values, each given as SQL of the column whose NULL flag is hashed, and SQL of what is hashed of it. It is
    one text, since building an expression of thousands of columns takes thousands of calls to Java."""
    return f"xxhash64({salt_number(salt)}L, {', '.join(f'isnull({column}), {value}' for column, value in values)})"


@cache
def salt_number(salt: str) -> int:
    """The signed 64-bit integer whose hash by Spark's xxhash64 is that of the text. Every step of XXH64 (Collet, "xxHash fast digest
    algorithm") for eight bytes is a bijection of 64 bits, so it can be undone."""

    def undo_shift(value: int, bits: int) -> int:
        """x of x ^ (x >> bits), both of 64 bits; `bits` are 22 or more."""
        value %= 2**64
        return value ^ value >> bits ^ value >> 2 * bits

    def rotate(value: int, bits: int) -> int:
        value %= 2**64
        return value << bits | value >> 64 - bits

    first, second, third, fourth, fifth = _PRIMES
    inverse_first, inverse_second, inverse_third = (pow(odd, -1, 2**64) for odd in (first, second, third))
    value = xxh64_intdigest(salt.encode(), _SPARK_SEED)
    value = undo_shift(value, 32) * inverse_third
    value = undo_shift(value, 29) * inverse_second
    value = (undo_shift(value, 33) - fourth) * inverse_first
    value = (rotate(value, 64 - 27) ^ (_SPARK_SEED + fifth + 8)) * inverse_first
    value = rotate(value, 64 - 31) * inverse_second % 2**64
    return value - 2**64 if value >= 2**63 else value


def hashable_sql(value: str, kind: DataType, depth: int = 0) -> str:
    """A value, given and returned in SQL, in a form that can be hashed and compared: maps as sorted entries, variants as JSON."""
    inner = f"inner_{depth}"
    if isinstance(kind, MapType):
        return f"array_sort(map_entries(transform_values({value}, (_, {inner}) -> {hashable_sql(inner, kind.valueType, depth + 1)})))"
    if isinstance(kind, VariantType):
        return f"to_json({value})"
    if isinstance(kind, ArrayType) and not _is_plain(kind):
        return f"transform({value}, {inner} -> {hashable_sql(inner, kind.elementType, depth + 1)})"
    if isinstance(kind, StructType) and not _is_plain(kind):
        fields = [hashable_sql(f"{value}[{sql_text(field.name)}]", field.dataType, depth) for field in kind.fields]
        return f"named_struct({', '.join(f'{sql_text(field.name)}, {text}' for field, text in zip(kind.fields, fields, strict=True))})"
    return value


def _is_plain(kind: DataType) -> bool:
    """Whether the type holds neither maps nor variants."""
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_plain(field.dataType) for field in kind.fields)
    return not isinstance(kind, MapType | VariantType)


def split_by_time(rows: DataFrame, split: ByTime) -> Column:
    """The index in SPLITS of each row's split; NULL where it has no time. Raises ConfigError unless `validation` and `test` are values of
    the column, in this order."""
    kind, limits, is_ordered = _read_moments(rows, split.time, (split.validation, split.test))
    if not is_ordered:
        raise ConfigError(
            f"dataset.split: column {split.time} is {kind.simpleString()}; validation ({split.validation}) and test ({split.test}) "
            "must be two of its values, in this order"
        )
    time = exact_column(split.time)
    return F.when(time < limits[0], TRAIN).when(time < limits[1], VALIDATION).when(time.isNotNull(), TEST)


def time_fold(rows: DataFrame, split: ByTimeFold) -> Column:
    """The fold of each row, from 1; NULL where it has no time. Raises ConfigError unless `fold_starts` are values of the column, each
    later than the one before."""
    kind, starts, is_ordered = _read_moments(rows, split.time, split.fold_starts, may_repeat=False)
    if not is_ordered:
        raise ConfigError(
            f"dataset.split.fold_starts: column {split.time} is {kind.simpleString()}; give values of it, each later than the one before "
            f"(got {', '.join(split.fold_starts)})"
        )
    time = exact_column(split.time)
    return F.when(time.isNotNull(), sum((F.when(time >= start, 1).otherwise(0) for start in starts), F.lit(1)))


def _read_moments(rows: DataFrame, name: str, texts: Sequence[str], may_repeat: bool = True) -> tuple[DataType, list[Column], bool]:
    """The type of a column, the texts in that type, and whether each is a value of it, none before the one that it follows."""
    kind = rows.schema[name].dataType
    moments = [F.lit(text).try_cast(kind) for text in texts]
    in_order = [first <= second if may_repeat else first < second for first, second in pairwise(moments)]
    checks = rows.sparkSession.range(1).select(*[moment.isNotNull() for moment in moments], *in_order).head()
    assert checks is not None
    return kind, moments, all(checks)


def raw_schema(rows: DataFrame) -> pa.Schema:
    """The query's columns as Arrow types, in Spark's tasks and in the served model."""
    fields = [field for field in rows.schema.fields if field.name not in INTERNAL]
    timezone = str(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    return to_arrow_schema(type(rows.schema)(fields), timezone=timezone)
