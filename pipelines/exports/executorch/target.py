"""Target `executorch`: for phones and other small devices, run here by ExecuTorch's runtime, in an environment of its own."""

from pathlib import Path

from pipelines.config.serving import Export
from pipelines.serving.export.subject import Subject
from pipelines.serving.export.targets import Candidate, Environment, TargetFiles, write_with

_SCRIPT = Path(__file__).with_name("on_executorch.py")
EXECUTORCH = Environment("executorch", "executorch", ("executorch",), "ExecuTorch", _SCRIPT, dtypes={"uint16": "int32"})


def write(subject: Subject, settings: Export, folder: Path) -> TargetFiles:
    """Raises ExportError if the environment is not there, or if ExecuTorch lacks an operator of the network."""
    run = write_with(EXECUTORCH, subject, range(1, settings.max_batch_rows + 1), folder)
    order = ", ".join(sorted(column.name for column in subject.columns))
    notes = (
        f"a batch has up to {settings.max_batch_rows} rows, export.max_batch_rows",
        f"the network takes encoded tensors, in this order: {order}",
    )
    candidate = Candidate(run, (folder / "model.pte").stat().st_size, dtypes=EXECUTORCH.dtypes)
    return TargetFiles({"executorch": candidate}, notes, EXECUTORCH.versions())
