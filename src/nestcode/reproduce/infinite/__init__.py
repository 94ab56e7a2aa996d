"""The experiment `infinite`."""

from nestcode.reproduce.infinite.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
