"""The training-free coder, a random rotation and ordered bit planes.

`coder.py` is the estimator, `model.py` the fitted model, `hadamard.py` the rotation.
"""

from nestcode.coders.rotation.coder import RotationCoder

__all__ = ["RotationCoder"]
