"""`dataset`: where versions are stored, how rows are split, also by folds, and how columns are encoded."""

from datetime import date
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PositiveInt, Tag, model_validator

from pipelines.config.features import Feature, FeatureOrAuto
from pipelines.config.features.base import AutoSettings, EncoderSettings, is_pattern
from pipelines.config.section import Fraction, Section, Seed, Text
from pipelines.errors import ConfigError

MOST_FOLDS, MOST_REPEATS = 100, 20
_EXCLUDED_BY_FOLDS = ("by", "fold_starts", "train", "validation", "test")
"""Settings of other splits: folds decide what each model is trained, validated and tested on."""


def _check_folds(folds: int) -> int:
    if not 3 <= folds <= MOST_FOLDS:
        raise ValueError(
            f"one fold is the test, the next one selects the epoch, and the others are for training; give 3 to {MOST_FOLDS}, such as 5"
        )
    return folds


def check_strata(stratify: str, group: str) -> None:
    """Raise ValueError if the rows of a group were to be both divided and kept together."""
    if stratify and stratify == group:
        raise ValueError(f"stratify and group are both {group}, whose rows would be divided and kept together; leave one of them out")


# YAML has parsed 2017-01-01 as a date and 300 as a number; both become text again.
Moment = Annotated[Text, BeforeValidator(lambda value: str(value) if isinstance(value, (date, int, float)) else value)]


class ByFold(Section):
    """Cross-validation: a hash of `key` assigns each row to one of the folds; without a key, the hash is of all columns, and with `group`,
    of that column. `jobs/train.py` trains a model for each fold, which is its test; the next fold selects its epoch, and it is trained on
    the others. Encoders are fitted on the rows of all folds."""

    is_by_time: ClassVar[bool] = False
    """Whether a fold's rows are later than those of the fold before it."""
    folds: Annotated[int, AfterValidator(_check_folds)]
    """Number of folds, at least 3."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)] = 1
    """How often the rows are assigned anew; each time, a model is trained for each fold."""
    seed: Seed = 0
    """Another seed assigns rows to other folds."""
    group: str = ""
    """Column whose equal values are all in one fold."""
    stratify: str = ""
    """Column of which every fold has the same mix of values: in the rows of each value, NULL included, folds differ by one at most. Rows
    are ordered by the same hash, so equal rows stay together, and so do those of a group, which must have one value."""

    @property
    def trainings(self) -> int:
        """Number of models, one for each fold of each repeat."""
        return self.folds * self.repeats

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a dataset version that hold the fold of each row, from 1, one for each repeat."""
        return ("fold",) if self.repeats == 1 else tuple(f"fold_{repeat + 1}" for repeat in range(self.repeats))

    @model_validator(mode="after")
    def _groups_are_not_divided(self) -> "ByFold":
        check_strata(self.stratify, self.group)
        return self


def _check_starts(starts: tuple[str, ...]) -> tuple[str, ...]:
    if not 2 <= len(starts) < MOST_FOLDS:
        raise ValueError(
            f"{len(starts)} starts make {len(starts) + 1} folds; the first model is trained on one, selects its epoch on the next, and is "
            f"tested on a third; give 2 to {MOST_FOLDS - 1}"
        )
    return starts


class ByTimeFold(Section):
    """Cross-validation over time, with a training split that grows: each model is tested on a fold, its epoch is selected on the fold
    before that, and it is trained on all earlier ones. Encoders are fitted on the rows of all folds."""

    is_by_time: ClassVar[bool] = True
    repeats: ClassVar[int] = 1
    """Time divides rows in one way only."""
    columns: ClassVar[tuple[str, ...]] = ("fold",)
    """The column of a dataset version that holds the fold of each row, from 1."""
    time: Text
    """Column to compare; values are compared in its type."""
    fold_starts: Annotated[tuple[Moment, ...], AfterValidator(_check_starts)]
    """First value of each fold but the first, in order, written as in a SQL literal. Three starts make four folds, and two models: one is
    tested on the third fold, and one on the fourth."""

    @property
    def folds(self) -> int:
        """Number of folds, the first included."""
        return len(self.fold_starts) + 1

    @property
    def trainings(self) -> int:
        """Number of models: the first two folds test none."""
        return self.folds - 2


FoldSplit = ByFold | ByTimeFold
"""Splits for which a model is trained for each fold."""


def check_column_name(name: str) -> str:
    """The name. Raises ValueError if no tensor column may have it."""
    wrong = next((character for character in name if character in ".`/" or not character.isprintable()), "")
    if wrong or not 0 < len(name) <= 100:
        has = f"{name!r} has {wrong!r}" if wrong else f"this one has {len(name)}"
        raise ValueError(
            "a tensor column's name has 1 to 100 characters, none of them . ` or / or a control character, such as a tab "
            f"({has}); choose another name and set its `column`"
        )
    return name


