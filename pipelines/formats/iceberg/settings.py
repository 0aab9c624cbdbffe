"""Settings of the format `iceberg`."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipelines.config.secrets import has_login, is_secret
from pipelines.config.source.source import PathTableSettings


class IcebergTable(PathTableSettings):
    """A snapshot of an Iceberg table. What identifies the rows is the table's UUID and the snapshot's ID."""

    implementation: ClassVar[str] = "pipelines.formats.iceberg.table:Iceberg"
    sampler: ClassVar[str] = "pipelines.formats.iceberg.draft:rows_to_try"
    excluded_from_identity: ClassVar[frozenset[str]] = frozenset({"path", "catalog"})
    format: Literal["iceberg"] = "iceberg"
    path: str = Field("", exclude_if=lambda path: not path)
    """A file of the table's metadata, or the table's folder: then its newest metadata, by `version-hint.text` or by their numbers."""
    catalog: dict[str, str | bool | int | float] = Field({}, exclude_if=lambda catalog: not catalog)
    """In place of `path`: the properties of a catalog, as pyiceberg has them, such as `{type: sql, uri: sqlite:///catalog.db}`. Its `name`,
    `default` unless given, is that under which pyiceberg finds further properties in the environment: secrets belong there, such as
    PYICEBERG_CATALOG__NAME__CREDENTIAL. Of a catalog in SQL it is the name under which its tables stand."""
    table: str = Field("", exclude_if=lambda table: not table)
    """The table in the catalog, with its namespace: `sales.orders`."""
    snapshot: int | None = Field(None, exclude_if=lambda snapshot: snapshot is None)
    """The ID of the snapshot; by default the current one when ETL starts."""
    branch: str = Field("", exclude_if=lambda branch: not branch)
    """The branch whose newest snapshot is read."""
    tag: str = Field("", exclude_if=lambda tag: not tag)
    """The tag whose snapshot is read."""

    @property
    def place(self) -> str:
        return self.path or self.table

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if self.path else ()

    def at(self, places: Sequence[str]) -> Self:
        """The current snapshot of a table at a path."""
        names = ("catalog", "table", "snapshot", "branch", "tag")
        return self.model_copy(update={"path": self.only_place(places), **{name: type(self).model_fields[name].default for name in names}})

    @field_validator("catalog")
    @classmethod
    def _catalog_holds_no_secret(cls, catalog: dict[str, str | bool | int | float]) -> dict[str, str | bool | int | float]:
        for name, value in catalog.items():
            if is_secret(name) or has_login(str(value)):
                variable = f"PYICEBERG_CATALOG__{catalog.get('name', 'NAME')}__{name}".upper().replace(".", "__").replace("-", "_")
                raise ValueError(
                    f"{name} holds a secret, and a config is shown to all who see the run; name the catalog, and set the property in "
                    f"the environment: {variable}"
                )
        return catalog

    @model_validator(mode="after")
    def _names_one_table_and_one_snapshot(self) -> "IcebergTable":
        if bool(self.path) == bool(self.table):
            number = "both are" if self.path else "neither is"
            raise ValueError(f"iceberg reads a path, or a table of a catalog ({number} set); set one of path and table")
        if bool(self.catalog) != bool(self.table):
            absent, present = ("catalog", "table") if self.table else ("table", "catalog")
            raise ValueError(f"{present} is set without {absent}; set both, such as `catalog: {{type: sql, uri: …}}` and `table: db.t`")
        names = [name for name in ("snapshot", "branch", "tag") if getattr(self, name) not in (None, "")]
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)} are set, and each names a snapshot; keep one")
        return self
