"""Compares the installed versions of packages between the machines of a cluster.

Different versions rarely fail at once: they give different numbers, or fail hours later, far from the cause.
"""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

MISSING = "missing"


def installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of packages; `missing` for a package that is not installed."""
    return {"Python": platform.python_version(), **{name: _version(name) for name in packages}}


def describe_disagreement(driver_versions: Mapping[str, str], other_versions: Mapping[str, str], host: str) -> str:
    """One line that lists the versions that differ on the other machine; empty if none does."""
    names = [name for name, version in driver_versions.items() if other_versions.get(name) != version]
    differences = [f"{name} {driver_versions[name]} here and {other_versions.get(name, MISSING)} there" for name in names]
    if not differences:
        return ""
    return f"{host} has other versions than the driver: {', '.join(differences)}; give both one image, or one packed environment"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return MISSING