ColumnName = Annotated[str, AfterValidator(check_column_name)]


class ByFraction(Section):
    """Assigns rows by a hash of `key`, so that a row stays in its split when its other columns change. Without a key, the hash
    is of all columns; with `group`, of that column."""

    train: Fraction = 0.8
    """Share of the rows that the model is trained on."""
    validation: Fraction = 0.1
    """Share of the rows that select the best epoch."""
    test: Fraction = 0.1
    """Share of the rows that the best epoch is evaluated on at the end."""
    group: str = ""
    """Column whose equal values all go to one split."""
    stratify: str = ""
    """Column of which every split has the same mix of values: of each value's rows, NULL included, each split gets its share, rounded up
    or down. Rows are ordered by the same hash, so equal rows stay together, and so do those of a group, which must have one value."""

    @model_validator(mode="after")
    def _fractions_make_a_whole(self) -> "ByFraction":
        total = self.train + self.validation + self.test
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train + validation + test is {total:g}; it must be 1")
        check_strata(self.stratify, self.group)
        return self


class ByColumn(Section):
    """Takes the split of each row from a column of the query that holds train, validation or test, as published splits have it."""

    by: Text
    """Column with the name of the split; rows with any other value are quarantined."""
    validation: Fraction = 0.0
    """Share of the rows marked `train` that moves to validation, chosen by a hash of `key`, or of all columns if there is no key."""


class ByTime(Section):
    """Rows before `validation` are for training, rows from there to `test` for validation, later rows for the test."""

    time: Text
    """Column to compare; values are compared in its type."""
    validation: Moment
    """First value of the validation split, written as in a SQL literal: 2017-01-01."""
    test: Moment
    """First value of the test split."""


def _kind_of_split(value: Any) -> str:
    keys = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    kinds = {"folds": "cross_validation", "fold_starts": "time_folds", "by": "column", "time": "time"}
    return next((kind for key, kind in kinds.items() if key in keys), "fraction")


def _check_kind(value: Any) -> Any:
    if isinstance(value, dict) and "folds" in value and "time" in value:
        raise ValueError(
            f"folds by time begin where fold_starts says: give {{time: {value['time']}, fold_starts: [2017-01-01, 2017-07-01]}}, or leave "
            "time out for folds by chance"
        )
    if isinstance(value, dict) and "folds" in value and (names := [name for name in _EXCLUDED_BY_FOLDS if name in value]):
        raise ValueError(
            f"folds decide what each model is trained, validated and tested on; leave {' and '.join(names)} out, or leave folds out"
        )
    if isinstance(value, dict) and value.get("stratify") and (decides := [name for name in ("by", "time") if name in value]):
        raise ValueError(
            f"stratify is {value['stratify']}, but the column {value[decides[0]]} decides the split of each row; leave stratify out, or "
            "give shares, as {train: 0.8, validation: 0.1, test: 0.1, stratify: COLUMN}"
        )
    return value


Split = Annotated[
    Annotated[ByFraction, Tag("fraction")]
    | Annotated[ByColumn, Tag("column")]
    | Annotated[ByTime, Tag("time")]
    | Annotated[ByFold, Tag("cross_validation")]
    | Annotated[ByTimeFold, Tag("time_folds")],
    Discriminator(_kind_of_split),
    BeforeValidator(_check_kind),
]


