"""Finds out where the time of a training goes, and what a slow or stuck one waits for.

1. `beats`       is what a worker's heartbeat says.
2. `stragglers`  names a worker that holds the others up, and what it is slow at; `standstill`, a worker without which nothing goes on.
3. `profile`     records some steps with torch's profiler; `resident` has the peak of memory by phase.
"""
