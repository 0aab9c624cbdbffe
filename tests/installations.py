"""Executors of another installation, as `check_executors` sees them."""

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

JAVA = {"locale": "en_US", "time zone": "UTC", "encoding of file names": "UTF-8", "version": "17"}


def session(has_pipelines: bool = True, java: dict[str, str] | None = None, **other: str) -> Any:
    """What `check_executors` asks of Spark: one executor, which answers as this process does but for `java` and `other`."""

    def map_partitions(tell: Callable[[Iterable[int]], Iterator[Any]]) -> Any:
        answers = [("there", {**versions, **other}, has and has_pipelines) for _, versions, has in tell([0])]
        return SimpleNamespace(collect=lambda: answers)

    rows = SimpleNamespace(mapPartitions=map_partitions)
    states = SimpleNamespace(distinct=lambda: SimpleNamespace(collect=lambda: [{**JAVA, **(java or {})}]))
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master="spark://there:7077", defaultParallelism=1, parallelize=lambda *_: rows),
        range=lambda *_: SimpleNamespace(selectExpr=lambda *_: states),
    )
