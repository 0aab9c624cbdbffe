"""Finds slices: folders that the core works without, of this project and of other packages. No module names one.

A slice is a folder of `pipelines.applications`, `pipelines.formats` or `pipelines.strategies` with a module `settings`, or a package like
one that an installed distribution registers by an entry point of the group `lockstep.applications`. Each room of the core asks for the
modules that it knows by name: `settings` for what a config may hold, `draft` for `lockstep init`, `figures` for the page of a run.
"""

import logging
import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType

from pipelines.config.plugins import describe_import_error

log = logging.getLogger(__name__)

ROOMS = ("pipelines.applications", "pipelines.formats", "pipelines.strategies")
"""Packages whose folders are slices."""
GROUP = "lockstep.applications"
"""The group of entry points, `name = package`."""
_faults: dict[str, str] = {}


@cache
def slice_modules(name: str) -> dict[str, ModuleType]:
    """The modules of this name, by the package of the slice. What cannot be imported is left out, with a warning."""
    slices = [folder for room in ROOMS for folder in folders_with_settings(room)]
    slices += [entry_point.value for entry_point in entry_points(group=GROUP)]
    modules = {}
    for package in slices:
        try:
            if find_spec(f"{package}.{name}"):
                modules[package] = import_module(f"{package}.{name}")
        except Exception as error:  # of somebody else's package
            report_fault(f"{package}.{name}", describe_import_error(error))
    return modules


def report_fault(place: str, reason: str) -> None:
    """Warn that a part of a slice or of a package cannot be imported: all else works without it, but would do less without a word."""
    _faults[place] = reason
    log.warning("%s cannot be imported, so what it adds is left out: %s", place, reason)


def import_faults() -> dict[str, str]:
    """Why parts of slices and of packages could not be imported, by their names."""
    return dict(_faults)


def folders_with_settings(package: str) -> list[str]:
    """Packages inside a package that have a module `settings`."""
    folders = [f"{package}.{name}" for name in inner_packages(package)]
    return [folder for folder in folders if find_spec(f"{folder}.settings")]


def inner_packages(package: str) -> list[str]:
    """The names of the packages inside a package, in the order of the alphabet."""
    return sorted(inner.name for inner in pkgutil.iter_modules(package_folders(package)) if inner.ispkg)


def package_folders(package: str) -> list[str]:
    """The folders of a package; none if there is no such package."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        return []
    return list(spec.submodule_search_locations or ()) if spec else []
