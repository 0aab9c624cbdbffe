"""The structure of the code, as numbers: lines, files and functions, imports between packages, private names used elsewhere.

python tests/shape.py [CHECKOUT]
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
SLICES = {"applications", "exports", "formats", "strategies"}
"""Rooms of `pipelines` whose folders the core works without."""
OWN = {"self", "cls", "super()"}
DOCUMENTED = {"os._exit", "sys._current_frames", "_asdict", "_fields"}
"""Names that begin with `_` and that Python documents, the last two for named tuples."""


def package_name(file: Path, root: Path = ROOT) -> str:
    """`loader` for `pipelines/data/loader/order.py`, `baseline` for `pipelines/launch/spark_baseline.py`, `jobs` for `jobs/etl.py`."""
    top, *folders = file.relative_to(root).with_suffix("").parts
    return top if top == "jobs" else folders[0]


def imported_names(file: Path) -> set[str]:
    """Dotted names of all imports in a file, including those inside functions."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: imports are absolute"
            names.update(f"{node.module}.{name.name}" for name in node.names)
    return names


def private_names(file: Path) -> Iterator[str]:
    """Private names that a file reads, sets or imports from anything but its own classes. What a class overrides is named in `compat`."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Attribute() if ast.unparse(node.value) not in OWN and not DOCUMENTED & {node.attr, ast.unparse(node)}:
                names = [node.attr]
            case ast.ImportFrom():
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            case _:
                continue
        if any(map(is_private, names)):
            yield f"{file.name}:{node.lineno}: {ast.unparse(node)}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def functions(file: Path) -> Iterator[tuple[int, str]]:
    """Number of lines and name of each function in a file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{file.name}: {node.name}"


def has_cycle(arrows: Iterable[tuple[str, str]]) -> bool:
    graph: dict[str, set[str]] = {}
    for source, target in arrows:
        graph.setdefault(source, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


def imports_between_packages(files: Iterable[Path], root: Path = ROOT) -> Mapping[tuple[str, str], int]:
    """Number of files of a package that import another one, by (importing, imported)."""
    counts: Counter[tuple[str, str]] = Counter()
    for file in files:
        packages = {name.split(".")[1] for name in imported_names(file) if name.startswith("pipelines.")}
        counts.update((package_name(file, root), package) for package in packages - {package_name(file, root)})
    return counts


def main() -> None:
    root = Path(sys.argv[1]).absolute() if sys.argv[1:] else ROOT
    files = [file for file in sorted([*root.glob("pipelines/**/*.py"), *root.glob("jobs/*.py")]) if file != root / "pipelines/__init__.py"]
    lines = {file: len(file.read_text().splitlines()) for file in files}
    of_slices = [file for file in files if SLICES & set(file.relative_to(root).parts[1:2])]
    sizes = [size for file in files for size, _ in functions(file)]
    arrows = imports_between_packages(files, root)
    print(f"lines {sum(lines.values()):,}, without slices {sum(lines.values()) - sum(lines[file] for file in of_slices):,}")
    print(f"files {len(files)}, of at most 40 lines {sum(count <= 40 for count in lines.values())}, longest {max(lines.values())} lines")
    print(f"functions {len(sizes):,}, median {median(sizes):.0f} lines, longest {max(sizes)} lines")
    print(
        f"packages {len({package_name(file, root) for file in files})}, imports between them {len(arrows)}, cycles {int(has_cycle(arrows))}"
    )
    print(f"private names outside compat {sum(len(list(private_names(file))) for file in files if file.parent.name != 'compat')}")


if __name__ == "__main__":
    main()
