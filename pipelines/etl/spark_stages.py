"""Seconds, spill and skew of Spark's stages, from the status that Spark keeps of its last thousand, with or without its UI."""

import re
from collections.abc import Mapping
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pipelines.data.versions.data_profile import SparkStage
from pipelines.runtime.compat.spark import finished_stages

Spans = Mapping[str, tuple[float, float]]
"""Begin and end of each stage of the ETL, in seconds since 1970."""


def spark_stages(spark: SparkSession, spans: Spans) -> tuple[SparkStage, ...]:
    """Spark's finished stages that began within a span, in their order; none if Spark does not answer."""
    stages = []
    with suppress(Py4JError, OSError):
        for began, numbers in finished_stages(spark):
            stage = next((name for name, (begin, end) in spans.items() if begin <= began <= end), None)
            if stage is not None:
                seconds = {name: round(value, 3) for name, value in numbers.items() if name.endswith("seconds")}
                call = re.sub(r" at \S*/", " at ", numbers["call"])  # without the folder of the file
                stages.append(SparkStage(stage=stage, **{**numbers, **seconds, "call": call}))
    return tuple(sorted(stages, key=lambda stage: stage.number))


def event_log(spark: SparkSession) -> str:
    """Where Spark writes this application's events, for its history server; empty if it does not, or does not answer."""
    with suppress(Py4JError, OSError):
        context = spark.sparkContext
        if context.getConf().get("spark.eventLog.enabled", "false") == "true":
            folder = str(context.getConf().get("spark.eventLog.dir", "file:///tmp/spark-events"))
            return f"{folder.rstrip('/')}/{context.applicationId}"
    return ""
