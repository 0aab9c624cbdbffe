"""The places that `lockstep predict --input` gives to a table of each format."""

from typing import Any

import pytest

from pipelines.config import parse
from pipelines.errors import ConfigError
from pipelines.serving.batch.input_tables import set_input_paths

POSTGRES = {"format": "postgres", "url": "postgresql://a@host/db", "table": "people", "key": "id"}
CATALOG = {"format": "iceberg", "catalog": {"type": "sql", "uri": "sqlite:///x.db"}, "table": "db.t", "branch": "main"}


def settings_at(table: dict[str, Any], *inputs: str) -> dict[str, Any]:
    """The settings of the table at the places."""
    dataset = {"path": "data", "features": {"age": "identity"}, "target": {"label": "binary"}}
    config = parse({"name": "n", "source": {"tables": {"t": table}}, "dataset": dataset, "task": {"kind": "tabular"}}, "test")
    (changed,) = set_input_paths(config, inputs, "t")[0].source.tables.values()
    return changed.model_dump(mode="json", exclude_defaults=True, exclude={"format"})


@pytest.mark.parametrize(
    ("table", "inputs", "expected"),
    [
        ({"format": "parquet", "path": "/old"}, ("/a", "/b"), {"path": ["/a", "/b"]}),
        ({"format": "delta", "path": "/old", "version": 3}, ("t=/new@1",), {"path": "/new@1"}),
        ({"format": "delta", "path": "/old", "timestamp": "2026-01-31"}, ("delta:/new@1",), {"path": "/new", "version": 1}),
        ({"format": "iceberg", "path": "/old", "snapshot": 7}, ("/new",), {"path": "/new"}),
        (CATALOG, ("/new/metadata/v3.metadata.json",), {"path": "/new/metadata/v3.metadata.json"}),
        (POSTGRES, ("postgresql://b@other/db",), {**POSTGRES, "url": "postgresql://b@other/db"}),
        (
            POSTGRES,
            ("t=postgresql://b@other/db?sslmode=require&table=new",),
            {"url": "postgresql://b@other/db?sslmode=require", "table": "new"},
        ),
        (POSTGRES, ("postgresql://b@other/db?query=SELECT 1",), {"url": "postgresql://b@other/db", "query": "SELECT 1"}),
    ],
)
def test_a_table_of_any_format_can_be_elsewhere(table: dict[str, Any], inputs: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert settings_at(table, *inputs) == {name: value for name, value in expected.items() if name != "format"}


@pytest.mark.parametrize(
    ("table", "inputs", "message"),
    [
        (
            {"format": "delta", "path": "/old"},
            ("/a", "/b"),
            "source.tables.t is of format delta, a table at one place, not 2; give one after the other",
        ),
        (
            POSTGRES,
            ("/a",),
            "source.tables.t is of format postgres: /a is no address of PostgreSQL; give postgresql://user@host:5432/database",
        ),
        (
            {"format": "spark", "source": "jdbc"},
            ("/a",),
            "has no path; set its own settings, as --source.tables.TABLE.SETTING VALUE, without --input",
        ),
    ],
)
def test_a_place_that_is_none_of_the_format_is_an_error(table: dict[str, Any], inputs: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_at(table, *inputs)
    assert message in str(error.value)
