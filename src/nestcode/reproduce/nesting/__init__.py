"""The experiment `nesting`."""

from nestcode.reproduce.nesting.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
