"""The experiment `pca`."""

from nestcode.reproduce.pca.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
