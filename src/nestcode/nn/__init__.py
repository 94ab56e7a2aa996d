"""Nested dropout as PyTorch building blocks.

Reading order: `dropout.py` truncates a code at random (section 2 of the paper); `losses.py` averages a
loss over truncations, exactly where the decoder is linear and by sampling elsewhere; `semilinear.py` is the theory of
section 3 as a model.
"""

from nestcode.errors import import_extra

import_extra("torch", extra="torch", purpose="nestcode.nn")

from nestcode.nn.dropout import NestedDropout, keep_prefix, sample_lengths  # noqa: E402
from nestcode.nn.losses import NestedLoss, expected_loss  # noqa: E402
from nestcode.nn.semilinear import SemiLinearAutoencoder  # noqa: E402

__all__ = ["NestedDropout", "NestedLoss", "SemiLinearAutoencoder", "expected_loss", "keep_prefix", "sample_lengths"]
