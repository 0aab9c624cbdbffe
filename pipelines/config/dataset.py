"""`dataset`: where versions go, how rows are split, and how columns are encoded."""

from typing import Annotated, Any

import tyro
from pydantic import AfterValidator, BeforeValidator, Discriminator, PositiveInt, Tag, model_validator

from pipelines.config.features import Feature
from pipelines.config.section import Fraction, Section, Text


def _of_a_column(name: str) -> str:
    if not (0 < len(name) <= 100 and name.isprintable()) or set(".`/") & set(name):
        raise ValueError("a tensor column's name has 1 to 100 characters, none of them . ` or /; choose another, and give its `column`")
    return name


ColumnName = Annotated[str, AfterValidator(_of_a_column)]
# YAML has made dates of 2017-01-01 by now, and numbers of 300.
Moment = Annotated[Text, BeforeValidator(lambda value: value if value is None else str(value))]


class ByFraction(Section):
    """Rows are dealt by a hash of `key`, so that a row which changes stays in its split; without a key by one of all columns;
    with `group` by that column's value."""

    train: Fraction = 0.8
    """Share of the rows that a model is fitted to."""
    validation: Fraction = 0.1
    """Share of the rows that choose the best epoch."""
    test: Fraction = 0.1
    """Share of the rows that the best epoch is judged by in the end."""
    group: str = ""
    """Column whose equal values stay in one split."""

    @model_validator(mode="after")
    def _fractions_make_a_whole(self) -> "ByFraction":
        total = self.train + self.validation + self.test
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train + validation + test is {total:g}; it must be 1")
        return self


class ByColumn(Section):
    """A column of the query says train, validation or test: for published splits."""

    by: Text
    """That column; rows that say anything else are quarantined."""
    validation: Fraction = 0.0
    """Share of the rows marked `train` that the hash of their `key`, or of all columns without one, moves to validation."""


class ByTime(Section):
    """Rows before `validation` train, rows before `test` validate, later ones test."""

    time: Text
    """Column that is compared, in its own type."""
    validation: Moment
    """First value of the validation split, as a SQL literal is written: 2017-01-01."""
    test: Moment
    """First value of the test split."""


def _kind_of_split(value: Any) -> str:
    keys = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return "column" if "by" in keys else "time" if "time" in keys else "fraction"


Split = Annotated[
    Annotated[ByFraction, Tag("fraction")] | Annotated[ByColumn, Tag("column")] | Annotated[ByTime, Tag("time")],
    Discriminator(_kind_of_split),
]


class Dataset(Section):
    """The result of ETL: a folder of immutable versions."""

    path: Text
    """Folder of the versions, or a URI of any file system pyarrow knows."""
    key: Annotated[tuple[Text, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = ()
    """Columns that identify a row: of rows that share a key one, chosen by content, is kept, and the others are quarantined.
    Without one, equal rows are kept."""
    split: tyro.conf.Suppress[Split] = ByFraction()
    """Which rows train, validate and test: by shares, by a column of the query, or by time."""
    features: tyro.conf.Suppress[dict[ColumnName, Feature]]
    """Tensor columns the model takes, by name. The query's other columns are left out, and listed in the log."""
    target: tyro.conf.Suppress[dict[ColumnName, Feature]] = {}
    """The one tensor column the model predicts; none beside a feature that is packed, whose later tokens are predicted."""
    part_bytes: PositiveInt = 256 * 2**20
    """Encoded size of a part file, about."""
    row_group_bytes: PositiveInt = 16 * 2**20
    """Decoded size of a row group, about; it has 64 to 262,144 rows."""

    @model_validator(mode="after")
    def _columns_fit_together(self) -> "Dataset":
        if packed := [name for name, settings in self.encoders.items() if settings.packs]:
            if list(self.features) != packed or self.target:
                raise ValueError(
                    f"{packed[0]} is packed into windows, which are no rows of the query: it must be the only feature, without a target"
                )
            return self
        if not self.features or len(self.target) != 1:
            raise ValueError(f"one target and at least one feature are needed (got {len(self.target)} and {len(self.features)})")
        if both := self.features.keys() & self.target.keys():
            raise ValueError(f"{', '.join(sorted(both))}: both feature and target; rename one and give its `column`")
        return self

    @property
    def encoders(self) -> dict[str, Feature]:
        """Features and target by name, in the order of the tensor columns."""
        return {**self.features, **self.target}
