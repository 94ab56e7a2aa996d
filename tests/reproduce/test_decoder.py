"""A decoder of its own lowers the error, and leaves the codes of a network as they are."""

import numpy as np
import torch

from nestcode.data import digits
from nestcode.lengths import Geometric
from nestcode.reproduce.lab.decoder import with_own_decoder
from nestcode.reproduce.lab.networks import QUIET, to_unit_range
from nestcode.training import Training, errors_by_length, train
from nestcode.training.presets import Network, Preset

TRAINING = Training(steps=60, batch_size=100, learning_rate=5e-3, device="cpu", holdout=0.0)


def test_a_decoder_is_trained_on_fixed_codes() -> None:
    pixels = np.rint(255 * digits()[0][:600]).astype(np.uint8)
    preset = Preset(width=16, layers=(24,), lengths=Geometric(0.8), network=Network(tied=True, beta=0.2))
    torch.manual_seed(0)
    network = preset.build(64)
    train(network, pixels, TRAINING, QUIET)
    to_unit_range(network)
    own = with_own_decoder(network, preset, pixels, TRAINING)
    X = torch.from_numpy(pixels / np.float32(255))
    torch.testing.assert_close(own.encode(X), network.eval().encode(X), rtol=0, atol=0)
    assert errors_by_length(own, X, [16])[0] < errors_by_length(network, X, [16])[0]
    assert torch.equal(own.encoder.get_parameter("hidden.0.weight"), network.encoder.get_parameter("hidden.0.weight"))
