"""The paper's figures and claims as running code: one file each, run by `nestcode reproduce NAME`.

`lab.py` is what an experiment is given, `runner.py` runs them and writes the page. `pca.py` (its figures in
`pca_figures.py`) is section 3 and appendix A: nested dropout recovers PCA exactly.
`filters.py` is figure 1, what unit sweeping does for late units.
`pinwheel.py` is figure 2, neighborhoods in the plane. `information.py` is section 2.1, gains and their weights.
`knn.py` is section 7, classes of neighbours. `nesting.py` is section 7, groups and trees instead of the chain.
`complexity.py` is section 5.1, how deep a query goes (its figures in `complexity_figures.py`).
`speeds.py` is figure 3, time against code length (its figures in `speeds_figures.py`).
`infinite.py` is section 7, a code that grows (its figures in `infinite_figures.py`).
`neighborhoods.py` is figure 4, images that share a prefix.
`reconstructions.py` is figure 5a, images from prefixes of their codes.
`rates.py` is figure 5b, errors by bits beside other orders and codecs (its figure in `rates_figures.py`).
`regularisation.py` is sections 4.2 and 4.4, penalties and invariance (networks in `regularisation_measures.py`).
"""

from nestcode.reproduce.lab import Experiment, Finding, Images, Lab
from nestcode.reproduce.runner import NAMES, reproduce

__all__ = ["NAMES", "Experiment", "Finding", "Images", "Lab", "reproduce"]
