"""For phones and other small devices. `target` has the model written by `on_executorch`, a script of an environment of its own."""
