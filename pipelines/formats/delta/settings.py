"""Settings of the format `delta`."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipelines.config.section import Text
from pipelines.config.source.source import PathTableSettings


class DeltaLakeTable(PathTableSettings):
    """A version of a table of Delta Lake. Without `version` and `timestamp`, the latest one when ETL starts."""

    implementation: ClassVar[str] = "pipelines.formats.delta.table:DeltaLake"
    sampler: ClassVar[str] = "pipelines.formats.delta.draft:rows_to_try"
    format: Literal["delta"] = "delta"
    path: Text
    """Of the table's folder, which holds `_delta_log`: a path or a URI, such as s3://bucket/table. A store's credentials are those of the
    environment, such as AWS_ACCESS_KEY_ID."""
    version: int | None = Field(None, ge=0, exclude_if=lambda version: version is None)
    """The number of the version to read."""
    timestamp: str = Field("", exclude_if=lambda timestamp: not timestamp)
    """In place of `version`: the one that was the latest at this moment, as ISO 8601 writes it, in UTC unless it names a zone."""

    def at(self, places: Sequence[str]) -> Self:
        """At `FOLDER`, or a version at `delta:FOLDER@VERSION`."""
        path, version = split_address(self.only_place(places))
        return self.model_copy(update={"path": path, "version": version, "timestamp": ""})

    @field_validator("timestamp", mode="before")
    @classmethod
    def _is_a_moment(cls, timestamp: object) -> str:
        text = timestamp.isoformat() if hasattr(timestamp, "isoformat") else str(timestamp)
        if text:
            try:
                parse_moment(text)
            except ValueError:
                raise ValueError(f"must be a moment such as 2026-11-30T08:00:00Z (got {text})") from None
        return text

    @model_validator(mode="after")
    def _names_one_version(self) -> "DeltaLakeTable":
        if self.version is not None and self.timestamp:
            raise ValueError(f"version is {self.version} and timestamp {self.timestamp}, which may be another one; remove one of the two")
        return self


def split_address(address: str) -> tuple[str, int | None]:
    """The folder of `delta:FOLDER` or `delta:FOLDER@VERSION`, and the version; other texts are a folder's."""
    match = re.fullmatch(r"delta:(.+?)(?:@(\d+))?", address)
    return (match[1], int(match[2]) if match[2] else None) if match else (address, None)


def parse_moment(text: str) -> datetime:
    """The moment that ISO 8601 writes so, with a zone. Raises ValueError for another text."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
