"""For all tests."""

from hypothesis import settings

# Machines are shared: an example that takes long is no failure.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
