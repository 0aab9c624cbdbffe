"""Planted faults, and the rows of each training: visits to shops, and whether the visitor bought."""

from typing import Any

import numpy as np
import pyarrow as pa

HEALTHY, COMPILED = "healthy", "compile_storm"
CASES = (
    HEALTHY,
    "slow_disk",
    "slow_cpu",
    "slow_link",
    "skewed_partition",
    "memory_leak",
    "data_bound",
    COMPILED,
    "wrong_labels",
    "leaked_target",
    "drifted_validation",
)
"""A worker of the training learns the place of its case in this list, as a number in the environment."""
VARIABLE, GROUP = "VISITS", "VISITS_GROUP"
"""Variables of the environment: the number, and the control group of a slow CPU."""
ROWS, SHOPS, SKEW = 150_000, 600, 0.95
REGIONS = ("north", "south", "east", "west", "coast", "islands")
PLANS = ("none", "basic", "plus", "family")
CHANNELS = ("street", "search", "mail", "friend", "poster")
MILE = 1.609

QUERY = """\
SELECT * EXCEPT (shop, at), avg(amount) OVER (
  PARTITION BY shop ORDER BY at, id ROWS BETWEEN 1499 PRECEDING AND CURRENT ROW
) AS usual_amount
FROM (SELECT /*+ REPARTITION(8, shop) */ * FROM visits)
"""


def config(name: str, compiled: bool) -> dict[str, Any]:
    """The config of one training. They differ in names, and some compile their model."""
    numbers = ("age", "distance", "minutes", "rating", "amount", "usual_amount")
    return {
        "name": name,
        "source": {"tables": {"visits": {"format": "parquet", "path": f"work/{name}/visits.parquet"}}, "query": QUERY},
        "dataset": {
            "path": f"work/{name}/data",
            "key": ["id"],
            "split": {"by": "split"},
            "features": {
                **dict.fromkeys(numbers, "standardize"),
                **dict.fromkeys(("plan", "channel"), "vocabulary"),
                "returning": "binary",
            },
            "passthrough": {"region": "vocabulary"},
            "target": {"bought": "binary"},
        },
        "task": {"kind": "benchmarks.planted.settings:Visits", "hidden": [512, 512, 256], "slices": ["region", "plan"]},
        "train": {
            "workers": 2,
            "epochs": 6,
            "global_batch": 512,
            "lr": 3e-4,
            "cache_bytes": 0,
            "compile": compiled,
            "storage": f"work/{name}/runs",
        },
        "tracking": {"uri": "sqlite:///mlflow.db"},
    }


def rows(case: str, seed: int) -> pa.Table:
    """The raw table of a training; equal seeds give equal tables, but for what is planted."""
    draw = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "id": np.arange(ROWS),
        "at": 1_700_000_000 + draw.integers(0, 30_000_000, ROWS),
        "shop": draw.integers(0, SHOPS, ROWS),
        "split": draw.choice(["train", "validation", "test"], ROWS, p=[0.8, 0.1, 0.1]),
        "region": draw.choice(REGIONS, ROWS),
        "plan": draw.choice(PLANS, ROWS, p=[0.5, 0.25, 0.15, 0.1]),
        "channel": draw.choice(CHANNELS, ROWS),
        "age": draw.integers(18, 90, ROWS),
        "distance": draw.gamma(4.0, 1.5, ROWS),
        "minutes": draw.gamma(3.0, 6.0, ROWS),
        "rating": draw.uniform(1, 5, ROWS).round(1),
        "amount": draw.integers(100, 20_000, ROWS),
    }
    chance = 1 / (1 + np.exp(-_score(columns)))
    columns["bought"] = draw.random(ROWS) < chance
    columns["returning"] = draw.random(ROWS) < np.where(columns["bought"], 0.55, 0.45)
    flipped = draw.choice(REGIONS)
    if case == "skewed_partition":
        columns["shop"] = np.where(draw.random(ROWS) < SKEW, columns["shop"][0], columns["shop"])
    if case == "wrong_labels":
        columns["bought"] ^= columns["region"] == flipped
    if case == "leaked_target":
        columns["returning"] = columns["bought"]
    if case == "drifted_validation":
        columns["distance"] = np.where(columns["split"] == "validation", columns["distance"] * MILE, columns["distance"])
    return pa.table(columns)


def _score(columns: dict[str, Any]) -> np.ndarray:
    """The log of the odds that something is bought."""
    plan = np.select([columns["plan"] == name for name in PLANS], [-0.8, 0.0, 0.7, 1.2])
    channel = np.select([columns["channel"] == name for name in CHANNELS], [-0.4, 0.6, -0.2, 0.8, -0.6])
    near, long, young = 6 - columns["distance"], (columns["minutes"] - 18) / 10, (45 - columns["age"]) / 20
    return 0.7 * near + 0.8 * long * young + plan + channel + 0.4 * (columns["rating"] - 3) - 0.3 * (columns["amount"] / 10_000 - 1)
