"""The README of a folder with a `predict.py`."""

import json
from collections.abc import Mapping
from typing import Any

_TEXT = """# {name}, as ONNX

Written from run `{run}`, trained on dataset digest `{digest}`. `manifest.json` has all versions and digests, `parity.json` the comparison
with the model in MLflow on the test split.

    pip install numpy onnxruntime
    python predict.py rows.jsonl > predictions.jsonl
    python predict.py --check

`rows.jsonl` has one JSON object a line, such as the first row of `examples.json`:

    {row}

for which the model in MLflow predicts

    {prediction}

In Python:

    from predict import Model
    Model("FOLDER").predict([{{…}}])

## A row

A row has the columns of the query; `null` is a missing value. Bytes are base64, times ISO 8601{pictures}.

| column | type |
|---|---|
{columns}

The query itself is not part of this folder:

    {query}

A row that an encoder refuses has no prediction, and the reason in `refused`. A value of another type is an error.
"""


def readme_text(name: str, manifest: Mapping[str, Any], query: str, examples: Mapping[str, Any]) -> str:
    """Markdown that says how to predict with the folder; `manifest` and `examples` are the content of its files."""
    encoders = [(entry.get("encoded by") or entry["refuses"])["encoder"]["encoder"] for entry in manifest["inputs"]]
    return _TEXT.format(
        name=name,
        run=manifest["run"],
        digest=manifest["dataset"]["digest"][:12],
        row=_line(examples["rows"][0]),
        prediction=_line(examples["predictions"][0]),
        pictures="; pictures in files need Pillow" if "image" in encoders else "",
        columns="\n".join(f"| {column} | {kind} |" for column, kind in manifest["rows"].items()),
        query=query.strip().replace("\n", "\n    "),
    )


def _line(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 1_000 else f"{text[:1_000]}…"
