"""The refined coder: `coder.py` is the estimator, `model.py` the fitted model, `network.py` the networks to choose."""

from nestcode.coders.refined.coder import RefinedCoder
from nestcode.coders.refined.network import MLP, UNet

__all__ = ["MLP", "RefinedCoder", "UNet"]
