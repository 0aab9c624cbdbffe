"""Where the time of a training goes, and what a slow or stuck worker waits for. Runs beside the training, and computes nothing of it.

1. `worker_heartbeat` writes where a worker is, every few seconds.
2. `worker_monitor`  reads it on the driver, and names workers that are slow, stragglers, or that all wait for.
3. `stack_dump`      asks a live training, from outside, where each of its workers is.
4. `profile`         records some steps with torch's profiler, and the peak of memory by phase.
"""
