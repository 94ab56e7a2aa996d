"""Indexes: the paper's tree, and one that can be changed, saved and trusted."""

from nestcode.index.index import Index
from nestcode.index.tree import Neighborhood, Neighborhoods, PrefixTree

__all__ = ["Index", "Neighborhood", "Neighborhoods", "PrefixTree"]
