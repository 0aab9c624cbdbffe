"""Strategy `ddp`: DistributedDataParallel.

1. `settings`      is the section of the config.
   `ddp`           runs one pass over a worker's rows, and adds up counts over workers together with the gradients.
2. `compression`   sends its gradients in fewer bytes, as low-rank factors or as the largest entries.
"""
