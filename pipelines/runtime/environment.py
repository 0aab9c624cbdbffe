"""Environment variables for a while; installed versions; where a master of Spark runs its tasks."""

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

MISSING = "missing"


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Within the block, this process has the variables, and so do those that it starts. Then it has its own values again."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of packages; `missing` for a package that is not installed."""
    versions = {"Python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = MISSING
    return versions


def describe_disagreement(driver_versions: Mapping[str, str], other_versions: Mapping[str, str], host: str) -> str:
    """One line that lists the versions that differ on the other machine; empty if none does."""
    names = [name for name, version in driver_versions.items() if other_versions.get(name) != version]
    differences = [f"{name} {driver_versions[name]} here and {other_versions.get(name, MISSING)} there" for name in names]
    if not differences:
        return ""
    return f"{host} has other versions than the driver: {', '.join(differences)}; give both one image, or one packed environment"


def is_local(master: str) -> bool:
    """Whether a master runs all of Spark in one JVM of this machine."""
    return re.match(r"local(\[|$)", master) is not None
