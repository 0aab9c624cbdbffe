"""requirements.lock follows from setup.cfg and constraints.txt, and `make` installs no file beside torch that has no hash in it."""

import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distributions, requires
from importlib.util import find_spec
from pathlib import Path

import lock
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = (lock.ROOT / "constraints.txt").read_text()
LOCK = lock.LOCK.read_text()
RENEW = "run make lock"


def requirements_of_developers() -> list[Requirement]:
    """The packages that setup.cfg names for developers."""
    settings = configparser.ConfigParser()
    settings.read(lock.ROOT / "setup.cfg")
    text = settings["options"]["install_requires"] + settings["options.extras_require"]["dev"]
    return [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]


def names_with_dependencies(roots: list[Requirement]) -> Iterator[str]:
    """The names of these packages and of all that they need here, as the installed ones say."""
    visits: set[tuple[str, str]] = set()
    waiting = [(item.name, extra) for item in roots for extra in ("", *item.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in visits:
            continue
        visits.add((name, extra))
        yield canonicalize_name(name)
        try:
            items = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        needed = [item for item in items if item.marker is None or item.marker.evaluate({"extra": extra})]
        waiting += [(item.name, inner) for item in needed for inner in ("", *item.extras)]


def test_versions_are_those_of_the_constraints() -> None:
    tested = lock.versions_by_package(CONSTRAINTS)
    changed = {name: version for name, version in lock.versions_by_package(LOCK).items() if tested.get(name) != version}
    assert not changed, RENEW


def test_it_has_every_package_that_developers_need_and_no_other() -> None:
    """A package that is not installed here does not say what it needs, so the others cannot be judged."""
    locked, installed = set(lock.versions_by_package(LOCK)), {canonicalize_name(item.name) for item in distributions()}
    names = {name for name in names_with_dependencies(requirements_of_developers()) if not lock.OF_TORCH.fullmatch(name)}
    assert names <= locked, RENEW
    assert names == locked or not locked <= installed, RENEW


def test_versions_are_in_the_ranges_of_this_project() -> None:
    tested = lock.versions_by_package(CONSTRAINTS)
    outside = [str(item) for item in requirements_of_developers() if not item.specifier.contains(tested[canonicalize_name(item.name)])]
    assert not outside


def test_every_package_has_hashes_and_no_address() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    package, digest = r"[a-z0-9-]+==[\w.]+( ; [^:/\\]+)? \\", r"    --hash=sha256:[0-9a-f]{64}( \\)?"
    assert all(re.fullmatch(f"{package}|{digest}", line) for line in lines)
    for above, below in zip(lines, [*lines[1:], ""], strict=True):
        assert above.endswith("\\") == below.startswith(" ")


def test_what_make_installs_first_is_in_it() -> None:
    (command,) = re.findall(r"awk '(.*)' requirements\.lock", (lock.ROOT / "Makefile").read_text())
    blocks = subprocess.run(["awk", command.replace("$$", "$"), lock.LOCK], capture_output=True, text=True, check=True).stdout
    assert set(lock.versions_by_package(blocks)) == {"setuptools", "uv"}
    assert all(f"{block.strip()}\n" in LOCK and "--hash" in block for block in re.split(r"^(?=\w)", blocks, flags=re.MULTILINE)[1:])


def test_torch_and_what_other_systems_need_are_left_out() -> None:
    packages = {
        "numpy==2.4.6": "a",
        "nvidia-cublas==13.1 ; sys_platform == 'linux'": "b",
        "pywin32==312 ; sys_platform == 'win32'": "c",
        "torch==2.13.0": "d",
        "zipp==4.1.2 ; python_full_version < '3.12'": "e",
    }
    compiled = "".join(f"{package} \\\n    --hash=sha256:{digest}\n" for package, digest in packages.items())
    text = lock.lock_text(compiled, {"numpy": "2.4.6", "zipp": "4.1.2"})
    assert text == "numpy==2.4.6 \\\n    --hash=sha256:a\nzipp==4.1.2 ; python_full_version < '3.12' \\\n    --hash=sha256:e\n"


def test_a_package_that_has_no_tested_version_is_named() -> None:
    with pytest.raises(SystemExit, match=r"^constraints\.txt has no version of newcomer==1\.0: "):
        lock.lock_text("newcomer==1.0 \\\n    --hash=sha256:a\nnumpy==2.4.6 \\\n    --hash=sha256:b\n", {"numpy": "2.4.6"})


@pytest.mark.full
def test_writing_it_anew_loses_no_package_and_no_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release may have gained files for a newer Python since."""
    if find_spec("uv") is None:
        pytest.skip(f"{sys.prefix} has no uv: make installs it")
    monkeypatch.setattr(lock, "LOCK", tmp_path / "requirements.lock")
    lock.main()
    text = lock.LOCK.read_text()
    assert lock.versions_by_package(text) == lock.versions_by_package(LOCK)
    assert set(re.findall(r"sha256:\w+", text)) >= set(re.findall(r"sha256:\w+", LOCK))
