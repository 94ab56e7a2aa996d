"""The autoencoder coder: `coder.py` is the estimator, `model.py` the fitted model; networks are in `nestcode.nn`."""

from nestcode.coders.autoencoder.coder import AutoencoderCoder

__all__ = ["AutoencoderCoder"]
