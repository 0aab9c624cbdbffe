"""Checkpoints: written in the background, used only when complete, resharded when read.

    checkpoints/step-000001200-4f3a9c/
      __0_0.distcp …  .metadata    torch.distributed.checkpoint: model, optimizer and scaler; each with its SHA-256 beside it
      record.json                  written last, when all workers' files are there: without it the checkpoint does not count;
                                   with the digests of all tensors, which are verified when they are loaded

If a checkpoint is damaged, the previous one is used. Reading unpickles .metadata: checkpoints are trusted input.
"""

import logging
from collections import ChainMap
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from pipelines.config.train.strategy import ONE_WORKER
from pipelines.data.versions.storage import seal, unseal_or_none
from pipelines.errors import TrainingError
from pipelines.runtime.weights import digests
from pipelines.train.checkpoint.checkpoint_record import (
    FORMAT,
    RECORD,
    Fingerprints,
    Record,
    append_step,
    check_agreement,
    describe_machine,
    differing_tensors,
    fingerprints,
    forget_steps_after,
)
from pipelines.train.checkpoint.dcp_storage import DcpReader, DcpWriter
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.dtensor import local_parts
from pipelines.train.workers import WorkerContext, all_gather_object, broadcast_from_rank0

log = logging.getLogger(__name__)


@dataclass
class PendingCheckpoint:
    """A checkpoint that is being written."""

    name: str
    record: Record
    written: "Future[Any]"
    """Done when this worker's part is written."""
    digests: "Future[dict[str, str]]"
    """Digests of the tensors, or of their parts, that no worker of a lower rank holds."""
    fingerprints: "Future[Fingerprints]"
    """Fingerprints of all that this worker holds, to be compared with those of other workers."""

    @property
    def is_written(self) -> bool:
        """Whether this worker's part is written, and all is computed that others wait for."""
        return self.written.done() and self.digests.done() and self.fingerprints.done()


