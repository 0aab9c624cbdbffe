"""The model that is measured on a slow link: 10 million parameters, and so few rows that a step is short."""

from benchmarks.train.cases import Case

CASE = Case(
    {"kind": "tabular", "hidden": [1_800] * 4},
    {"encoder": "identity"},
    columns=100,
    shape=(),
    dtype="float32",
    rows=20_000,
    global_batch=64,
    warm_up=3,
    steps=5,
)
