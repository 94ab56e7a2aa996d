"""The experiment `reconstructions`."""

from nestcode.reproduce.reconstructions.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
