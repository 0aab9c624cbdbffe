"""Settings of the format `spark`."""

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pipelines.config import secrets
from pipelines.config.secrets import is_secret
from pipelines.config.source.table_settings import FORMATS, TableSettings, Value

_ASSIGNMENT = re.compile(r"([^=\s]+)=([A-Za-z_]\w*)", re.ASCII)
SNAPSHOT_OPTIONS = {"delta": "versionasof", "iceberg": "snapshot-id"}
"""The option, in lower case, that names a snapshot which cannot change, by the source that has it. Others would ignore it."""


class SparkTable(TableSettings):
    """Whatever Spark reads: a data source on its class path, or a table of its catalogs."""

    implementation: ClassVar[str] = "pipelines.formats.spark_source.table:SparkSource"
    format: Literal["spark"] = "spark"
    source: str = Field("", exclude_if=lambda source: not source)
    """Name of a data source, such as orc, avro, jdbc, iceberg or delta, as `spark.read.format` takes it."""
    table: str = Field("", exclude_if=lambda table: not table)
    """In place of `source`: a table of a catalog, such as spark_catalog.sales.orders."""
    options: dict[str, Value] = Field({}, exclude_if=lambda options: not options)
    """Options of the source, such as `path`, `url`, `dbtable`, `versionAsOf` of Delta, or `snapshot-id` of Iceberg."""
    options_from: tuple[str, ...] = Field((), exclude_if=lambda options: not options)
    """Options that environment variables hold, as passwords do: `[password=ORDERS_PASSWORD]`."""

    @property
    def place(self) -> Any:
        return self.table or " ".join([self.source, *(str(self.options[name]) for name in ("path", "dbtable") if name in self.options)])

    @field_validator("options")
    @classmethod
    def _options_have_no_secret(cls, options: dict[str, Value]) -> dict[str, Value]:
        if secret := next((option for option in options if is_secret(option)), ""):
            raise ValueError(f"{secret} is a secret, {secrets.ELSEWHERE}; name its variable as options_from: [{secret}=VARIABLE]")
        return options

    @field_validator("options_from")
    @classmethod
    def _options_have_variables(cls, assignments: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := next((text for text in assignments if not _ASSIGNMENT.fullmatch(text)), None):
            raise ValueError(f"{wrong} is no option with the name of an environment variable; write it as password=VARIABLE")
        return assignments

    @field_validator("source")
    @classmethod
    def _source_has_no_format(cls, source: str) -> str:
        if source in FORMATS and FORMATS[source].needs_schema:
            raise ValueError(f"Spark reads broken records of {source} as NULL; set format: {source}, which puts them into quarantine")
        return source

    @field_validator("table")
    @classmethod
    def _table_is_qualified(cls, table: str) -> str:
        if table and "." not in table:
            raise ValueError(f"{table} may also be the name of a table in source.tables; name its database, as default.{table}")
        return table

    @model_validator(mode="after")
    def _reads_a_source_or_a_table(self) -> "SparkTable":
        if bool(self.source) == bool(self.table):
            both = "both are set" if self.source else "neither is set"
            raise ValueError(f"format spark reads a source or a table ({both}); set one of source and table")
        return self

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables by the option that each holds."""
        return dict(text.split("=", 1) for text in self.options_from)

    @property
    def snapshot(self) -> str:
        """The snapshot that the options name; empty if none is named."""
        option = SNAPSHOT_OPTIONS.get(self.source.lower(), "")
        return next((str(value) for name, value in self.options.items() if option and name.lower() == option), "")
