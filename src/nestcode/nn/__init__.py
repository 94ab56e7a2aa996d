"""Nested dropout as PyTorch building blocks.

Reading order: `dropout.py` truncates a code at random (section 2 of the paper), `nesting.py` keeps other subsets of its
units; `losses.py` averages a loss over truncations, exactly where the decoder is linear and by sampling elsewhere;
`semilinear.py` is the theory of section 3 as a model; `binarize.py` makes bits of units and `autoencoder.py` the deep
networks of section 4; `classifier.py` learns from labels, `images.py` has a convolutional encoder and random views. How
those are trained is in `nestcode.training`.
"""

from nestcode.errors import import_extra

import_extra("torch", extra="torch", purpose="nestcode.nn")

from nestcode.nn.autoencoder import OrderedAutoencoder  # noqa: E402
from nestcode.nn.binarize import Binarize  # noqa: E402
from nestcode.nn.classifier import OrderedClassifier  # noqa: E402
from nestcode.nn.dropout import NestedDropout, keep_prefix, keep_units  # noqa: E402
from nestcode.nn.images import ImageEncoder, RandomViews  # noqa: E402
from nestcode.nn.losses import NestedLoss, expected_loss  # noqa: E402
from nestcode.nn.nesting import Chain, Groups, Nesting, Tree, sample_lengths  # noqa: E402
from nestcode.nn.semilinear import SemiLinearAutoencoder  # noqa: E402

__all__ = [
    "Binarize",
    "Chain",
    "Groups",
    "ImageEncoder",
    "NestedDropout",
    "NestedLoss",
    "Nesting",
    "OrderedAutoencoder",
    "OrderedClassifier",
    "RandomViews",
    "SemiLinearAutoencoder",
    "Tree",
    "expected_loss",
    "keep_prefix",
    "keep_units",
    "sample_lengths",
]
