"""The fitted adaptive coder: a mean, principal directions and adaptive codebooks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Bytes, Floats
from nestcode.coders.adaptive.codebooks import HIGHEST, AdaptiveCodebooks, train
from nestcode.coders.base import CodebookLayout
from nestcode.coders.codebooks import ENTRIES
from nestcode.coders.projected import ProjectedModel
from nestcode.coders.sampling import project_sample
from nestcode.codes import Codes
from nestcode.storage import Arrays, check_arrays

SAMPLE_BYTES = 1 << 30  # of training rows
ADDITIVE_BITS = 32  # that the additive approximation covers: later entries vary too much
ON_DISK = {"unit": "unit", "levels": "log_scales", "entries": "entries", "changes": "changes", "counts": "counts"}


@dataclass(frozen=True, eq=False)
class AdaptiveModel(ProjectedModel):
    """Adaptive codebooks in principal directions."""

    codebooks: AdaptiveCodebooks

    @classmethod
    def train(cls, parts: Iterable[NDArray[Any]], settings: dict[str, Any]) -> Self:
        """Return the model of rows that come in pieces; its errors are those of held-out rows."""
        rng, width = np.random.default_rng(settings["seed"]), settings["width"]
        normalize = settings["metric"] == "cosine"
        sample = project_sample(parts, width, rng, SAMPLE_BYTES, normalize=normalize)
        test = sample.rows[sample.held_out] if sample.held_out.any() else sample.rows
        codebooks = train(sample.rows[~sample.held_out], test, width, rng)
        errors = codebooks.measure_errors(test, settings["beams"], width) + sample.outside
        return cls(settings, sample.mean, sample.directions, errors, codebooks)

    def encode(self, coefficients: Floats, packed: Bytes) -> None:
        """Write the codes of coefficients, (n, directions), into packed rows."""
        packed[:] = self.codebooks.encode(coefficients, self.settings["beams"])
        if self.width % 8:
            packed[:, -1] &= 0xFF << (-self.width % 8) & 0xFF

    def decode(self, codes: Codes, threads: int) -> Floats:
        """Return the coefficients that codes of any length decode to, (n, directions)."""
        return self.codebooks.decode(codes.packed, codes.width, threads)

    def layout(self, length: int) -> CodebookLayout:
        """Return an additive approximation for the first bytes: true entries depend on the bytes before them."""
        return CodebookLayout(self.codebooks.additive_approximation(min(length, ADDITIVE_BITS)), exact=False)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the model's arrays under their names on disk."""
        own = {"mean": self.mean, "directions": self.directions, "errors": self.errors}
        return {**own, **{name: getattr(self.codebooks, field) for name, field in ON_DISK.items()}}

    @classmethod
    def from_arrays(cls, settings: dict[str, Any], arrays: Arrays) -> Self:
        """Return the model of checked settings and unchecked arrays, or raise ValueError."""
        width, directions, features = settings["width"], len(arrays["directions"]), len(arrays["mean"])
        stages, dims = -(-width // 8), arrays["entries"].shape[1]
        expected: dict[str, tuple[type[Any], tuple[int, ...]]] = {
            "mean": (np.float64, (features,)),
            "directions": (np.float32, (directions, features)),
            "errors": (np.float64, (width + 1,)),
            "unit": (np.float32, (1,)),
            "levels": (np.int16, (directions,)),
            "entries": (np.float32, (stages, dims, ENTRIES)),
            "changes": (np.int16, (stages, ENTRIES, dims)),
            "counts": (np.int64, (stages, ENTRIES)),
        }
        check_arrays(arrays, expected)
        highest = {"levels": HIGHEST, "changes": 1 << 12}
        if any(abs(arrays[name].astype(np.int32)).max() > most for name, most in highest.items()):
            raise ValueError("its log-scales or their changes are out of range")
        if not 1 <= dims <= directions or arrays["counts"].min() < 0 or arrays["unit"][0] <= 0:
            raise ValueError("its codebooks are out of range")
        codebooks = AdaptiveCodebooks(**{field: arrays[name] for name, field in ON_DISK.items()})
        return cls(settings, arrays["mean"], arrays["directions"], arrays["errors"], codebooks)
