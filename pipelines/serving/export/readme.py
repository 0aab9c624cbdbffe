"""The README of a folder with a `predict.py`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def readme_text(name: str, manifest: Mapping[str, Any], query: str, examples: Mapping[str, Any]) -> str:
    """Markdown that says how to predict with the folder; `manifest` and `examples` are the content of its files."""
    encoders = [(entry.get("encoded by") or entry["refuses"])["encoder"]["encoder"] for entry in manifest["inputs"]]
    template = Path(__file__).parent / "templates/readme.txt"
    return template.read_text().format(
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
