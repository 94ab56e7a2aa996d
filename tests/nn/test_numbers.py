"""Every number that a module, a loss or a setting of training is made with: a value, or an error of ours."""

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from nestcode import nn, training
from nestcode.arrays import shown
from nestcode.coders.refined import MLP, UNet
from nestcode.errors import NestcodeError
from nestcode.lengths import Geometric, Uniform
from tests.test_numbers import NUMBERS, OTHERS, numeric


def squares(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a - b).square().mean(dim=-1)


CALLS: dict[str, Callable[..., Any]] = {  # with what each needs
    "BSQ": partial(nn.BSQ, features=8),
    "FSQ": partial(nn.FSQ, levels=[2, 4]),
    "LFQ": partial(nn.LFQ, features=8),
    "ResidualVQ": partial(nn.ResidualVQ, features=8, stages=2),
    "Binarize": partial(nn.Binarize, width=6),
    "Groups": partial(nn.Groups, sizes=[2, 3], lengths=Uniform()),
    "Tree": partial(nn.Tree, parents=[-1, 0]),
    "ImageEncoder": partial(nn.ImageEncoder, shape=(3, 8, 8), width=4, channels=8),
    "RandomViews": partial(nn.RandomViews, shape=(3, 8, 8)),
    "InfoNCE": nn.InfoNCE,
    "Temperature": lambda tau: nn.Temperature({4: tau}),
    "PrefixDistillation": nn.PrefixDistillation,
    "LengthSchedule": partial(nn.LengthSchedule, Uniform(), Geometric(0.9), steps=5),
    "MatryoshkaLoss": partial(nn.MatryoshkaLoss, squares, lengths=[2, 8]),
    "NestedLoss": partial(nn.NestedLoss, squares, Uniform()),
    "NestedDropout": partial(nn.NestedDropout, Uniform()),
    "NestedAdapter": partial(nn.NestedAdapter, features=8),
    "OrderedAutoencoder": partial(nn.OrderedAutoencoder, features=8, width=4),
    "OrderedClassifier": partial(nn.OrderedClassifier, features=8, width=4, classes=3),
    "SemiLinearAutoencoder": partial(nn.SemiLinearAutoencoder, width=4),
    "AdaptivePenalty": partial(training.AdaptivePenalty, "l1", ratio=0.1),
    "ConstantPenalty": partial(training.ConstantPenalty, "l1", coefficient=0.1),
    "ConjugateGradient": partial(training.ConjugateGradient, [torch.zeros(3, requires_grad=True)]),
    "Contrastive": training.Contrastive,
    "Growth": training.Growth,
    "Invariance": training.Invariance,
    "Network": training.Network,
    "Run": training.Run,
    "Sweep": training.Sweep,
    "Training": training.Training,
    "MLP": MLP,
    "UNet": UNet,
}
PLACED = {"NestedRankingLoss", "OrderedNetwork", "Quantizer"}  # need a model, or are made by others
PLACED |= {
    "keep_prefix",
    "pack_prefix",
    "prefix_mask",
    "sample_lengths",
    "expected_loss",
    "errors_by_length",
}  # tensors


def parameters(name: str) -> dict[str, bool]:
    """Return the parameters of a call that are numbers, and whether each takes several."""
    call = CALLS[name]
    return {"tau": False} if name == "Temperature" else numeric(call.func if isinstance(call, partial) else call)


@pytest.mark.parametrize("name", CALLS)
def test_numbers_are_answered_or_refused(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for parameter, several in parameters(name).items():
            for value in NUMBERS + OTHERS:
                try:
                    CALLS[name](**{parameter: [value] if several else value})
                except NestcodeError:
                    continue
                except Exception as error:
                    pytest.fail(f"{name}({parameter}={shown(value)}) raised {error!r:.200}")


def test_every_public_name_is_tried() -> None:
    taken = {name.partition(".")[0] for name in CALLS}
    rest = {
        name
        for module in (nn, training)
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name))
        if numeric(getattr(module, name)) and name not in taken
    }
    assert rest <= PLACED