class Checkpoints:
    """The checkpoints of one run. All workers make the same calls in the same order."""

    def __init__(
        self, directory: RunDirectory, context: WorkerContext, keep: int, timeout_seconds: float = 300.0, one_worker_flags: str = ONE_WORKER
    ) -> None:
        """`one_worker_flags` are those with which one worker goes on with the run."""
        self._directory, self._context, self._keep, self._one_worker_flags = directory, context, keep, one_worker_flags
        self._digest_thread = ThreadPoolExecutor(1, "digests")
        self._agreed_step: int | None = None
        """The last saved step, after which all workers held the same."""
        # A save runs collectives in a background thread, at the same time as training, so it needs its own process group.
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds)) if dist.is_initialized() else None

    def begin(self, state: dict[str, Any], record: Record) -> PendingCheckpoint:
        """Copy the state and start writing it. Returns as soon as training may change it again."""
        name = broadcast_from_rank0(f"checkpoints/step-{record.step:09d}-{uuid4().hex[:6]}", self._group)
        names = list(local_parts(state))
        # Each tensor, or part of one, is digested by the lowest rank that holds it. Before the save uses the group.
        names_of_lower_ranks = set[str]().union(*all_gather_object(names, self._group)[: self._context.rank])
        store = DcpWriter(self._directory, name)
        with _name_path_in_errors(self._directory, name):
            written = async_save(state, storage_writer=store, process_group=self._group, no_dist=self._group is None)
        assert isinstance(written, Future)
        # Digests of the copy, during training: they take a third of a second for 100 M parameters.
        staged = local_parts(store.staged)
        own_tensors = {tensor: staged[tensor] for tensor in names if tensor not in names_of_lower_ranks}
        tensor_digests = self._digest_thread.submit(digests, own_tensors)
        # Of one worker there is nothing to compare, and no fingerprint is computed.
        compared = store.staged if self._context.world_size > 1 else {}
        return PendingCheckpoint(name, record, written, tensor_digests, self._digest_thread.submit(fingerprints, compared, record))

    def commit(self, pending: PendingCheckpoint) -> str:
        """Wait for all workers' parts, write the record that completes the checkpoint, and remove old ones. Returns its path.

        Raises TrainingError, naming the path, if a part cannot be written, and DriftError if workers that must hold the same do not: such
        a checkpoint stays incomplete.
        """
        with _name_path_in_errors(self._directory, pending.name):
            pending.written.result()
        by_worker, fingerprints = zip(
            *all_gather_object((pending.digests.result(), pending.fingerprints.result()), self._group), strict=True
        )
        check_agreement(fingerprints, pending.record.step, self._agreed_step, self._one_worker_flags)
        self._agreed_step = pending.record.step
        if self._context.rank == 0:
            record = replace(pending.record, digests=dict(ChainMap(*reversed(by_worker))))
            append_step(self._directory, record.step, record.digests, record.losses, describe_machine(self._context.device))
            self._directory.put(f"{pending.name}/{RECORD}", seal(asdict(record)))
            try:
                self._prune()
            except TrainingError as error:  # the next commit prunes again
                log.warning("old checkpoints are kept for now: %s", error)
        return f"{self._directory.path}/{pending.name}"

    def restore(self, state: dict[str, Any]) -> tuple[str, Record] | None:
        """Fill `state`, as `load` does, from the newest complete and undamaged checkpoint. Returns its name and record, the
        same on all workers; None if there is no checkpoint.

        Raises TrainingError if the store fails, or if there are checkpoints and all are damaged.
        """
        unusable: dict[str, str] = {}
        """Names of checkpoints whose tensors are not as recorded, with the reason."""
        is_first_rank = self._context.rank == 0
        complete = self._complete() if is_first_rank else []
        damaged = [name for name, content in self._records() if unseal_or_none(content) is None] if is_first_rank else []
        complete, damaged = broadcast_from_rank0((complete, damaged), self._group)
        for name, record in complete:
            try:
                self._load(name, state)
            except CheckpointException as error:
                if _is_store_failure(error):
                    with _name_path_in_errors(self._directory, name):
                        raise
                log.warning("%s is damaged, using the previous checkpoint: %s", name, _cause(error))
                damaged.append(name)
            else:
                if reason := self._describe_alterations(record, state):
                    log.warning("%s cannot be used, using the previous checkpoint: %s", name, reason)
                    unusable[name] = reason
                    continue
                if self._context.rank == 0:
                    for newer in (*damaged, *unusable):  # else they would count as the newest
                        self._directory.remove(f"{newer}/{RECORD}")
                self._agreed_step = record.step
                return name, record
        if damaged or unusable:
            reasons = [f"{', '.join(damaged)}: damaged"] if damaged else []
            reasons += [f"{name}: {reason}" for name, reason in unusable.items()]
            raise TrainingError(
                f"{self._directory.path}: {'; '.join(reasons)}, and no other checkpoint is left; "
                f"{'restore one of them, or ' if damaged else ''}remove {self._directory.path} to start anew"
            )
        return None

    def forget_after(self, step: int) -> None:
        """Remove the steps after `step` from the digest log: a run that resumes at `step` repeats them."""
        if self._context.rank == 0:
            forget_steps_after(self._directory, step)

    def best(self, epoch: int) -> tuple[str, Record]:
        """Name and record of the complete checkpoint of the best epoch, `epoch`, the same on all workers. Raises TrainingError if there is
        none."""
        best = broadcast_from_rank0(_find_best(self._complete(), epoch) if self._context.rank == 0 else None, self._group)
        if best is None:
            raise self._lost_best(epoch, "is missing, or its record is damaged")
        return best

    def load_best(self, epoch: int, state: dict[str, Any]) -> None:
        """Fill `state`, which has the right names and shapes, with the tensors of the best epoch's checkpoint, saved by any number of
        workers.

        Raises TrainingError if the store fails, or the checkpoint is missing or damaged, or the digest of a tensor is not the recorded one.
        """
        name, record = self.best(epoch)
        try:
            self._load(name, state)
        except CheckpointException as error:
            if _is_store_failure(error):
                with _name_path_in_errors(self._directory, name):
                    raise
            raise self._lost_best(epoch, f"{name}, is damaged ({_cause(error)})") from error
        if reason := self._describe_alterations(record, state):
            raise TrainingError(f"{self._directory.path}/{name}: {reason}; remove {self._directory.path} to start anew")

    def _lost_best(self, epoch: int, fault: str) -> TrainingError:
        return TrainingError(
            f"{self._directory.path}: the checkpoint of epoch {epoch}, the best one, {fault}; restore it from a backup, or remove "
            f"{self._directory.path} to start anew"
        )

    def _load(self, name: str, state: dict[str, Any]) -> None:
        load(state, storage_reader=DcpReader(self._directory, name), process_group=self._group, no_dist=self._group is None)

    def _describe_alterations(self, record: Record, state: dict[str, Any]) -> str:
        """Name the tensors that no worker holds, or whose digest on some worker is not the recorded one; empty if none. Collective.

        No file is to blame: each has just been read with the checksum that it was written with.
        """
        by_worker = all_gather_object(digests(local_parts(state)), self._group)
        differing = differing_tensors(by_worker, record.digests) if record.digests else []
        if not differing:
            return ""
        names = f"{', '.join(differing[:3])}{' and others' if len(differing) > 3 else ''}"
        return f"{names} not as in the record, though every file is as it was written, so that the workers had parted when they saved it"

    def _complete(self) -> list[tuple[str, Record]]:
        """Names and records of complete checkpoints, newest first. Of the same step, one may be before the validation, and one after."""
        checkpoints = []
        for name, content in self._records():
            if (values := unseal_or_none(content)) is not None:
                if values["format"] > FORMAT:
                    raise TrainingError(
                        f"{self._directory.path}/{name} has format {values['format']}, newer than {FORMAT}: upgrade Lockstep"
                    )
                checkpoints.append((name, Record(**values)))
        return sorted(checkpoints, key=lambda pair: (pair[1].step, pair[1].state.get("validated", 0)), reverse=True)

    def _records(self) -> list[tuple[str, bytes]]:
        names = sorted((f"checkpoints/{base}" for base in self._directory.names("checkpoints")), reverse=True)
        return [(name, content) for name in names if (content := self._directory.get(f"{name}/{RECORD}")) is not None]

    def _prune(self) -> None:
        """Keep the newest few, each with the best one until then, which a run that continues from it may end with; remove the others, and
        incomplete ones."""
        complete = self._complete()
        newest = complete[: self._keep]
        best = filter(None, (_find_best(complete, record.state.get("best_epoch", 0)) for _, record in newest))
        names = {name for name, _ in (*newest, *best)}
        for base in self._directory.names("checkpoints"):
            if f"checkpoints/{base}" not in names:
                self._directory.remove(f"checkpoints/{base}")


def _find_best(checkpoints: list[tuple[str, Record]], epoch: int) -> tuple[str, Record] | None:
    """The checkpoint of that epoch, if it was saved as the best so far."""
    return next((pair for pair in checkpoints if pair[1].best and pair[1].state.get("epochs") == epoch), None)


def _is_store_failure(error: CheckpointException) -> bool:
    """Whether the store has failed a worker; a file that is gone is a damage."""
    causes = [failure[0] for failure in error.failures.values()]
    return any(isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError) for cause in causes)


@contextmanager
def _name_path_in_errors(directory: RunDirectory, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, CheckpointException) as error:
        raise TrainingError(
            f"{directory.path}/{name}: {_cause(error)}; the last complete checkpoint is kept: free space or repair the store, and "
            "run the same command again"
        ) from error


def _cause(error: BaseException) -> str:
    """The workers' own errors, which torch.distributed.checkpoint wraps in a table of tracebacks."""
    if isinstance(error, CheckpointException):
        return "; ".join(f"worker {rank}: {failure[0]}" for rank, failure in error.failures.items())
    return str(error)
