"""The experiment `neighborhoods`."""

from nestcode.reproduce.neighborhoods.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
