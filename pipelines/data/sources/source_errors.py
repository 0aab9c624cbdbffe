"""Turns Spark's errors about data and queries into the project's: what failed, where, and the remedy, without Java's stack trace."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines import errors
from pipelines.config.source.source import Source
from pipelines.data.sources import parquet_footers
from pipelines.data.sources.base import RawTable, raw_tables
from pipelines.errors import DatasetError, LockstepError, MismatchError, SourceError
from pipelines.runtime.compat.spark import condition_of_java
from pipelines.runtime.disks import SPARK_DISK_REMEDY, full_disk

_NOISE = re.compile(
    r"^\s*\[[A-Z0-9_.]+\]\s*|\s*If necessary set .* to bypass this error\.|\s*Verify the spelling.*|\s*SQLSTATE: \w+.*|\s*== SQL .*",
    re.DOTALL,
)
SQL_CONTEXT = re.compile(r"== SQL .*?\(line (\d+), position (\d+)\) ==\n(.*)")
"""Line, position and text of the SQL: Spark's QueryContext has no line."""
_JAVA = re.compile(
    r"^Job aborted due to stage failure.*?executor [\w.]+\): |\b(?:[a-z]\w*\.)+\w*(?:Exception|Error): |\n\s*(?:at |Driver stack).*",
    re.DOTALL,
)
"""Java's class names and stack trace."""
_OURS = re.compile(r"^pipelines\.errors\.(\w+): (.*?)(?:\s+SQLSTATE: \w+\s*)?\Z", re.MULTILINE | re.DOTALL)
# Prefixes of error conditions, https://spark.apache.org/docs/latest/sql-error-conditions.html
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
_CANCELLED = "SPARK_JOB_CANCELLED"
_FILE_COLUMN = (
    "; of text, and of Parquet files with different types, there is no _metadata: set file_column of the table to a name, and select that "
    "column"
)


def _causes(error: Py4JJavaError) -> Iterator[Any]:
    """A Java exception that PySpark does not convert, and its causes."""
    cause = error.java_exception
    while cause is not None:
        yield cause
        cause = cause.getCause()


def error_messages(error: PySparkException | Py4JJavaError) -> list[str]:
    """The error's message and, of a Java exception, those of its causes."""
    if isinstance(error, PySparkException):
        return [str(error)]
    causes = list(_causes(error))
    # Those before the first with a condition only say that a task failed.
    informative = list(dropwhile(lambda cause: not condition_of_java(cause), causes)) or causes
    return [cause.getMessage() or cause.getClass().getSimpleName() for cause in informative]


def error_condition(error: PySparkException | Py4JJavaError) -> str:
    """The error's condition, or the first of its causes'; empty if there is none."""
    if isinstance(error, PySparkException):
        return error.getCondition() or ""
    return next(filter(None, map(condition_of_java, _causes(error))), "")


def lockstep_error(messages: list[str]) -> errors.LockstepError | None:
    """The LockstepError that a Python worker raised, from the last line of its traceback."""
    raised = next((match for message in messages if (match := _OURS.search(message))), None)
    return getattr(errors, raised[1])(raised[2].strip()) if raised else None


def summary_line(messages: list[str]) -> str:
    """The first message and the last cause, in one line."""
    parts = [" ".join(_NOISE.sub("", _JAVA.sub("", message)).split()) for message in dict.fromkeys((messages[0], messages[-1]))]
    return ": ".join(part.rstrip(".:")[:500] for part in parts if part)


def sql_position(message: str) -> str:
    match = SQL_CONTEXT.search(message) or re.search(r"\(?line (\d+),? pos(?:ition)? (\d+)()", message)
    return f" (line {match[1]}, position {match[2]}{': ' if match[3] else ''}{match[3][:200]})" if match else ""


