"""The paper's figures and claims as experiments: one package each, run by `nestcode reproduce NAME`.

In the order of the paper:

    information      section 2.1     the objective as a weighted sum of marginal gains
    pca              section 3       nested dropout recovers PCA exactly
    filters          figure 1        unit sweeping trains late filters
    regularization   section 4       adaptive regularization coefficients and code invariance
    pinwheel         figure 2        nested neighborhoods in the plane
    complexity       section 5.1     retrieval in logarithmic time
    speeds           figure 3        query time by code length: linear scan, semantic hashing, ordered retrieval
    neighborhoods    figure 4        nested neighborhoods of images
    reconstructions  figure 5a       images decoded from prefixes
    rates            figure 5b       rate–distortion: nested dropout, Optimal Brain Damage, truncation, codecs
    knn              section 7       k-nearest-neighbor classification on long codes
    infinite         section 7       infinitely many latent dimensions
    nesting          section 7       groups and trees instead of the chain of prefixes

Each has `experiment.py` with an `EXPERIMENT`, and where they are long, `figures.py` and `measures.py`. `lab/` is
what experiments share, `drawing.py` what figures share; `runner.py` runs experiments and writes the report.
"""

from nestcode.reproduce.lab import Experiment, Finding, Images, Lab
from nestcode.reproduce.runner import NAMES, reproduce

__all__ = ["NAMES", "Experiment", "Finding", "Images", "Lab", "reproduce"]
