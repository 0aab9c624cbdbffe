"""A run's state on storage that the driver and all workers share, written whole or not at all.

1. `run_directory`  small files, each written whole, in a directory of the run's own; writing is tried again while the store
                    fails.
2. `checkpoints`    written beside the training, chosen only when whole, resharded when read; `store` is how torch reaches
                    the storage, and `record` what a checkpoint holds beside tensors.
3. `digest_log`     digests and losses of each checkpoint, kept after it is deleted, for a replay to compare with.
"""
