"""For TPUs, and whatever else XLA compiles for. `target` has the model written by `on_xla`, a script of an environment of its own."""
