"""Compares Python and the installed packages with the ranges that this project declares, and with the versions that it was tested with."""

import platform
import re
import shlex
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import pipelines
from pipelines.runtime.disks import Reading

_LARGE_PACKAGES = ("mlflow", "pandas", "pyspark", "ray")
_DISTRIBUTION = "lockstep-pipelines"
TESTED = Path(pipelines.__file__).parents[1] / "constraints.txt"
"""The tested versions, which a checkout has and a wheel has not."""


def python_version() -> Reading:
    """The version of Python, and whether this project takes it."""
    text = platform.python_version()
    supported = SpecifierSet(metadata(_DISTRIBUTION)["Requires-Python"])
    fault = f"Python is {text}, and {supported} is needed; make an environment with another, as by make PYTHON=python3.12"
    return Reading(text, "" if supported.contains(text, prereleases=True) else fault)


def package_versions() -> Reading:
    """The required packages, and which of them are missing or outside their range."""
    try:
        requirements = [Requirement(text) for text in requires(_DISTRIBUTION) or ()]
    except PackageNotFoundError:
        return Reading("", f"{_DISTRIBUTION} is not installed, so its packages are unknown; install it, as by pip install --editable .")
    present = {item.name: _version(item.name) for item in requirements if item.marker is None or item.marker.evaluate({"extra": ""})}
    wrong = [
        item for item in requirements if item.name in present and not item.specifier.contains(present[item.name] or "0", prereleases=True)
    ]
    if wrong:
        differences = ", ".join(f"{item.name} {present[item.name] or 'is missing'}" for item in wrong)
        ranges = shlex.join(f"{item.name}{item.specifier}" for item in wrong)
        return Reading("", f"{differences}: outside the range of this project; install it: pip install {ranges}")
    return Reading(f"{len(present)} packages in their ranges")


def version_notes() -> Reading:
    """The packages that have another version than the tested one, inside their range."""
    if not TESTED.is_file():
        return Reading("the tested versions are listed in a checkout only")
    names = {Requirement(text).name for text in requires(_DISTRIBUTION) or ()}
    tested = {
        name: number
        for name, number in re.findall(r"^([\w.-]+)==([^\s;\\]+)", TESTED.read_text(encoding="utf-8"), re.MULTILINE)
        if name in names
    }
    changes = {name: present for name in tested if (present := _version(name)) and present.partition("+")[0] != tested[name]}
    if not changes:
        return Reading("all as tested")
    differences = ", ".join(f"{name} {number} ({tested[name]} is tested)" for name, number in changes.items())
    return Reading("", f"{differences}; install the tested ones: pip install --constraint {shlex.quote(str(TESTED))} {' '.join(changes)}")


def bytecode() -> Reading:
    """Whether large packages have bytecode, or get it once: uv writes none, and many images tell Python to write none either."""
    folder = Path(sysconfig.get_path("purelib"))
    packages = [path for name in _LARGE_PACKAGES if (path := folder / name / "__init__.py").exists()]
    missing = [path.parent.name for path in packages if not Path(cache_from_source(str(path))).exists()]
    if not missing or not sys.dont_write_bytecode:
        return Reading("installed packages are compiled once")
    why = f"{', '.join(missing)} have no bytecode, and PYTHONDONTWRITEBYTECODE is set: every process compiles what it imports"
    return Reading("", f"{why}; write it once: {shlex.quote(sys.executable)} -m compileall -q {shlex.quote(str(folder))}")


def _version(name: str) -> str:
    """The installed version; empty if there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
