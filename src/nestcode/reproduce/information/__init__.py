"""The experiment `information`."""

from nestcode.reproduce.information.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