@contextmanager
def source_errors(source: Source, sql_key: str = "") -> Iterator[None]:
    """Surround everything that makes Spark read the tables or run the query. A corrupt file, a failed cast or an unknown column becomes a
    SourceError, a full disk or dead processes a DatasetError. A LockstepError of a task is raised itself, and other errors propagate.
    `sql_key` is the key of the analysed SQL, if it is known."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        messages = error_messages(error)
        if cause := lockstep_error(messages) or _machine_error(messages):
            raise cause from error
        condition, tables = error_condition(error), raw_tables(source)
        failed = [table for table in tables.values() if table.reader_failed(error)]
        spark = SparkSession.getActiveSession()
        if spark and (condition.startswith(_FILES) or failed):
            for table in tables.values():
                if damage := table.damage(spark):
                    raise SourceError(f"source.tables.{table.name}: {damage}") from error
        if condition.startswith(_FILES):
            raise SourceError(f"{_table_prefix(messages, source)}{summary_line(messages)}; {_remedy(messages)}") from error
        if condition.startswith(_QUERY) or (sql_key and condition):
            hint = _FILE_COLUMN if "_metadata" in messages[0] else ""
            key = sql_key or _key_of_shown_sql(messages[0], source)
            raise SourceError(f"{key}: {summary_line(messages)}{sql_position(messages[0])}{hint}") from error
        if failed:
            names = ", ".join(f"source.tables.{table.name}" for table in failed)
            raise SourceError(f"{names}: Spark cannot read what Arrow can: {summary_line(messages)}; write the files again") from error
        raise


def _table_prefix(messages: list[str], source: Source) -> str:
    """`source.tables.name: ` of the table whose file a message names, or nothing."""
    for name, table in source.tables.items():
        places = [re.split(r"[*?\[{]", path.removeprefix("file:"), maxsplit=1)[0].lstrip("/") for path in table.paths]
        if any(place in message for place in places for message in messages):
            return f"source.tables.{name}: "
    return ""


def _key_of_shown_sql(message: str, source: Source) -> str:
    context = SQL_CONTEXT.search(message)
    keys = {"source.query": source.sql, **{f"source.expect.{name}": condition for name, condition in source.expect.items()}}
    matching = [key for key, sql in keys.items() if context and context[3] in sql]
    return " or ".join(matching) or ("source.query or source.expect" if source.expect else "source.query")


def fails_any_stage(error: Exception) -> bool:
    """Whether machines, processes or raw files caused it, and not the SQL."""
    if not isinstance(error, PySparkException | Py4JJavaError):
        return isinstance(error, LockstepError | OSError | MemoryError | Py4JNetworkError)
    messages = error_messages(error)
    cause = lockstep_error(messages) or _machine_error(messages)
    return bool(cause or error_condition(error).startswith((*_FILES, _CANCELLED)) or parquet_footers.reader_failed(error))


def _machine_error(messages: list[str]) -> DatasetError | None:
    """The error for a full disk or dead processes."""
    if any("No space left on device" in message for message in messages):
        spark = SparkSession.getActiveSession()
        folder = "an executor's disk"  # which its worker chose
        if not spark or str(spark.sparkContext.master).startswith("local"):
            configured = spark.sparkContext.getConf().get("spark.local.dir") if spark else None
            folder = os.environ.get("SPARK_LOCAL_DIRS") or configured or "/tmp"
        return DatasetError(full_disk(folder, "Spark shuffles", SPARK_DISK_REMEDY))
    if any(death in message for message in messages for death in _DEATHS):
        return DatasetError(
            "a process of Spark died each time it came to the same rows: killed, or out of memory; "
            "give executors more memory, or fewer cores each, and run again"
        )
    return None


def _remedy(messages: list[str]) -> str:
    if any("Relative path in absolute URI" in message for message in messages):
        return "Hadoop reads no file with a colon in its name; rename it, or put the files into a tar archive"
    return "write the file again, or leave it out"


@contextmanager
def naming_table(name: str) -> Iterator[None]:
    try:
        yield
    except SourceError as error:
        if (named := _name_table(name, error)) is error:
            raise
        raise named from error


@contextmanager
def table_errors(table: RawTable[Any]) -> Iterator[None]:
    """Surround the finding and opening of one table, where Spark's errors are about its files."""
    try:
        with naming_table(table.name):
            yield
    except (PySparkException, Py4JJavaError) as error:
        messages = error_messages(error)
        if absent := re.search(r'Cannot run program "(.+?)"', " ".join(messages)):
            raise MismatchError(
                f"{absent[1]} is the executors' Python, and not on this machine, where Spark plans source.tables.{table.name}; correct "
                "PYSPARK_PYTHON, or unpack its archive here as well: mkdir environment && tar -xf environment.tar.gz -C environment"
            ) from error
        spark = SparkSession.getActiveSession()
        damage = table.damage(spark) if spark and not lockstep_error(messages) and table.reader_failed(error) else ""
        unreadable = damage or f"{table.settings.place} cannot be read: {summary_line(messages)}; {_remedy(messages)}"
        raise _name_table(table.name, lockstep_error(messages) or SourceError(unreadable)) from error


def _name_table(name: str, error: LockstepError) -> LockstepError:
    """Prefix the error with the table's key, unless it has it."""
    key = f"source.tables.{name}"
    return error if str(error).startswith(key) else type(error)(f"{key}: {error}")
