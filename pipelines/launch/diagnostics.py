"""Files in MLflow what workers have left in the run's directory for whoever looks into the run: profiles, and what hung workers
waited for."""

import logging

from pipelines.config.profile import Profile
from pipelines.errors import LockstepError
from pipelines.monitor.heartbeat import HUNG
from pipelines.monitor.profile import PROFILE
from pipelines.tracking import TrainingRun
from pipelines.train.checkpoint.run_directory import RunDirectory

log = logging.getLogger(__name__)


def file_evidence(run: TrainingRun, directory: RunDirectory, settings: Profile) -> list[str]:
    """File it, and return what there is to say about it. What fails is logged, and stays in the directory."""
    try:
        found = {folder: directory.names(folder) for folder in (PROFILE, HUNG)}
        for folder, names in found.items():
            for name in names:
                if (content := directory.get(f"{folder}/{name}")) is not None:
                    run.file(f"{folder}/{name}", content)
    except LockstepError as error:
        log.warning("%s/%s and /%s are not filed in the run: %s", directory.uri, PROFILE, HUNG, error)
        return []
    return [*_of_profile(settings, found[PROFILE]), *([f"what hung workers waited for is filed under {HUNG}/"] if found[HUNG] else [])]


def _of_profile(settings: Profile, names: list[str]) -> list[str]:
    if settings.steps is None:
        return []
    missing = [rank for rank in dict.fromkeys(settings.ranks) if f"rank-{rank}.trace.json.gz" not in names]
    steps = "steps {:,} to {:,}".format(*settings.steps)
    said = [f"the profile of {steps} is filed under {PROFILE}/; https://ui.perfetto.dev opens its traces"] if names else []
    if missing:
        workers = ", ".join(map(str, missing))
        said.append(f"train.profile: there is no profile of worker {workers}, which did not exist or did not come to {steps}")
    return said
