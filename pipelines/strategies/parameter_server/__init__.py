"""Parameter servers on Ray actors: every update of a shard is applied exactly once, whoever dies.

1. `settings`          is the section of the config.
2. `messages`          are what servers and workers tell each other, and which entries of the parameters are whose.
3. `server`            is a server without its network, which applies updates to its part and notes them in `watermarks`, by which leases
                       of microbatches are given to workers.
4. `server_actors`     runs it as a Ray actor, with a backup, and hands out leases of microbatches; and is a worker's view of all servers.
5. `worker_loop`       pulls, computes and pushes one shard's microbatch at a time, until the servers are quiescent. It reads each shard
                       at any step, and measures staleness and time. `worker_model` computes the gradients, and takes over parameters.
6. `parameter_server`  starts and ends the actors of a run, and connects all this with the training loop.
"""
