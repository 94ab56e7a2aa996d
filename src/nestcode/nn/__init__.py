"""Nested dropout as PyTorch modules.

In reading order, for your own model: `dropout.py` keeps a random prefix of a code (section 2 of the paper),
`packing.py` drops tokens, `nesting.py` keeps other subsets of units, `sampling.py` draws lengths; `losses.py` averages
a loss over truncations (exactly for linear decoders, else by sampling), `contrastive.py` compares embeddings;
`quantize.py` turns tokens into codes, `adapter.py` orders frozen embeddings.

The paper's models: `semilinear.py` is the autoencoder of section 3; `binarize.py` turns units into bits, `layers.py`,
`network.py` and `autoencoder.py` are the deep networks of section 4; `classifier.py` is trained on labels, `images.py`
has a convolutional encoder and random views, `refine.py` networks that refine decoded items, `implicit.py` codebooks
that are functions of the decoded prefix. Training is in `nestcode.training`.
"""

from nestcode.errors import import_extra

import_extra("torch", extra="torch", purpose="nestcode.nn")

from nestcode.nn.adapter import NestedAdapter  # noqa: E402
from nestcode.nn.autoencoder import OrderedAutoencoder  # noqa: E402
from nestcode.nn.binarize import Binarize  # noqa: E402
from nestcode.nn.classifier import OrderedClassifier  # noqa: E402
from nestcode.nn.contrastive import (  # noqa: E402
    InfoNCE,
    NestedRankingLoss,
    PrefixDistillation,
    Temperature,
)
from nestcode.nn.dropout import NestedDropout, keep_prefix, prefix_mask  # noqa: E402
from nestcode.nn.images import ImageEncoder, RandomViews  # noqa: E402
from nestcode.nn.losses import MatryoshkaLoss, NestedLoss, expected_loss  # noqa: E402
from nestcode.nn.nesting import Chain, Groups, Nesting, Tree  # noqa: E402
from nestcode.nn.network import OrderedNetwork  # noqa: E402
from nestcode.nn.packing import PackedPrefixes, pack_prefix  # noqa: E402
from nestcode.nn.quantize import BSQ, FSQ, LFQ, Quantizer, ResidualVQ  # noqa: E402
from nestcode.nn.sampling import LengthSchedule, sample_lengths  # noqa: E402
from nestcode.nn.semilinear import SemiLinearAutoencoder  # noqa: E402

__all__ = [
    "BSQ",
    "FSQ",
    "LFQ",
    "Binarize",
    "Chain",
    "Groups",
    "ImageEncoder",
    "InfoNCE",
    "LengthSchedule",
    "MatryoshkaLoss",
    "NestedAdapter",
    "NestedDropout",
    "NestedLoss",
    "NestedRankingLoss",
    "Nesting",
    "OrderedAutoencoder",
    "OrderedClassifier",
    "OrderedNetwork",
    "PackedPrefixes",
    "PrefixDistillation",
    "Quantizer",
    "RandomViews",
    "ResidualVQ",
    "SemiLinearAutoencoder",
    "Temperature",
    "Tree",
    "expected_loss",
    "keep_prefix",
    "pack_prefix",
    "prefix_mask",
    "sample_lengths",
]
