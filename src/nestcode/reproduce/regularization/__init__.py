"""The experiment `regularization`."""

from nestcode.reproduce.regularization.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
