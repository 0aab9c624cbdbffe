"""Says what a training would take, before it is started.

1. `simulation` simulates steps and whole runs on many workers, from plain numbers.
"""
