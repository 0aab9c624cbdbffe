"""One condition of many. Spark handles expressions by recursion, so a chain of some hundreds overflows Java's stack: these are trees."""

from collections.abc import Callable, Sequence
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F


def disjunction(conditions: Sequence[Column]) -> Column:
    """Whether one of the conditions holds; false if there are none."""
    return _join(conditions, or_) if conditions else F.lit(False)


def conjunction(conditions: Sequence[Column]) -> Column:
    """Whether all conditions hold; true if there are none."""
    return _join(conditions, and_) if conditions else F.lit(True)


def _join(conditions: Sequence[Column], operator: Callable[[Column, Column], Column]) -> Column:
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return operator(_join(conditions[:middle], operator), _join(conditions[middle:], operator))
