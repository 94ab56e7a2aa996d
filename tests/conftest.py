"""Settings of all tests."""

import os

from hypothesis import settings

# Matrices here are so small that threads of one product wait for each other longer than they work. This must be said
# before anything imports NumPy or PyTorch; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says how busy the machine is, not whether a law holds.
settings.register_profile("nestcode", deadline=None)
settings.load_profile("nestcode")
