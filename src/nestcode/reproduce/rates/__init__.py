"""The experiment `rates`."""

from nestcode.reproduce.rates.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
