"""The implicit coder: `coder.py` is the estimator, `model.py` the fitted model, `additive.py` its tables for search."""

from nestcode.coders.implicit.coder import ImplicitCoder

__all__ = ["ImplicitCoder"]
