"""AdaptiveCoder: backward-adaptive residual quantization of principal coefficients.

Smooth and busy images need different directions refined, and the bytes decoded so far show which. `codebooks.py` has
the algorithm. Codes stay nested, as the decoder follows the same adaptation.
"""

from nestcode.coders.adaptive.model import AdaptiveModel
from nestcode.coders.base import Metric, check_beams, check_settings
from nestcode.coders.projected import ProjectedCoder


class AdaptiveCoder(ProjectedCoder[AdaptiveModel]):
    """Codebooks for the coordinates of the largest remaining scale; the best for images without a network.

    >>> import numpy as np
    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = AdaptiveCoder(width=64).fit(X)
    >>> codes = coder.encode(X)
    >>> errors = [float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)) for k in (0, 8, 16, 32, 64)]
    >>> bool(np.all(np.diff(errors) < 0))
    True

    Args:
        width: bits of a code; every 8 of them choose one of 256 codebook entries.
        metric: "l2", or "cosine" to L2-normalize every item first and compare by angle.
        beams: the number of partial encodings that beam search keeps for each item; more beams give better codes and
            take longer.
        seed: of the sample that codebooks are trained on and of their initialization.

    """

    MODEL, KIND = AdaptiveModel, "AdaptiveCoder"

    def __init__(self, width: int, metric: Metric = "l2", beams: int = 8, seed: int = 0) -> None:
        check_settings(width, metric, seed)
        check_beams(beams, "8 is good, 32 a little better")
        self.width = width
        self.metric = metric
        self.beams = beams
        self.seed = seed
