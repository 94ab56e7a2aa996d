"""Coders with networks: `coder.py` is the coder, `refined.py` and `autoencoder.py` its two kinds of bits."""

from nestcode.coders.deep.coder import DeepCoder

__all__ = ["DeepCoder"]
