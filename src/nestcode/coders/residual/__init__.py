"""The residual coder, residual quantization by beam search.

`coder.py` is the estimator, `model.py` the fitted model; its codebooks are in `coders/codebooks.py`.
"""

from nestcode.coders.residual.coder import ResidualCoder

__all__ = ["ResidualCoder"]
