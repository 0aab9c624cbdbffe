"""Spark's errors about data and queries as ours: what failed, where, and what to do, without Java's stack."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines import errors
from pipelines.config.source import Source, TableSettings
from pipelines.errors import DatasetError, MismatchError, SourceError
from pipelines.sources import files
from pipelines.sources.footers import damage

# Error conditions by their beginning, https://spark.apache.org/docs/latest/sql-error-conditions.html
_FILES = (
    "CANNOT_MERGE_SCHEMAS", "FAILED_READ_FILE", "INCONSISTENT_BEHAVIOR", "MALFORMED_", "PARQUET_", "PATH_NOT_FOUND",
    "UNABLE_TO_INFER_SCHEMA",
)  # fmt: skip
_QUERY = (
    "AMBIGUOUS_", "ARITHMETIC_", "BINARY_ARITHMETIC_", "CANNOT_PARSE_", "CANNOT_CAST", "CAST_", "CONVERSION_", "DATATYPE_",
    "DATETIME_", "DIVIDE_BY_ZERO", "DUPLICATED_MAP_KEY", "GROUP_BY_", "INCOMPATIBLE_", "INVALID_", "MAP_KEY_", "MISSING_",
    "NESTED_AGGREGATE_", "NULL_MAP_KEY", "NUMERIC_", "NUM_COLUMNS_", "PARSE_", "REMAINDER_BY_ZERO", "ROW_", "SCALAR_SUBQUERY_",
    "TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_", "UNSUPPORTED_", "USER_RAISED_EXCEPTION", "WRONG_NUM_ARGS",
)  # fmt: skip
_DEATHS = ("Python worker exited unexpectedly", "Python worker failed to connect back", "ExecutorLostFailure")
_PARQUET = re.compile(r"org\.apache\.parquet|datasources\.parquet")
"""In the stack of a failure that has no condition of Spark's."""
_COLON = "Relative path in absolute URI"
"""What Hadoop takes a colon in a file's name for."""
_NOISE = re.compile(
    r"^\s*\[[A-Z0-9_.]+\]\s*|\s*If necessary set .* to bypass this error\.|\s*Verify the spelling.*|\s*SQLSTATE: \w+.*|\s*== SQL .*",
    re.DOTALL,
)
_SHOWN = re.compile(r"== SQL .*?\(line (\d+), position (\d+)\) ==\n(.*)")
_JAVA = re.compile(
    r"^Job aborted due to stage failure.*?executor [\w.]+\): |\b(?:[a-z]\w*\.)+\w*(?:Exception|Error): |\n\s*(?:at |Driver stack).*",
    re.DOTALL,
)
"""Where in Spark's own code it happened."""
_CONDITION = re.compile(r"\s*\[([A-Z0-9_.]+)\]")
_OURS = re.compile(r"^pipelines\.errors\.(\w+): (.*?)(?:\s+SQLSTATE: \w+\s*)?\Z", re.MULTILINE | re.DOTALL)


@contextmanager
def source_errors(source: Source, asked: str = "") -> Iterator[None]:
    """Around whatever makes Spark read the tables or run the query: a corrupt file, a failed cast, an unknown column come
    out as SourceError, a full disk and processes that die as DatasetError, an error of ours that a task raised as itself, all
    else passes. `asked` is the key of the SQL that is looked at, where it is known."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        messages = _messages(error)
        if ours := _ours(messages):
            raise ours from error
        if any("No space left on device" in message for message in messages):
            raise DatasetError(
                f"no space left on {_shuffle_folder()}, where Spark shuffles; point SPARK_LOCAL_DIRS to a larger one, on "
                "a cluster that of its workers"
            ) from error
        if any(death in message for message in messages for death in _DEATHS):
            raise DatasetError(
                "a process of Spark died each time it came to the same rows: killed, or out of memory; "
                "give executors more memory, or fewer cores each, and run again"
            ) from error
        condition = _condition(messages)
        if (condition.startswith(_FILES) or _PARQUET.search(str(error))) and (told := _damaged(source)):
            raise SourceError(told) from error
        if condition.startswith(_FILES):
            raise SourceError(f"{_named(messages, source)}{_told(messages)}; {_remedy(messages)}") from error
        if condition.startswith(_QUERY) or (asked and condition):
            raise SourceError(f"{asked or _asked(messages[0], source)}: {_told(messages)}{_place(messages[0])}") from error
        if _PARQUET.search(str(error)):
            raise SourceError(
                f"{_parquet_tables(source)}: Spark cannot read what Arrow can: {_told(messages)}; write the files again"
            ) from error
        raise


def _remedy(messages: list[str]) -> str:
    if any(_COLON in message for message in messages):
        return "Hadoop reads no file with a colon in its name; rename it, or put the files into a tar archive"
    return "mend the file, or leave it out"


def _damaged(source: Source) -> str:
    """Table, file and fault of damaged Parquet, as Arrow words it: Spark's reader fails in ways of its own. Empty if there is none."""
    spark = SparkSession.getActiveSession()
    for name, table in source.tables.items():
        if spark and table.format == "parquet" and (told := damage(spark, _files_of(table))):
            return f"source.tables.{name}: {told}"
    return ""


