"""Training of deep models with nested dropout (section 4 of the paper).

    train ──▶ autoencoder.py ──▶ loop.py ──▶ optimizers.py
    RefinedCoder ──▶ refinement.py ──┤  └──▶ runtime/ (device, processes, batches, checkpoints, logs, signals)
    ImplicitCoder ──▶ implicit.py ───┘

One loop minimizes any `Objective`; `autoencoder.py`, `refinement.py` and `implicit.py` have the three objectives. Each
technique of the paper is one file: `sweep.py` (unit sweeping), `regularization.py` (adaptive coefficients, invariance),
`conjugate_gradient.py` with its line search `strong_wolfe.py`, `growth.py`; its networks are in `presets.py`.
`least_squares.py`, which refits a linear decoder, and `contrastive.py` go beyond the paper. Settings are frozen objects
in `config.py`.
"""

from nestcode.errors import import_extra

import_extra("torch", extra="torch", purpose="nestcode.training")

from nestcode.training.autoencoder import train  # noqa: E402
from nestcode.training.config import Run, Training  # noqa: E402
from nestcode.training.conjugate_gradient import ConjugateGradient  # noqa: E402
from nestcode.training.contrastive import Contrastive  # noqa: E402
from nestcode.training.evaluation import errors_by_length  # noqa: E402
from nestcode.training.growth import Growth  # noqa: E402
from nestcode.training.least_squares import refit  # noqa: E402
from nestcode.training.presets import Network  # noqa: E402
from nestcode.training.regularization import (  # noqa: E402
    AdaptivePenalty,
    ConstantPenalty,
    Invariance,
)
from nestcode.training.sweep import Sweep  # noqa: E402

__all__ = [
    "AdaptivePenalty",
    "ConjugateGradient",
    "ConstantPenalty",
    "Contrastive",
    "Growth",
    "Invariance",
    "Network",
    "Run",
    "Sweep",
    "Training",
    "errors_by_length",
    "refit",
    "train",
]
