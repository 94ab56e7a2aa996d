"""The experiment `filters`."""

from nestcode.reproduce.filters.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
