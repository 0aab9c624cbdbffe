"""The code and the packages of a run, and models of other runs that it holds, by their digests."""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from contextlib import suppress
from csv import reader
from functools import cache
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import quote

from packaging.requirements import Requirement

from pipelines.config import Config, EncoderSettings
from pipelines.serving.model.logged_model import PACKAGE, software_requirements, write_archive

PROJECT = "lockstep-pipelines"
CODE, PACKAGES = "code", "package/"
"""The name of the dependency that is the code, and what those of packages begin with."""
MODELS = "model/"
"""What the names of models of other runs begin with, of which a model is made."""
CODE_FOLDER = "code/"
"""The folder of a logged model that holds the code."""
ARCHIVE = f"{CODE_FOLDER}pipelines.zip"
_INSTALLER_FILES = re.compile(r"\.\./|[^/]+\.(?:dist|egg)-info/(?:INSTALLER|RECORD|REQUESTED|direct_url\.json|uv_\w+\.json)$|.*\.pyc$")
"""Files of a distribution that depend on who installed it and where, such as scripts with the path of their Python."""
Descriptor = dict[str, Any]
"""A ResourceDescriptor of in-toto: name, digest, annotations."""


def hash_code(config: Config) -> dict[str, str]:
    """SHA-256 of the code that runs here, by the paths that it has in a logged model: the archive of this package, and the files of the
    config's own task and encoders."""
    encoders: Sequence[EncoderSettings] = list(config.dataset.encoders.values())
    with TemporaryDirectory() as folder:
        write_archive(PACKAGE, archive := Path(folder, "pipelines.zip"))
        digests = {ARCHIVE: sha256(archive.read_bytes()).hexdigest()}
    paths, _ = software_requirements(config.task, encoders)
    for path in map(Path, paths):
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        digests |= {
            f"{CODE_FOLDER}{file.relative_to(path.parent).as_posix()}": sha256(file.read_bytes()).hexdigest()
            for file in files
            if "__pycache__" not in file.parts
        }
    return digests


def code_descriptor(files: Mapping[str, str], commit: str) -> Descriptor:
    """The code as a dependency; `commit` is that of git, and ends in `-dirty` if files differed from it. Empty without git."""
    digest = sha256("".join(f"{name} {files[name]}\n" for name in sorted(files)).encode()).hexdigest()
    clean_commit = commit.removesuffix("-dirty")
    digests = {"sha256": digest} | ({"gitCommit": clean_commit} if clean_commit else {})
    annotations = {"files": dict(sorted(files.items()))} | ({"dirty": clean_commit != commit} if commit else {})
    return {"name": CODE, "digest": digests, "annotations": annotations}


def model_descriptors(config: Config) -> list[Descriptor]:
    """The models that the config's model is made of, by the IDs of their runs, with the digests of their weights."""
    return [{"name": f"{MODELS}{run}", "digest": {"sha256": digest}} for run, digest in sorted(config.task.origins.items())]


def package_commit() -> str:
    """The commit of the checkout that this package runs from, with `-dirty` if its files differ; empty if it runs from none."""
    root = _git("rev-parse", "--show-toplevel")
    if not root or Path(root).resolve() != PACKAGE.parent.resolve():
        return ""
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def compare_with_commit(commit: str) -> Literal["equal", "different", "unknown", "no checkout"]:
    """Whether the files of this package are those of a commit of the checkout that it runs from."""
    if not package_commit():
        return "no checkout"
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit) or _git("cat-file", "-t", commit) != "commit":
        return "unknown"
    return "equal" if _git("diff", "--name-only", commit, "--", PACKAGE.name) == "" else "different"


def _git(*words: str) -> str:
    """The output of git; empty if it fails."""
    with suppress(OSError):
        answer = subprocess.run(["git", "-C", str(PACKAGE.parent), *words], capture_output=True, text=True, check=False)
        return answer.stdout.strip() if answer.returncode == 0 else ""
    return ""


def package_descriptors(config: Config) -> list[Descriptor]:
    """Python, and each package that this project and the config's own parts need, with their own needs, by name.

    The digest of a package is over the files of its RECORD, with the hashes that stand there, without those that its installer writes; a
    package without a RECORD has only its version."""
    names = {*config.task.distributions, *(name for settings in config.dataset.encoders.values() for name in settings.distributions)}
    return [dict(descriptor) for descriptor in _describe_packages((*_project_requirements(), *sorted(names)))]


@cache  # what is installed while this process lives is not what it runs
def _describe_packages(requirements: tuple[str, ...]) -> tuple[Descriptor, ...]:
    descriptors: list[Descriptor] = [{"name": f"{PACKAGES}python", "uri": f"pkg:generic/python@{python_version()}"}]
    for name, package in sorted(_find_distributions(requirements).items()):
        descriptor: Descriptor = {"name": f"{PACKAGES}{name}", "uri": f"pkg:pypi/{name}@{quote(package.version)}"}
        if record := package.read_text("RECORD"):
            descriptor["digest"] = {"sha256": record_digest(record)}
        descriptors.append(descriptor)
    return tuple(descriptors)


def record_digest(record: str) -> str:
    """Hex SHA-256 of the lines of a RECORD that have a hash, in their order by path, without the installer's own."""
    rows = (row for row in reader(record.splitlines()) if len(row) == 3 and row[1] and not _INSTALLER_FILES.match(row[0]))
    return sha256("".join(f"{path},{digest},{size}\n" for path, digest, size in sorted(rows)).encode()).hexdigest()


def _find_distributions(requirements: tuple[str, ...]) -> dict[str, Distribution]:
    """The installed distributions that meet the requirements, and theirs, by normalized name."""
    installed: dict[str, Distribution] = {}
    queue = [(requirement, "") for requirement in requirements]
    visited: set[tuple[str, str]] = set()
    while queue:
        text, extra = queue.pop()
        requirement = Requirement(text)
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        with suppress(PackageNotFoundError):  # an optional one, or another platform's
            installed.setdefault(name, distribution(name))
            for inner in {"", *requirement.extras}:
                if (name, inner) not in visited:
                    visited.add((name, inner))
                    queue += [(line, inner) for line in installed[name].requires or ()]
    return installed


def _project_requirements() -> Iterator[str]:
    """Requirements of the installed project, or of the checkout that this package runs from."""
    config_file = PACKAGE.parent / "setup.cfg"
    if config_file.is_file():
        parser = ConfigParser()
        parser.read(config_file, encoding="utf-8")
        lines = parser.get("options", "install_requires", fallback="").splitlines()
        yield from (line.strip() for line in lines if line.strip() and not line.strip().startswith("#"))
    else:
        with suppress(PackageNotFoundError):
            yield from distribution(PROJECT).requires or ()
