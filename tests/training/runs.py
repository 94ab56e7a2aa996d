"""Small runs that tests share."""

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.data import digits
from nestcode.lengths import Geometric
from nestcode.nn import Binarize, OrderedAutoencoder, OrderedNetwork
from nestcode.training import AdaptivePenalty, Contrastive, Growth, Invariance, Run, Sweep, Training, train

KINDS: dict[str, dict[str, Any]] = {
    "adam": {"penalty": AdaptivePenalty("l1", ratio=0.05), "invariance": Invariance(0.01)},
    "conjugate": {
        "optimizer": "conjugate",
        "searches": 2,
        "penalty": AdaptivePenalty("l2", ratio=0.05),
        "batch_size": 200,
    },
    "contrastive": {"contrastive": Contrastive(0.1), "reconstruction": 0.9},
    "sweep": {"sweep": Sweep(after=0.2, tolerance=0.05, hidden=0.2)},
    "growth": {"growth": Growth(start=8, step=8, most=24, least=0.0)},
}


FITTED = {"autoencoder": (), "refined": (), "supervised": ("--labels", "y.npy")}  # by the command line
STEPS = 12  # in several processes
COMMAND = ("fit", "X.npy", "--width", "8", "--steps", str(STEPS), "--resume")


def settings(kind: str = "adam", **changes: Any) -> Training:
    return Training(**{"steps": 30, "batch_size": 50, "learning_rate": 0.01, **KINDS[kind], **changes})


def network(seed: int = 0, **changes: Any) -> OrderedAutoencoder:
    torch.manual_seed(seed)
    own = {"layers": (24,), "lengths": Geometric(0.9), "binarize": Binarize(8, signed=True), "tied": True, **changes}
    return OrderedAutoencoder(64, 8, **own)


def learn(
    training: Training, X: Any = None, model: OrderedAutoencoder | None = None, **run: Any
) -> tuple[OrderedAutoencoder, list[dict[str, Any]]]:
    model = network() if model is None else model
    X = digits()[0][:600] if X is None else X
    return model, train(model, X, training, Run(**{"progress": False, "report_every": 10, **run}))


def state(model: OrderedNetwork) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


class Digits:
    """Digits as a source that does something when a certain batch is read."""

    features, resident = 64, False

    def __init__(self, act: Callable[[], None], at: int, rows: int = 50) -> None:
        self._X, self._act, self._at, self._rows, self.reads = digits()[0][:600], act, at, rows, 0

    def __len__(self) -> int:
        return len(self._X)

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        if len(indices) == self._rows:
            self.reads += 1
            if self.reads == self._at:
                self._act()
        return self._X[indices]

    def whole(self) -> NDArray[np.float32]:
        return self._X


def interrupt(number: int = signal.SIGINT) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)
