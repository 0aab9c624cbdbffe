"""What Spark says of an error: its messages, the condition that it names, and a line of it without Java's stack."""

import re
from itertools import dropwhile

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pipelines import errors

_NOISE = re.compile(
    r"^\s*\[[A-Z0-9_.]+\]\s*|\s*If necessary set .* to bypass this error\.|\s*Verify the spelling.*|\s*SQLSTATE: \w+.*|\s*== SQL .*",
    re.DOTALL,
)
SHOWN = re.compile(r"== SQL .*?\(line (\d+), position (\d+)\) ==\n(.*)")
"""Line, position and text of the SQL."""
_JAVA = re.compile(
    r"^Job aborted due to stage failure.*?executor [\w.]+\): |\b(?:[a-z]\w*\.)+\w*(?:Exception|Error): |\n\s*(?:at |Driver stack).*",
    re.DOTALL,
)
"""Where in Spark's own code it happened."""
_CONDITION = re.compile(r"\s*\[([A-Z0-9_.]+)\]")
_OURS = re.compile(r"^pipelines\.errors\.(\w+): (.*?)(?:\s+SQLSTATE: \w+\s*)?\Z", re.MULTILINE | re.DOTALL)


def messages_of(error: PySparkException | Py4JJavaError) -> list[str]:
    """What the error says, then its causes, for Java's exceptions that Spark has not worded for Python."""
    if isinstance(error, PySparkException):
        return [str(error)]
    found, cause = [], error.java_exception
    while cause is not None:
        found.append(cause.getMessage() or cause.getClass().getSimpleName())
        cause = cause.getCause()
    # What lies around the first that has a condition only says that a task failed.
    return list(dropwhile(lambda message: not _CONDITION.match(message), found)) or found


def error_of_ours(messages: list[str]) -> errors.LockstepError | None:
    """The error that a Python worker raised: its traceback's last line."""
    raised = next((found for message in messages if (found := _OURS.search(message))), None)
    return getattr(errors, raised[1])(raised[2].strip()) if raised else None


def condition_of(messages: list[str]) -> str:
    found = _CONDITION.match(messages[0])
    return found[1] if found else ""


def in_a_line(messages: list[str]) -> str:
    """The first message and the last cause, in a line."""
    told = [" ".join(_NOISE.sub("", _JAVA.sub("", message)).split()) for message in dict.fromkeys((messages[0], messages[-1]))]
    return ": ".join(part.rstrip(".:")[:500] for part in told if part)


def position_in(message: str) -> str:
    """Where in the query, as Spark marks it."""
    found = SHOWN.search(message) or re.search(r"\(?line (\d+),? pos(?:ition)? (\d+)()", message)
    return f" (line {found[1]}, position {found[2]}{': ' if found[3] else ''}{found[3][:200]})" if found else ""
