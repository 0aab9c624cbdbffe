"""Trains a first model from an installed package, as `make demo` does in a checkout: `lockstep demo`.

1. `two_commands` writes `digits.yaml`, a copy of conf/digits.yaml, into the current folder, and runs `lockstep etl` and `lockstep train`.
"""
