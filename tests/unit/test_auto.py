"""Features by pattern, and what `auto` stands for, without Spark."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fitting import choose_in_memory, fit

from pipelines.config import Config, parse
from pipelines.config.dataset.dataset import Dataset
from pipelines.config.effects import ineffective_settings
from pipelines.data.features.auto.patterns import name_columns
from pipelines.errors import ConfigError

SCHEMA = pa.schema(
    {
        "id": pa.int64(), "sensor_a": pa.float64(), "sensor_b": pa.float32(), "job": pa.string(), "age": pa.int32(),
        "member": pa.bool_(), "born": pa.date32(), "photo": pa.binary(), "tags": pa.list_(pa.string()), "rich": pa.bool_(),
    }
)  # fmt: skip
ROWS = 400
CONFIG: dict[str, Any] = {
    "name": "people",
    "source": {"tables": {"people": {"format": "parquet", "path": "people.parquet"}}},
    "task": {"kind": "tabular"},
}


def dataset(features: dict[str, Any], **settings: Any) -> Dataset:
    return Dataset.model_validate({"path": "data", "key": "id", "features": features, "target": {"rich": "binary"}, **settings})


def name_features(features: dict[str, Any], **settings: Any) -> dict[str, str]:
    return {name: feature.encoder for name, feature in name_columns(dataset(features, **settings), SCHEMA).features.items()}


def identity(features: dict[str, Any]) -> Any:
    return config(features).data_identity


def config(features: dict[str, Any]) -> Config:
    return parse({**CONFIG, "dataset": {"path": "data", "features": features, "target": {"rich": "binary"}}}, "people.yaml")


def test_the_first_pattern_that_matches_counts() -> None:
    encoders = name_features({"sensor_a": "log1p", "sensor_*": "standardize", "*:boolean": "binary", "*:text": "vocabulary", "*": "auto"})
    assert encoders == {
        "sensor_a": "log1p", "sensor_b": "standardize", "member": "binary", "job": "vocabulary", "age": "auto", "born": "auto",
        "photo": "auto", "tags": "auto",
    }  # fmt: skip


def test_key_target_passthrough_and_columns_of_the_split_are_not_matched() -> None:
    clients = {"client": {"encoder": "vocabulary", "column": "job"}}
    encoders = name_features({"*": "auto"}, passthrough=clients, split={"time": "born", "validation": "2020-01-01", "test": "2021-01-01"})
    assert not {"id", "rich", "job", "born"} & encoders.keys()


def test_a_column_that_an_entry_above_reads_is_not_matched_and_one_below_adds_a_feature() -> None:
    bins = {"ages": {"encoder": "quantile", "column": "age"}}
    assert "age" not in name_features({**bins, "*": "auto"})
    assert {"age", "ages"} <= name_features({"*": "auto", **bins}).keys()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"senser_*": "standardize"}, r"senser_\*: no column of the query matches; did you mean sensor_"),
        ({"*:date": "vocabulary"}, "no column of the query matches; a kind is one of number, text, boolean, time, array"),
        ({"*": "auto", "age": "log1p"}, r"features.age: \* above it matches the column age first; move age before it"),
        ({"*": "auto", "sensor_*": "log1p"}, r"is read already, sensor_a by \*, sensor_b by \*"),
        ({"*": "standardize"}, "standardize cannot encode job, born, photo, tags"),
        ({"born": "auto"}, "auto takes no column of type date32"),
        ({"photo": "auto"}, "auto takes no column of type binary"),
        ({"i*": "log1p"}, "is read already, id by dataset.key"),
    ],
)  # fmt: skip
def test_a_pattern_that_stands_for_nothing_is_an_error(features: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        name_features(features)


def test_every_error_has_a_line() -> None:
    with pytest.raises(ConfigError) as error:
        name_features({"x_*": "log1p", "y_*": "log1p", "*": "standardize"})
    assert len(str(error.value).splitlines()) == 3


def test_the_order_of_patterns_belongs_to_the_identity_and_that_of_columns_does_not() -> None:
    assert identity({"a*": "log1p", "*b": "standardize"}) != identity({"*b": "standardize", "a*": "log1p"})
    assert identity({"a": "log1p", "b": "standardize"}) == identity({"b": "standardize", "a": "log1p"})
    assert "feature_order" not in identity({"a": "log1p"})["dataset"]


def test_slices_may_be_columns_of_a_pattern() -> None:
    section = {"path": "data", "features": {"sex_*": "vocabulary"}, "target": {"rich": "binary"}}
    parse({**CONFIG, "task": {"kind": "tabular", "slices": ["sex_a"]}, "dataset": section}, "people.yaml")
    with pytest.raises(ConfigError, match=r"task\.slices: age is no column"):
        parse({**CONFIG, "task": {"kind": "tabular", "slices": ["age"]}, "dataset": section}, "people.yaml")


def test_auto_may_embed() -> None:
    section = {"path": "data", "features": {"*": "auto"}, "target": {"rich": "binary"}}
    assert (
        list(ineffective_settings(parse({**CONFIG, "task": {"kind": "tabular", "embedding": 8}, "dataset": section}, "people.yaml"))) == []
    )


def table(**columns: Any) -> pa.Table:
    random = np.random.default_rng(7)
    y = random.integers(0, 2, ROWS).astype(bool)
    return pa.table({"normal": random.normal(size=ROWS), **columns, "y": y})


def choose_features(raw: pa.Table, features: dict[str, Any] | None = None, target: Any = "binary") -> dict[str, Any]:
    choice = choose_in_memory(features or {"*": "auto"}, {"y": target}, raw)
    settings = {name: feature.model_dump(exclude_defaults=True) for name, feature in choice.dataset.features.items()}
    return {**{name: {"encoder": choice.dataset.features[name].encoder, **values} for name, values in settings.items()}, **choice.left_out}


def test_numbers_are_encoded_alike_for_classes_and_for_a_quantity() -> None:
    assert choose_features(table()) == {"normal": {"encoder": "normal_quantile"}}
    raw = table().set_column(1, "y", pa.array(np.random.default_rng(1).normal(size=ROWS)))
    assert choose_features(raw, target="standardize") == {"normal": {"encoder": "normal_quantile"}}


def test_counts_and_several_numbers_are_quantities_and_labels_are_classes() -> None:
    raw = table(copy=np.arange(ROWS) % 50 * 2.5)
    counts = raw.set_column(2, "y", pa.array(np.arange(ROWS) % 50))
    assert choose_features(counts, target="count") == {"normal": {"encoder": "normal_quantile"}, "copy": "a near copy of the target"}
    wide = counts.append_column("more", pa.array(np.random.default_rng(3).normal(size=ROWS)))
    vector = choose_features(wide, target={"encoder": "vector", "columns": ["y", "normal"]})
    assert set(vector) == {"copy", "more"} and vector["copy"] == "a near copy of the target", "no column of the target is a feature"
    vector = choose_features(wide, target={"encoder": "vector", "columns": ["normal", "y"]})
    assert vector["copy"] == "a near copy of the target", "whichever column of the target it copies"
    labels = raw.set_column(2, "y", pa.array([["a"], ["a", "b"], []] * (ROWS // 3) + [[]] * (ROWS % 3)))
    assert set(choose_features(labels, target="labels")) == {"normal", "copy"}


def test_missing_values_of_any_split_are_imputed() -> None:
    values = pa.array([None if place % 10 == 0 else float(place % 37) for place in range(ROWS)])
    assert choose_features(table(some=values))["some"] == {"encoder": "normal_quantile", "impute": "median"}


def test_numbers_of_more_than_a_hundred_columns_have_no_values_besides() -> None:
    random = np.random.default_rng(3)
    spent = np.where(random.random(ROWS) < 0.95, 0, random.integers(1, 9, ROWS))
    numbers = {f"c{number}": random.normal(size=ROWS) for number in range(100)}
    few = choose_features(table(spent=spent))
    assert few["spent"] == {"encoder": "standardize"} and few["spent_values"]["encoder"] == "vocabulary"
    many = choose_features(table(spent=spent, **numbers))
    assert len(many) == 102 and {values["encoder"] for values in many.values()} == {"standardize", "normal_quantile"}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1.5] * ROWS, "constant, always 1.5"),
        (["a"] * ROWS, "constant, always a"),
        ([True] * ROWS, "constant, always 1"),
        (pa.nulls(ROWS, pa.float64()), "empty"),
        (pa.nulls(ROWS, pa.string()), "empty"),
        ([f"row {number}" for number in range(ROWS)], "400 different texts in 400 rows, an identifier"),
        (list(range(ROWS)), "a number of the row, which says nothing"),
        ([b"x"] * ROWS, "of type binary, which no encoder takes"),
        ([{"a": 1}] * ROWS, "of type struct<a: int64>, which no encoder takes"),
        (pa.array([0] * ROWS, pa.date32()), "of type date, whose parts the query can make, such as month(…)"),
        ([[1.0], [1.0, 2.0]] * (ROWS // 2), "lists of different lengths, of type list<item: double>"),
        (pa.array([["a"], None] * (ROWS // 2)), "has NULL, which its encoder refuses: coalesce() in the query"),
    ],
)
def test_columns_that_teach_nothing_are_left_out_with_a_reason(values: Any, reason: str) -> None:
    assert choose_features(table(x=values))["x"] == reason


def test_a_copy_of_the_target_is_left_out_unless_it_is_named() -> None:
    raw = table()
    raw = raw.append_column("copy", pa.array(["yes" if value else "no" for value in raw["y"].to_pylist()]))
    assert choose_features(raw)["copy"] == "a near copy of the target"
    assert choose_features(raw, {"copy": "auto"}) == {"copy": {"encoder": "vocabulary"}}


def test_named_arrays_with_null_are_not_imputed() -> None:
    raw = table(x=pa.array([[1.0, 2.0], *[[float(row), 0.5] for row in range(ROWS - 2)], None]))
    choice = choose_in_memory({"x": "auto"}, {"y": "binary"}, raw)
    assert choice.dataset.features["x"].model_dump(exclude_defaults=True) == {"shape": (2,)}
    assert fit({"x": choice.dataset.features["x"].model_dump()}, {"y": "binary"}, raw).keys() == {"x", "y"}


def test_kinds_of_columns_have_their_encoders() -> None:
    random = np.random.default_rng(5)
    words = [" ".join(random.choice(["red", "green", "blue", "sun", "tree"], 9)) for _ in range(ROWS)]
    encoders = choose_features(
        table(
            word=pa.array(["a", "b", None, "c"] * (ROWS // 4)),
            switch=pa.array([True, False] * (ROWS // 2)),
            maybe=pa.array([True, None] * (ROWS // 2)),
            text=words,
            vector=pa.array([[1.0, 2.0]] * ROWS),
            spent=pa.array(np.where(random.random(ROWS) < 0.4, 0, random.lognormal(0, 4, ROWS))),
        )
    )
    assert {name: encoders[name]["encoder"] for name in ("word", "switch", "maybe", "text", "vector", "spent")} == {
        "word": "vocabulary", "switch": "binary", "maybe": "vocabulary", "text": "sequence", "vector": "identity", "spent": "log1p",
    }  # fmt: skip


def test_a_feature_may_have_another_name_than_its_column() -> None:
    encoders = choose_features(table(), {"n": {"encoder": "auto", "column": "normal"}})
    assert encoders["n"] == {"encoder": "normal_quantile", "column": "normal"}


def test_names_of_more_features_of_a_column_are_free() -> None:
    random = np.random.default_rng(2)
    spent = np.where(random.random(ROWS) < 0.95, 0, random.integers(1, 9, ROWS))
    encoders = choose_features(table(spent=spent, spent_values=random.normal(size=ROWS)))
    assert {"normal", "spent", "spent_values", "spent_values_2"} == encoders.keys()
