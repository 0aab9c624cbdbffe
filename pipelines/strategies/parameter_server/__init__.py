"""Parameter servers on Ray actors: every update of a shard is applied exactly once, whoever dies.

1. `settings`  is the section of the config.
   `parts`     cuts the parameters into one part for each server.
2. `server`    is a server without its network, which applies updates to its `part` and notes them in `watermarks`, by which leases of
               microbatches are given to workers; `messages` are what it is told.
3. `actor`     runs it as a Ray actor, with a backup, and hands out leases of microbatches.
4. `client`    is a worker's view of all servers; `worker_model` computes gradients for them, and takes over their parameters.
5. `progress`  pulls, computes and pushes one shard's microbatch at a time, until the servers are quiescent; `streams` reads each shard at
               any step; `waits` measures staleness and time.
6. `strategy`  starts and ends the actors of a run, and connects all this with the training loop.
"""
