"""The paper's figures and claims as running code: one file each, run by `nestcode reproduce NAME`.

`lab.py` is what an experiment is given, `runner.py` runs them and writes the page. `pca.py` (its figures in
`pca_figures.py`) is section 3 and appendix A: nested dropout recovers PCA exactly.
"""

from nestcode.reproduce.lab import Experiment, Finding, Images, Lab
from nestcode.reproduce.runner import NAMES, reproduce

__all__ = ["NAMES", "Experiment", "Finding", "Images", "Lab", "reproduce"]
