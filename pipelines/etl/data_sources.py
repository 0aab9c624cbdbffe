"""Python Data Sources that Spark registers by name."""

from pyspark.sql.datasource import DataSource

DATA_SOURCES: tuple[type[DataSource], ...] = ()
