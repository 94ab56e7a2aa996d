"""Settings of all tests."""

from hypothesis import settings

# How long an example takes says how busy the machine is, not whether a law holds.
settings.register_profile("nestcode", deadline=None)
settings.load_profile("nestcode")
