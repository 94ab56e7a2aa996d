"""What the experiments share.

    base.py                  Experiment, Finding and Lab: what an experiment receives and records
    provenance.py            the commit that results come from
    images.py                image data sets as rows of pixels
    networks.py              the paper's compression autoencoder, its repair, and our coders, trained or from the cache
    optimal_brain_damage.py  Optimal Brain Damage, the pruning baseline of figure 5b
    codecs.py                JPEG, WebP, AVIF and JPEG 2000 as Pillow encodes them
    rate_distortion.py       rate–distortion curves of coders and codecs
    verdicts.py              the rules by which claims of the paper are judged
    timing.py                fair timing of several jobs

Drawing is in `reproduce/drawing.py`.
"""

from nestcode.reproduce.lab.base import Arrays, Experiment, Finding, Lab, Scale
from nestcode.reproduce.lab.images import Images

__all__ = ["Arrays", "Experiment", "Finding", "Images", "Lab", "Scale"]
