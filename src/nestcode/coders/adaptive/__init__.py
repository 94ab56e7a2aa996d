"""The adaptive coder, backward-adaptive residual quantization.

`coder.py` is the estimator, `model.py` the fitted model, `codebooks.py` trains and applies its codebooks.
"""

from nestcode.coders.adaptive.coder import AdaptiveCoder

__all__ = ["AdaptiveCoder"]