class Dataset(Section):
    """The result of ETL: a folder of immutable versions."""

    path: Text
    """Folder of the versions, or a URI of any file system that pyarrow supports."""
    key: Annotated[tuple[Text, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = ()
    """Columns that identify a row. Of rows with the same key, one is kept, chosen by its content, and the others are quarantined.
    Without a key, duplicate rows are kept."""
    newest: str = Field("", exclude_if=lambda newest: not newest)
    """Column of dates, timestamps or whole numbers: of rows with the same key, the one with the largest value is kept, and the others are
    left out, not quarantined. A row that comes later, by `--from`, replaces an older one."""
    refit: Literal["never", "drift", "always"] = "never"
    """Whether an ETL with `--from` fits the encoders anew, which takes all rows: never; if a column of the rows that came has drifted, with
    a PSI above 0.25 beyond chance; or always."""
    split: Split = ByFraction()
    """How rows are split into training, validation and test: by shares, by a column of the query, by time, or by folds
    for cross-validation."""
    max_share_error: Fraction = 0.3
    """How far the share of a split may be from the one that `split` asks for, beyond what chance explains. If it is farther, no version
    is made. Equal rows go to one split, and so do those of a group, so one of them may fill it. Smaller differences are only said."""
    features: dict[ColumnName, FeatureOrAuto]
    """Tensor columns that the model takes as input, by name. Other columns of the query are left out and listed in the log. A name with `*`
    stands for every column that it matches and that no entry above reads, such as `sensor_*`; with `:number`, `:text`, `:boolean`, `:time`
    or `:array` behind it, for those of that kind. Key, target, `passthrough` and the columns of `split` are not matched."""
    target: dict[ColumnName, Feature] = {}
    """The one tensor column that the model predicts. With a packed feature there is none: the model predicts the next token."""
    passthrough: dict[ColumnName, Feature] = {}
    """Tensor columns that neither the model nor a served row has, as the one whose values are the clients of a strategy."""
    part_bytes: PositiveInt = 256 * 2**20
    """Approximate encoded size of a part file, in bytes."""
    row_group_bytes: PositiveInt = 16 * 2**20
    """Approximate decoded size of a row group, in bytes; a row group has 64 to 262,144 rows."""

    @model_validator(mode="after")
    def _patterns_are_features(self) -> "Dataset":
        if patterns := [name for name in (*self.target, *self.passthrough) if is_pattern(name)]:
            raise ValueError(f"{patterns[0]}: a name with * stands for features; name each column of target and passthrough")
        for name, settings in self.features.items():
            if is_pattern(name) and settings.packs:
                raise ValueError(f"{name}: {settings.encoder} packs one column into windows; name that column instead")
            if is_pattern(name) and settings.inputs(name) != (name,):
                raise ValueError(f"{name}: a name with * names the columns itself; leave column and columns out")
        return self

    @model_validator(mode="after")
    def _newest_is_of_a_key(self) -> "Dataset":
        if self.newest and not self.key:
            raise ValueError(f"newest is {self.newest}, but no key says which rows are of one thing; set key, or leave newest out")
        return self

    @model_validator(mode="after")
    def _only_features_are_missing(self) -> "Dataset":
        for section, columns in (("target", self.target), ("passthrough", self.passthrough)):
            for name, settings in columns.items():
                if settings.keeps_missing:
                    raise ValueError(f"{section}.{name}: impute is keep, which is for features; remove it, so that such rows are refused")
        return self

    @model_validator(mode="after")
    def _columns_fit_together(self) -> "Dataset":
        if packed := [name for name, settings in self.encoders.items() if settings.packs]:
            if list(self.features) != packed or self.target or self.passthrough:
                raise ValueError(
                    f"{packed[0]} is packed into windows, which are not rows of the query; it must be the only column, without "
                    "a target and passthrough"
                )
            return self
        if not self.features or len(self.target) != 1:
            raise ValueError(f"a dataset needs one target and at least one feature (got {len(self.target)} and {len(self.features)})")
        if both := self.features.keys() & self.target.keys():
            raise ValueError(f"{', '.join(sorted(both))}: both feature and target; rename one and set its `column`")
        if both := self.passthrough.keys() & (self.features.keys() | self.target.keys()):
            raise ValueError(f"{', '.join(sorted(both))}: both carried and feature or target; rename one and set its `column`")
        return self

    @model_validator(mode="after")
    def _folds_have_columns(self) -> "Dataset":
        if not isinstance(self.split, FoldSplit):
            return self
        if packed := [name for name, settings in self.encoders.items() if settings.packs]:
            raise ValueError(f"{packed[0]} is packed into windows, whose documents have no folds; give split shares instead")
        if both := [name for name in self.split.columns if name in self.encoders]:
            raise ValueError(f"{both[0]}: split.folds adds a column of this name; rename yours and set its `column`")
        return self

    @property
    def encoders(self) -> dict[str, EncoderSettings]:
        """Features, carried columns and target by name, in the order of the tensor columns."""
        return {**self.features, **self.passthrough, **self.target}

    @property
    def is_resolved(self) -> bool:
        """Whether each feature has a name and an encoder. Else the columns of the query decide names, and the rows decide encoders."""
        return not self.has_auto and not any(map(is_pattern, self.features))

    @property
    def has_auto(self) -> bool:
        return any(isinstance(settings, AutoSettings) for settings in self.features.values())

    def check_files(self) -> None:
        """Raise ConfigError if a file is not there whose content decides how a column is encoded."""
        if fault := next((f"dataset: {name}: {settings.fault}" for name, settings in self.encoders.items() if settings.fault), ""):
            raise ConfigError(fault)

    def column_role(self, name: str) -> Literal["feature", "target", "carried"]:
        """The role of a tensor column: what it is to the model."""
        return "target" if name in self.target else "carried" if name in self.passthrough else "feature"
