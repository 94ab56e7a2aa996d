"""The experiment `speeds`."""

from nestcode.reproduce.speeds.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
