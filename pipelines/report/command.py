"""What `jobs/report.py` does: the page of a run, or of several compared."""

from pathlib import Path

from pipelines import atomic
from pipelines.errors import ConfigError
from pipelines.report.arguments import Asked
from pipelines.report.comparison import comparison_page
from pipelines.report.material import material
from pipelines.report.run_page import run_page
from pipelines.tracking.history import newest_run


def report(uri: str, run_ids: tuple[str, ...]) -> str:
    """The page of a run, or the comparison of several, as HTML. Raises TrackingError for an unknown run or an unreachable server."""
    found = [material(uri, run_id) for run_id in run_ids]
    return run_page(found[0]) if len(found) == 1 else comparison_page(found)


def write(asked: Asked) -> str:
    """Write the page, and return a line that says where."""
    run_ids = tuple(one if isinstance(one, str) else newest_run(asked.uri, one.experiment) for one in asked.runs)
    file = asked.file or Path(f"report-{'-'.join(run_id[:8] for run_id in run_ids)}.html")
    content = report(asked.uri, run_ids).encode()
    try:
        atomic.replace(str(file), content, durable=False)
    except OSError as error:
        raise ConfigError(f"--out is {file}, which cannot be written: {error.strerror}; choose another file") from error
    return f"{file.absolute()} ({len(content) / 1e6:.1f} MB)"
