"""The linear coder, PCA and ordered bit planes: `coder.py` is the estimator, `model.py` the fitted model."""

from nestcode.coders.linear.coder import LinearCoder

__all__ = ["LinearCoder"]
