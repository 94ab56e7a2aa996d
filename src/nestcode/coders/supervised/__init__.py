"""The supervised coder: `coder.py` is the estimator, `model.py` the classifier's bits and `decoder.py` their decoder."""

from nestcode.coders.supervised.coder import SupervisedCoder

__all__ = ["SupervisedCoder"]
