"""The paper's figures and claims as running code: one file each, run by `nestcode reproduce NAME`.

`lab.py` is what an experiment is given, `runner.py` runs them and writes the page. In the order of the paper:

    information.py      section 2.1     gains of units and their weights
    pca.py              section 3       nested dropout recovers PCA exactly
    filters.py          figure 1        what unit sweeping does for late units
    regularization.py   section 4       penalties and invariance
    pinwheel.py         figure 2        neighborhoods in the plane
    complexity.py       section 5.1     how deep a query goes
    speeds.py           figure 3        time against code length
    neighborhoods.py    figure 4        images that share a prefix
    reconstructions.py  figure 5a       images from prefixes of their codes
    rates.py            figure 5b       errors by bits, beside other orders and codecs
    knn.py              section 7       classes of neighbours
    infinite.py         section 7       a code that grows
    nesting.py          section 7       groups and trees instead of the chain

Figures of NAME.py that would not fit into it are in NAME_figures.py. `networks.py` has the networks of sections 4 and
6, `brain_damage.py` Optimal Brain Damage, `codecs.py` what Pillow can encode, `pixels.py` and `curves.py` errors.
"""

from nestcode.reproduce.lab import Experiment, Finding, Images, Lab
from nestcode.reproduce.runner import NAMES, reproduce

__all__ = ["NAMES", "Experiment", "Finding", "Images", "Lab", "reproduce"]
