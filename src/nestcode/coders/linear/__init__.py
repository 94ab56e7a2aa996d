"""LinearCoder."""

from nestcode.coders.linear.coder import LinearCoder

__all__ = ["LinearCoder"]
