"""Target `executorch`, for phones: it is not there, and this says so."""

from pathlib import Path

from pipelines.config.export import Export
from pipelines.errors import ExportError
from pipelines.export.subject import Subject
from pipelines.export.targets import Written


def write(subject: Subject, settings: Export, folder: Path) -> Written:
    """Raises ExportError."""
    raise ExportError(
        "--to executorch: each release of ExecuTorch requires one version of torch, and none is for the one that Lockstep is tested "
        "with; use --to onnx, which onnxruntime runs on phones"
    )
