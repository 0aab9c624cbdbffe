"""A program that predicts with one logged model, with the code in the model's own folder. `process` starts it; nothing imports it.

    python -P alone.py FOLDER rows|query

It verifies the model's files, and writes one line of JSON about the model. Then it answers each record batch of the Arrow stream on
standard input with one of the stream on standard output. Output of libraries goes to standard error.
"""

import json
import os
import runpy
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import pyarrow as pa


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    folder, takes = Path(sys.argv[1]), sys.argv[2]
    try:
        about, predictor = load_verified(folder, takes == "query")
    except Exception as error:
        _say(answers, {"error": type(error).__name__, "message": " ".join(str(error).split())})
        raise
    outputs = output_schema(predictor)
    _say(answers, {**about, "outputs": _text(outputs)})
    with pa.ipc.open_stream(sys.stdin.buffer) as batches, pa.ipc.new_stream(answers, outputs) as written:
        for batch in batches:
            frame = predictor.predict(pa.Table.from_batches([batch]))
            table = pa.Table.from_pandas(frame, schema=outputs, preserve_index=False)
            written.write_batch(pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=outputs))
            answers.flush()


def load_verified(folder: Path, takes_query: bool) -> tuple[dict[str, Any], Any]:
    """The description of the model in `folder`, and its predictor: for the query's columns if `takes_query`, else for the rows that the
    model takes. Raises CorruptError if a file was altered."""
    entry = runpy.run_path(str(folder / "entry.py"))
    verify_files = entry.get("verify_files") or entry["checked"]  # its name in models that were logged with earlier versions
    digest = verify_files(folder)
    # Only now the code is verified.
    manifests, models = import_module("pipelines.data.versions.manifest"), import_module("pipelines.serving.model")
    artifacts = {file.stem: str(file) for file in (folder / "artifacts").iterdir()}
    manifest = manifests.parse_manifest(Path(artifacts["manifest"]).read_bytes(), artifacts["manifest"])
    with TemporaryDirectory() as place:
        if takes_query:
            artifacts["manifest"] = f"{place}/manifest.json"
            Path(artifacts["manifest"]).write_bytes(manifest.model_copy(update={"served_query": None}).to_json())
        predictor = models.load_predictor(artifacts, digest)
    served = manifest.served_query
    about = {
        "digest": digest,
        "pipeline": manifest.name,
        "dataset": manifest.digest,
        "source": manifest.identity.get("source", {}),
        "rows_at_once": getattr(predictor, "rows_at_once", None),
        "table": served.table if served else "",
        "conditions": list(served.conditions) if served else [],
        "inputs": _text(predictor.inputs),
        "features": {name: fitted.feature for name, fitted in manifest.encoders.items() if fitted.column.role == "feature"},
    }
    return about, predictor


def output_schema(predictor: Any) -> pa.Schema:
    """The columns of predictions, and `refused`."""
    schema = pa.Schema.from_pandas(predictor.outputs.drop(columns="refused", errors="ignore"), preserve_index=False).remove_metadata()
    kinds = {field.name: pa.string() if pa.types.is_large_string(field.type) else field.type for field in schema}
    return pa.schema({**kinds, "refused": pa.string()})


def _text(schema: pa.Schema) -> str:
    return bytes(schema.remove_metadata().serialize()).hex()


def _say(answers: BinaryIO, values: dict[str, Any]) -> None:
    answers.write(json.dumps(values).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
