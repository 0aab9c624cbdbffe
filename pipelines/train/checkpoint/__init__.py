"""Saves a run's state, atomically, on storage that the driver and all workers share.

1. `run_directory`  reads and writes small files in the run's own directory, and retries writes while the store fails.
2. `checkpoints`    writes checkpoints in the background, uses only complete ones, and reshards them when loading.
                    `store` connects torch to the storage; `record` is what a checkpoint holds besides tensors; `agreement` compares what
                    several workers hold alike before a checkpoint counts.
3. `digest_log`     keeps digests and losses of every checkpoint after it is deleted; a replay check compares with them.
"""
