"""Training of deep models with nested dropout (section 4 of the paper).

    train ──▶ loop.py ──▶ feed.py (rows) ──▶ objective.py (loss) ──▶ steps.py (optimizer) ──▶ checkpoint.py, journal.py

Each technique of the paper is one file: `conjugate_gradient.py`, `sweep.py`, `regularization.py`, `growth.py`; its
networks are in `presets.py`. `agreement.py` goes beyond it: codes that two views of an item share. Settings are frozen
objects: `Training` says what is learnt, `Run` what is kept of it.
"""

from nestcode.errors import import_extra

import_extra("torch", extra="torch", purpose="nestcode.training")

from nestcode.training.agreement import disagreement  # noqa: E402
from nestcode.training.config import Training  # noqa: E402
from nestcode.training.conjugate_gradient import ConjugateGradient  # noqa: E402
from nestcode.training.errors_by_length import errors_by_length  # noqa: E402
from nestcode.training.growth import Growth  # noqa: E402
from nestcode.training.journal import Run  # noqa: E402
from nestcode.training.loop import train  # noqa: E402
from nestcode.training.presets import Network, Preset, find_preset  # noqa: E402
from nestcode.training.regularization import AdaptivePenalty, ConstantPenalty, invariance_penalty  # noqa: E402
from nestcode.training.sweep import Sweep  # noqa: E402

__all__ = [
    "AdaptivePenalty",
    "ConjugateGradient",
    "ConstantPenalty",
    "Growth",
    "Network",
    "Preset",
    "Run",
    "Sweep",
    "Training",
    "disagreement",
    "errors_by_length",
    "find_preset",
    "invariance_penalty",
    "train",
]
