"""The experiment `complexity`."""

from nestcode.reproduce.complexity.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
