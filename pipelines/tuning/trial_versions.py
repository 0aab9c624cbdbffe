"""The dataset versions of the trials of a search: its own, and those whose features are encoded otherwise.

ETL makes a version when the first trial that needs it is proposed, one at a time, in another process, while other trials train. It is an
ordinary version in the dataset's folder, which later searches find, but it does not become the newest, which other jobs compare with. All
versions have the rows of the search's own, from the same raw files: else trials could not be compared.
"""

import json
import logging
from typing import Any, Self

from pipelines import errors
from pipelines.config import Config
from pipelines.data.versions.folds import select_fold, training_version
from pipelines.data.versions.versions import Version, find_by_sources
from pipelines.errors import ConfigError, DatasetError
from pipelines.tuning.etl_process import EtlProcess

log = logging.getLogger(__name__)


class TrialVersions:
    """Finds the version that a trial is trained on, and has it made where there is none. Leaving the context ends an ETL under way."""

    def __init__(self, config: Config, version: Version) -> None:
        """`version` is that of the search, with all features and the splits of `train.fold`."""
        self._search_version, self._search_features = version, config.dataset.features
        self._versions = {_key(config): version}
        self._errors: dict[str, str] = {}
        self._making: tuple[str, EtlProcess] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._making:
            self._making[1].end()

    @property
    def is_making(self) -> bool:
        """Whether an ETL is under way, without which no version comes that is not there."""
        return self._making is not None and self._making[1].answer() is None

    def find(self, config: Config) -> Version | None:
        """The version of a trial, without features that its `task.use` leaves out; None while ETL makes it, or another one first.

        Raises ConfigError if it cannot be made, or has other rows than that of the search, DatasetError if raw files have changed, and the
        error of an ETL that another one may not have."""
        key = _key(config)
        if key in self._errors:
            raise ConfigError(self._errors[key])
        if key not in self._versions:
            version = self._find_or_make(key, config)
            if version is None:
                return None
            self._versions[key] = version
        return training_version(config, self._versions[key])

    def get(self, config: Config) -> Version:
        """The version of a trial that has been found before. Raises as `find` does."""
        version = self.find(config)
        assert version is not None, "it has been made for a trial"
        return version

    def _find_or_make(self, key: str, config: Config) -> Version | None:
        """The version in the dataset's folder; None if ETL must make it first."""
        is_made = self._end_etl(key)
        version = find_by_sources(config.dataset.path, config.data_identity, self._search_version.manifest.sources)
        if version is None and is_made:
            raise DatasetError(
                f"raw files have changed since {self._search_version.root} was made, so that a version with other features has other rows; "
                "run jobs/etl.py with the config of the search, and search again"
            )
        if version is None:
            self._begin_etl(key, config)
            return None
        if config.train.fold is not None:
            version = select_fold(version, config.train.fold)
        self._check_rows(key, version)
        return version

    def _begin_etl(self, key: str, config: Config) -> None:
        """Begin to make a version, unless another one is being made."""
        if self._making is None:
            changed = {name: settings for name, settings in config.dataset.features.items() if settings != self._search_features.get(name)}
            log.info("ETL makes a dataset version with %s", ", ".join(f"{name}: {settings.encoder}" for name, settings in changed.items()))
            self._making = key, EtlProcess(config.model_dump(mode="json", by_alias=True))

    def _end_etl(self, key: str) -> bool:
        """Whether ETL has just made this version. Raises ConfigError, now and for later trials, if no ETL could make it, and the error of
        one that could not at the moment."""
        if self._making is None or self._making[0] != key or (answer := self._making[1].answer()) is None:
            return False
        self._making[1].end()
        self._making = None
        for warning in answer.warnings:
            log.warning("ETL of a trial: %s", warning)
        if answer.is_of_trial:
            self._errors[key] = f"ETL could not make its dataset version: {answer.error}"
            raise ConfigError(self._errors[key])
        if answer.error:
            # As the worst of trials, it would change all that are proposed after it.
            raise getattr(errors, answer.kind, DatasetError)(
                f"ETL could not make a dataset version: {answer.error}; remove the cause, and begin the same search again, which goes on"
            )
        return True

    def _check_rows(self, key: str, version: Version) -> None:
        """Raise ConfigError, now and for later trials, unless the version has as many rows in each split as the search's own: the split of
        a row follows from the row alone, but an encoder may refuse it."""
        for split in self._search_version.manifest.splits:
            rows, search_rows = version.rows(split), self._search_version.rows(split)
            if rows != search_rows:
                self._errors[key] = (
                    f"{version.root} has {rows:,} rows in split {split}, and the version of the search {search_rows:,}: an encoder refuses "
                    "rows that another one takes, so that scores cannot be compared; set impute, as to median, wherever it is none"
                )
                raise ConfigError(self._errors[key])


def _key(config: Config) -> str:
    return json.dumps(config.data_identity, sort_keys=True)
