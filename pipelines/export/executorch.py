"""Target `executorch`, for phones: it is not there, and this says so."""

from pathlib import Path

from pipelines.config.export import Export
from pipelines.errors import ExportError
from pipelines.export.subject import Subject
from pipelines.export.targets import Written


def write(subject: Subject, settings: Export, folder: Path) -> Written:
    """Raises ExportError."""
    raise ExportError(
        "--to executorch is not supported: ExecuTorch needs other versions of packages than those that Lockstep is tested with; "
        "use --to onnx, which onnxruntime runs on phones"
    )