def _files_of(table: TableSettings) -> list[str]:
    return [file.path for file in files.find(table.paths)]


def _parquet_tables(source: Source) -> str:
    return ", ".join(f"source.tables.{name}" for name, table in source.tables.items() if table.format == "parquet")


def _shuffle_folder() -> str:
    spark = SparkSession.getActiveSession()
    if spark and not str(spark.sparkContext.master).startswith("local"):
        return "an executor's disk"  # which its worker chose
    return os.environ.get("SPARK_LOCAL_DIRS") or (spark.sparkContext.getConf().get("spark.local.dir") if spark else None) or "/tmp"


@contextmanager
def naming_table(name: str) -> Iterator[None]:
    """A SourceError with the table that it is about."""
    try:
        yield
    except SourceError as error:
        if (told := _of_table(name, error)) is error:
            raise
        raise told from error


@contextmanager
def table_errors(name: str, table: TableSettings) -> Iterator[None]:
    """Around finding and opening one table: whatever Spark says there is about its files."""
    try:
        with naming_table(name):
            yield
    except (PySparkException, Py4JJavaError) as error:
        messages = _messages(error)
        if absent := re.search(r'Cannot run program "(.+?)"', " ".join(messages)):
            raise MismatchError(
                f"{absent[1]} is the executors' Python, and not on this machine, where Spark plans source.tables.{name}; correct "
                "PYSPARK_PYTHON, or unpack its archive here as well: mkdir environment && tar -xf environment.tar.gz -C environment"
            ) from error
        raise _of_table(name, _ours(messages) or SourceError(_cannot_be_read(error, messages, table))) from error


def _cannot_be_read(error: Exception, messages: list[str], table: TableSettings) -> str:
    spark = SparkSession.getActiveSession()
    if spark and table.format == "parquet" and _PARQUET.search(str(error)) and (told := damage(spark, _files_of(table))):
        return told
    return f"{table.place} cannot be read: {_told(messages)}; {_remedy(messages)}"


def _of_table(name: str, error: errors.LockstepError) -> errors.LockstepError:
    key = f"source.tables.{name}"
    return error if str(error).startswith(key) else type(error)(f"{key}: {error}")


def _messages(error: PySparkException | Py4JJavaError) -> list[str]:
    """What the error says, then its causes, for Java's exceptions that Spark has not worded for Python."""
    if isinstance(error, PySparkException):
        return [str(error)]
    found, cause = [], error.java_exception
    while cause is not None:
        found.append(cause.getMessage() or cause.getClass().getSimpleName())
        cause = cause.getCause()
    # What lies around the first that has a condition only says that a task failed.
    return list(dropwhile(lambda message: not _CONDITION.match(message), found)) or found


def _ours(messages: list[str]) -> errors.LockstepError | None:
    """The error that a Python worker raised: its traceback's last line."""
    raised = next((found for message in messages if (found := _OURS.search(message))), None)
    return getattr(errors, raised[1])(raised[2].strip()) if raised else None


def _condition(messages: list[str]) -> str:
    found = _CONDITION.match(messages[0])
    return found[1] if found else ""


def _told(messages: list[str]) -> str:
    """The first message and the last cause, in a line."""
    told = [" ".join(_NOISE.sub("", _JAVA.sub("", message)).split()) for message in dict.fromkeys((messages[0], messages[-1]))]
    return ": ".join(part.rstrip(".:")[:500] for part in told if part)


def _asked(message: str, source: Source) -> str:
    """The key of the SQL whose line Spark shows."""
    found = _SHOWN.search(message)
    keys = {"source.query": source.sql, **{f"source.expect.{name}": condition for name, condition in source.expect.items()}}
    holding = [key for key, sql in keys.items() if found and found[3] in sql]
    return " or ".join(holding) or ("source.query or source.expect" if source.expect else "source.query")


def _place(message: str) -> str:
    """Where in the query, as Spark marks it."""
    found = _SHOWN.search(message) or re.search(r"\(?line (\d+),? pos(?:ition)? (\d+)()", message)
    return f" (line {found[1]}, position {found[2]}{': ' if found[3] else ''}{found[3][:200]})" if found else ""


def _named(messages: list[str], source: Source) -> str:
    """`source.tables.name: ` of the table that a message's file belongs to, where there is one."""
    for name, table in source.tables.items():
        for path in table.paths:
            place = re.split(r"[*?\[{]", path.removeprefix("file:"), maxsplit=1)[0].lstrip("/")
            if any(place in message for message in messages):
                return f"source.tables.{name}: "
    return ""
