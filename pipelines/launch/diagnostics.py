"""Files the workers' profiles, and what hung workers waited for, in MLflow."""

import logging

from pipelines.config.train.base import Profile
from pipelines.errors import LockstepError
from pipelines.monitor.heartbeat import HUNG
from pipelines.monitor.profile import PROFILE
from pipelines.tracking import TrainingRun
from pipelines.train.checkpoint.run_directory import RunDirectory

log = logging.getLogger(__name__)


def file_diagnostics(run: TrainingRun, directory: RunDirectory, settings: Profile) -> list[str]:
    """File profiles and records of hung workers; return lines about them. A failure is logged, and the files stay in the directory."""
    try:
        names_by_folder = {folder: directory.names(folder) for folder in (PROFILE, HUNG)}
        for folder, names in names_by_folder.items():
            for name in names:
                if (content := directory.get(f"{folder}/{name}")) is not None:
                    run.file(f"{folder}/{name}", content)
    except LockstepError as error:
        log.warning("%s/%s and /%s are not filed in the run: %s", directory.uri, PROFILE, HUNG, error)
        return []
    lines = _profile_lines(settings, names_by_folder[PROFILE])
    return [*lines, f"what hung workers waited for is filed under {HUNG}/"] if names_by_folder[HUNG] else lines


def _profile_lines(settings: Profile, names: list[str]) -> list[str]:
    if settings.steps is None:
        return []
    missing = [rank for rank in dict.fromkeys(settings.ranks) if f"rank-{rank}.trace.json.gz" not in names]
    steps = "steps {:,} to {:,}".format(*settings.steps)
    lines = [f"the profile of {steps} is filed under {PROFILE}/; https://ui.perfetto.dev opens its traces"] if names else []
    if missing:
        workers = ", ".join(map(str, missing))
        lines.append(f"train.profile: there is no profile of worker {workers}, which did not exist or did not come to {steps}")
    return lines
