"""A small raw table with what real ones have, and a pipeline over it, for tests of ETL."""

from pathlib import Path

import numpy as np
import yaml

ROWS = 3_000


def people() -> list[str]:
    """CSV lines: id, age (7 of them beyond 120), height with 60 NULLs, one of 5 cities, one of 400 jobs, whether rich."""
    random = np.random.default_rng(7)
    lines = []
    for number in range(ROWS):
        age = 130 if number % 450 == 17 else random.integers(18, 90)
        height = "" if number % 50 == 3 else f"{random.normal(1.7, 0.1):.4f}"
        city = random.choice(["Ulm", "Bonn", "Köln", '""', "Jena"])
        lines.append(f"{number},{age},{height},{city},job {random.integers(0, 400)},{'true' if random.random() < 0.3 else 'false'}")
    return lines


def write_pipeline(folder: Path, uri: str, files: int = 1) -> Path:
    """Write the table, cut into so many files, and the YAML file of a pipeline; return the latter's path."""
    lines = people()
    (folder / "raw").mkdir(exist_ok=True)
    for number in range(files):
        piece = lines[number * ROWS // files : (number + 1) * ROWS // files]
        (folder / "raw" / f"{number}.csv").write_text("\n".join(piece) + "\n")
    values = {
        "name": "people",
        "source": {
            "tables": {
                "people": {
                    "format": "csv",
                    "path": str(folder / "raw"),
                    "schema": "id int, age int, height double, city string, job string, rich boolean",
                }
            },
            "query": "SELECT *, age / height AS ratio FROM people",
            "expect": {"plausible age": "age <= 120"},
            "max_quarantined": 0.05,
        },
        "dataset": {
            "path": str(folder / "data"),
            "key": ["id"],
            "features": {
                "id": "identity",
                "age": "standardize",
                "age_bin": {"encoder": "quantile", "column": "age", "bins": 8},
                "height": {"encoder": "standardize", "impute": "mean"},
                "ratio": {"encoder": "normal_quantile", "impute": "median"},
                "place": {"encoder": "fourier", "columns": ["age", "id"], "frequencies": 4},
                "city": "vocabulary",
                "job": {"encoder": "vocabulary", "min_count": 6},
            },
            "target": {"rich": "binary"},
            "part_bytes": 12_000,
        },
        "task": {"kind": "tabular"},
        "tracking": {"uri": uri},
    }
    path = folder / "people.yaml"
    path.write_text(yaml.safe_dump(values, allow_unicode=True))
    return path
