"""A decoder of its own for a trained network: trained on fixed codes, for all lengths.

Tied weights serve the encoder and the decoder at once, and sweeping leaves hidden layers that serve the last lengths
trained, not those between. The codes stay as they are, and with them retrieval; only what they decode to changes.
"""

from dataclasses import replace

from torch import nn

from nestcode.lengths import Uniform
from nestcode.nn import OrderedAutoencoder
from nestcode.nn.layers import Encoder
from nestcode.reproduce.lab.images import Pixels
from nestcode.reproduce.lab.networks import QUIET, to_unit_range
from nestcode.training import Training, train
from nestcode.training.presets import Preset

LENGTHS = Uniform()  # all alike


def with_own_decoder(
    network: OrderedAutoencoder, preset: Preset, pixels: Pixels, training: Training, augment: nn.Module | None = None
) -> OrderedAutoencoder:
    """Return a network with the same codes, whose decoder of the same layers is trained for them.

    Args:
        network: trained, with tied weights; it takes pixels from 0 to 1.
        preset: that it was built from.
        pixels: training images, (n, features).
        training: how the decoder is trained.
        augment: makes random views of images.

    """
    copy = untied(network, preset)
    train(copy, pixels, training, QUIET, augment=augment)
    to_unit_range(copy)
    return copy.eval()


def untied(network: OrderedAutoencoder, preset: Preset) -> OrderedAutoencoder:
    """Return a copy whose decoder has its own weights; those of the encoder, and the thresholds, are not trained."""
    plain = replace(preset.network, tied=False, gradient="none", corruption=0.0, dropout=0.0)
    copy = replace(preset, network=plain, lengths=LENGTHS).build(network.features).to(network.mean.device)
    theirs, ours = network.encoder, copy.encoder
    assert isinstance(theirs, Encoder)
    assert isinstance(ours, Encoder)
    (block,), (own,) = theirs.code_blocks(), ours.code_blocks()
    hidden = [layer.get_parameter("weight").T for layer in theirs.hidden]
    state = copy.state_dict() | network.state_dict() | {"encoder.blocks.0.columns": block.weight.T}
    state |= {f"decoder.hidden.{place}.weight": weight for place, weight in enumerate(reversed(hidden))}
    copy.load_state_dict(state)
    ours.hidden.requires_grad_(False)
    for parameter in (own.weight, own.bias):
        parameter.requires_grad_(False)
    assert copy.binarize is not None
    copy.binarize.frozen = copy.width
    return copy
