"""Writes requirements.lock: the packages that `make` installs, in the versions of constraints.txt, with the hashes of all their files.

uv resolves the extra `dev` for every Python and machine at once. torch is left out: its build differs between indexes, and so does its
hash. What only some builds of torch need is left out with it.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
HEADER = """\
# What `make` installs beside torch, and the hashes of all files of each version. `make lock` writes it from setup.cfg and constraints.txt.
# torch and its packages for GPUs have no hash: an index may have another build of it, with other hashes.
"""
COMPILE = (
    "pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header "
    "--constraint constraints.txt --extra dev setup.cfg"
)
OF_TORCH = re.compile(r"torch|triton|cuda-.*|nvidia-.*")
_MACHINES = [
    {"python_version": version, "python_full_version": f"{version}.0", "platform_machine": machine}
    for version, machine in product(("3.11", "3.12", "3.13", "3.14"), ("x86_64", "aarch64"))
]
_LINUX = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}


def main() -> None:
    compiled = subprocess.run([sys.executable, "-m", "uv", *COMPILE.split()], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if compiled.returncode:
        sys.exit(compiled.returncode)
    LOCK.write_text(
        HEADER + lock_text(compiled.stdout, versions_by_package((ROOT / "constraints.txt").read_text(encoding="utf-8"))), encoding="utf-8"
    )


def lock_text(compiled: str, versions: Mapping[str, str]) -> str:
    """Of what uv resolved, the packages that Linux needs; exits if one has no version in constraints.txt."""
    blocks = [block for block in re.split(r"^(?=\S)", compiled, flags=re.MULTILINE) if block.strip()]
    packages = {block: Requirement(block.partition(" \\")[0]) for block in blocks}
    needed = {block: item for block, item in packages.items() if _is_needed(item) and not OF_TORCH.fullmatch(item.name)}
    unpinned = [f"{item.name}{item.specifier}" for item in needed.values() if versions.get(canonicalize_name(item.name)) is None]
    if unpinned:
        sys.exit(f"constraints.txt has no version of {', '.join(unpinned)}: test these, and add them to it")
    return "".join(needed)


def versions_by_package(text: str) -> dict[str, str]:
    """The version of each package that a file of constraints or requirements pins, by normalized name."""
    return {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE)}


def _is_needed(item: Requirement) -> bool:
    """Whether Linux needs the package, with any Python from 3.11 on."""
    return item.marker is None or any(item.marker.evaluate({**_LINUX, **machine}) for machine in _MACHINES)


if __name__ == "__main__":
    main()
