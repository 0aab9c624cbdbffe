"""Every error that Lockstep raises on purpose.

    LockstepError
    ├── ConfigError          a YAML file or a flag is invalid                     exit code 2
    ├── SourceError          raw data are missing or empty, or the query fails    exit code 3
    ├── QualityError         more rows were refused than the config allows        exit code 3
    ├── DatasetError         a dataset version cannot be used or made             exit code 4
    │   ├── CorruptError     a file of a version is truncated, altered or gone    exit code 4
    │   └── OutdatedError    a version was written in an older format             exit code 4
    ├── TrainingError        training cannot start or continue                    exit code 5
    │   ├── NonFiniteError   a loss or a gradient is NaN or infinite              exit code 5
    │   └── DriftError       workers that must have equal weights have not        exit code 5
    ├── TrackingError        MLflow is unreachable, or the run missing or active  exit code 6
    ├── MismatchError        machines or processes have different versions        exit code 7
    ├── RefusedError         a model does not pass the gates of the registry      exit code 8
    └── ExportError          a target cannot express a model, or is not installed  exit code 9

A message states the value, the rule and the remedy. Any other exception is a defect or a library's own, and propagates
with its traceback.
"""


class LockstepError(Exception):
    exit_code = 1


class ConfigError(LockstepError):
    exit_code = 2


class SourceError(LockstepError):
    exit_code = 3


class QualityError(LockstepError):
    exit_code = 3


class DatasetError(LockstepError):
    exit_code = 4


class CorruptError(DatasetError):
    """A file of a version is truncated, altered or gone."""


class OutdatedError(DatasetError):
    """A version was written in an older format."""


class TrainingError(LockstepError):
    exit_code = 5


class NonFiniteError(TrainingError):
    """A loss or a gradient is NaN or infinite."""


class DriftError(TrainingError):
    """Workers that must have equal weights have not."""


class TrackingError(LockstepError):
    exit_code = 6


class MismatchError(LockstepError):
    exit_code = 7


class RefusedError(LockstepError):
    exit_code = 8


class ExportError(LockstepError):
    exit_code = 9
