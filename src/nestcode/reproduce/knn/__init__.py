"""The experiment `knn`."""

from nestcode.reproduce.knn.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
