"""AdaptiveCoder."""

from nestcode.coders.adaptive.coder import AdaptiveCoder

__all__ = ["AdaptiveCoder"]
