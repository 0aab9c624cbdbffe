"""Saves a run's state, atomically, on storage that the driver and all workers share.

1. `run_directory`      reads and writes small files in the run's own directory, and retries writes while the store fails.
2. `checkpoints`        writes checkpoints in the background, uses only complete ones, and reshards them when loading. `dcp_storage`
                        connects torch to the storage.
3. `checkpoint_record`  is what a checkpoint holds besides tensors; the log of digests and losses, kept after a checkpoint is deleted, with
                        which a replay check compares; and what several workers hold alike, compared before a checkpoint counts.
4. `forks`              copies what a run has saved after an epoch, for another one that goes on from there.
"""
