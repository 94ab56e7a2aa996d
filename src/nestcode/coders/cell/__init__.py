"""The cell coder, IVF with scalar-quantized residuals.

`coder.py` is the estimator, `model.py` the fitted model, `kmeans.py` trains the coarse quantizer.
"""

from nestcode.coders.cell.coder import CellCoder

__all__ = ["CellCoder"]
