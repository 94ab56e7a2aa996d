"""ResidualCoder."""

from nestcode.coders.residual.coder import ResidualCoder

__all__ = ["ResidualCoder"]
