"""CellCoder, an IVF code: a coarse quantizer (k-means), then the scalar-quantized residual as ordered bit planes.

The cells of k-means are small where data is dense, so a search probes the inverted lists of the few whose centroids are
nearest to its query. Centroids are in the order of a binary tree, so the first bits of a cell's number are a code too:
they decode to the mean of a subtree.
"""

from nestcode.coders.base import Metric, check_settings
from nestcode.coders.cell.kmeans import check_cells
from nestcode.coders.cell.model import CellModel
from nestcode.coders.projected import ProjectedCoder


class CellCoder(ProjectedCoder[CellModel]):
    """A coarse quantizer with ordered bit planes of the residual; best for fast search.

    >>> import numpy as np
    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = CellCoder(width=64, cells=16).fit(X)
    >>> codes = coder.encode(X)
    >>> [round(float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)), 4) for k in (0, 2, 4, 32, 64)]
    [0.0733, 0.0563, 0.036, 0.0145, 0.0065]

    Args:
        width: bits of a code.
        metric: "l2", or "cosine" to L2-normalize every item first and compare by angle.
        cells: number of centroids (nlist), a power of two of at most 65,536; a cell's number takes the first bits of a
            code. None has one for about 160 of the rows it is fitted on, and at
            most 16,384. Fit it on all rows; it draws its own sample.
        seed: the seed of the training sample and of the initialization of k-means.

    """

    MODEL, KIND = CellModel, "CellCoder"

    def __init__(self, width: int, metric: Metric = "l2", cells: int | None = None, seed: int = 0) -> None:
        check_settings(width, metric, seed)
        if cells is not None:
            check_cells(cells, width)
        self.width = width
        self.metric = metric
        self.cells = cells
        self.seed = seed
