"""Prints the tables of a benchmark, and saves their rows as dated JSON with machine and versions."""

import json
import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = dict[str, str | float | int | None]
RESULTS = Path(__file__).parent / "results"


def show(title: str, rows: list[Row]) -> None:
    """Print rows as a table with their keys as header, numbers right-aligned, and a dash for a key that a row lacks."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_text(row.get(name)) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    is_text_column = [all(isinstance(row.get(name, ""), str) for row in rows) for name in names]

    def line(values: Iterable[str]) -> str:
        padded = zip(values, widths, is_text_column, strict=True)
        return "  ".join(value.ljust(width) if text else value.rjust(width) for value, width, text in padded).rstrip()

    print(f"\n{title}\n", line(names), "  ".join("-" * width for width in widths), *map(line, cells), sep="\n", flush=True)


def save(benchmark: str, tables: dict[str, list[Row]], versions: dict[str, str], folder: Path = RESULTS) -> Path:
    """Write `<benchmark>-<cores>x-<processor>-<date>.json`, with tables by title. A second run on the same day replaces the first."""
    facts = machine()
    now = datetime.now(UTC)
    name = re.sub(r"[^a-z0-9]+", "-", str(facts["processor"]).lower()).strip("-")
    path = folder / f"{benchmark}-{facts['cores']}x-{name}-{now:%Y-%m-%d}.json"
    date = now.isoformat(timespec="seconds")
    content = {"benchmark": benchmark, "date": date, "machine": facts, "versions": versions, "tables": tables}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def machine() -> dict[str, Any]:
    """Processor, number of cores that this process may use, memory in GiB, operating system, Python."""
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
    }


def package_versions(*packages: str) -> dict[str, str]:
    """Versions of installed distributions, by name."""
    return {package: version(package) for package in packages}


def _text(value: str | float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:.3g}"
