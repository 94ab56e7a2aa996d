"""The base of LinearCoder and RotationCoder: codes are ordered bit planes of the coefficients."""

from dataclasses import dataclass, replace

import numpy as np

from nestcode.arrays import Bytes, Floats
from nestcode.coders.base import ScalarLayout
from nestcode.coders.projected import ProjectedModel
from nestcode.coders.scalar_quantizer import BitPlanes, dequantize, quantize
from nestcode.codes import Codes


@dataclass(frozen=True, eq=False)
class BitPlaneModel(ProjectedModel):
    """Directions and the bits of each."""

    planes: BitPlanes

    def encode(self, coefficients: Floats, packed: Bytes) -> None:
        """Write the codes of coefficients, (n, directions), into packed rows."""
        quantize(coefficients, self.planes, packed)

    def decode(self, codes: Codes, threads: int) -> Floats:
        """Return the coefficients that codes of any length decode to, (n, directions)."""
        return dequantize(codes.packed, self.planes, codes.width, threads=threads)

    def layout(self, length: int) -> ScalarLayout:
        """Return the first `length` bit planes: a scalar quantizer without a coarse quantizer."""
        planes = replace(
            self.planes, allocation=self.planes.allocation[:length], errors=self.planes.errors[: length + 1]
        )
        return ScalarLayout(np.zeros((1, len(self.directions)), dtype=np.float32), planes)

    @property
    def useful_bits(self) -> int:
        """Bits that are allocated to a direction."""
        return int((self.planes.allocation >= 0).sum())

    def used_directions(self, length: int) -> int:
        """Return how many leading directions have bits at this length."""
        return int(self.planes.allocation[:length].max(initial=-1)) + 1
