"""CellCoder."""

from nestcode.coders.cell.coder import CellCoder

__all__ = ["CellCoder"]
