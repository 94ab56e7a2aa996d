"""The experiment `pinwheel`."""

from nestcode.reproduce.pinwheel.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
