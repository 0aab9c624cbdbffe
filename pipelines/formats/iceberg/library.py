"""Whether pyiceberg is installed."""

from importlib.util import find_spec

from pipelines.errors import ConfigError


def check_pyiceberg(place: str) -> None:
    """Raises ConfigError, about what is at `place` of the config or the file system, unless pyiceberg is installed."""
    if find_spec("pyiceberg") is None:
        raise ConfigError(f"{place}: Iceberg needs pyiceberg, which is not installed; pip install 'lockstep-pipelines[iceberg]'")
