"""Begins the training of a trial that continues another one: with its checkpoint and its curves, so that no epoch is trained twice."""

import logging

from pipelines import tracking
from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import TrainingError
from pipelines.launch.cluster import job_tags
from pipelines.report.evaluation import archive_name
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.search_run import FORK_EPOCH, FORKED_FROM, TRIAL, copy_points, training_folder
from pipelines.train.checkpoint.checkpoint_record import newest_step
from pipelines.train.checkpoint.forks import copy_epoch, find_epoch, has_epoch
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.tuning.search import TrialJob

log = logging.getLogger(__name__)


def fork_training(config: Config, version: Version, job: TrialJob, source_run_id: str, parent: str) -> None:
    """Have a run of this config's training be as if the job's trial had paused where it leaves that of `source_run_id`.

    Nothing is done if the run is as far as that already. If what the source has saved then is not there any more, the trial is trained from
    the start, to the same model. Raises TrackingError.
    """
    assert job.fork is not None, "the trial continues another one"
    epoch, source_folder = job.fork.epoch, training_folder(config, source_run_id)
    try:
        source = RunDirectory(source_folder)
        folder = tracking.resumable_folder(config, version)
        if folder and has_epoch(RunDirectory(folder), epoch):
            return
        checkpoint = find_epoch(source, epoch)
        if checkpoint is None:
            log.info("trial %d is trained from the start: trial %d has no checkpoint of epoch %d", job.trial, job.fork.trial, epoch)
            return
        tags = {PARENT: parent, TRIAL: str(job.trial), FORKED_FROM: source_run_id, FORK_EPOCH: str(epoch)}
        run = tracking.open_training(config, version, job_tags(), tags)
        target = RunDirectory(run.folder)

        def copy_what_people_see(step: int) -> None:
            copy_points(run, source_run_id, step)
            figures = archive_name("validation")
            if newest_step(source) == step and source.has(figures):  # else they may be of a later epoch
                source.copy(figures, target)

        try:
            copy_epoch(source, target, checkpoint, copy_what_people_see)
        finally:
            run.end("SCHEDULED")
    except TrainingError as error:
        log.warning("trial %d is trained from the start, since trial %d cannot be copied: %s", job.trial, job.fork.trial, error)
