"""Spark's errors: their condition, their messages, and a line for people without Java's stack trace."""

import re
from collections.abc import Iterator
from itertools import dropwhile
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pipelines import errors
from pipelines.runtime.compat.spark import condition_of_java

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


def error_messages(error: PySparkException | Py4JJavaError) -> list[str]:
    """The error's message and, of a Java exception that PySpark does not convert, those of its causes."""
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


def _causes(error: Py4JJavaError) -> Iterator[Any]:
    """The Java exception and its causes."""
    cause = error.java_exception
    while cause is not None:
        yield cause
        cause = cause.getCause()


def lockstep_error(messages: list[str]) -> errors.LockstepError | None:
    """The LockstepError that a Python worker raised, from the last line of its traceback."""
    raised = next((match for message in messages if (match := _OURS.search(message))), None)
    return getattr(errors, raised[1])(raised[2].strip()) if raised else None


def summary_line(messages: list[str]) -> str:
    """The first message and the last cause, in one line."""
    parts = [" ".join(_NOISE.sub("", _JAVA.sub("", message)).split()) for message in dict.fromkeys((messages[0], messages[-1]))]
    return ": ".join(part.rstrip(".:")[:500] for part in parts if part)


def sql_position(message: str) -> str:
    """The position in the query, as Spark marks it."""
    match = SQL_CONTEXT.search(message) or re.search(r"\(?line (\d+),? pos(?:ition)? (\d+)()", message)
    return f" (line {match[1]}, position {match[2]}{': ' if match[3] else ''}{match[3][:200]})" if match else ""
