"""For FPGAs: `target` writes C++ for high-level synthesis, by `settings`."""
