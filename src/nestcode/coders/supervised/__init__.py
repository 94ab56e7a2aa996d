"""The supervised coder: `coder.py` is the estimator, `model.py` the fitted model, `decoder.py` reads its bits."""

from nestcode.coders.supervised.coder import SupervisedCoder

__all__ = ["SupervisedCoder"]
