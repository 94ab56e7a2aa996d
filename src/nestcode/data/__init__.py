"""Real data to learn, show and test on.

`samples.py` holds what comes with scikit-learn, so that it needs no download.
"""

from nestcode.data.samples import digits, patches, photographs

__all__ = ["digits", "patches", "photographs"]
