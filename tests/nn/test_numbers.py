"""Every number that a module, a loss or a setting of training is made with: a value, or an error of ours."""

import copy
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


GIVEN = {  # what methods need beside their numbers
    "z": torch.ones(5, 8),
    "x": torch.ones(5, 8),
    "X": torch.ones(40, 8),
    "pre": torch.ones(40, 6),
    "code": torch.ones(5, 8),
    "teacher": torch.ones(5, 8),
    "views": torch.ones(2, 5, 8),
    "n": 3,
    "step": 1,
    "steps": 5,
    "whole": 1.0,
    "before": 2.0,
    "now": 1.5,
    "blocks": 2,
    "examples": 100,
    "features": 8,
}
WIDTHS = {"Groups": 5, "Tree": 2}


def methods(name: str) -> dict[str, dict[str, bool]]:
    """Return the public methods of what a call makes, with their parameters that are numbers."""
    own = type(CALLS[name](tau=1.0) if name == "Temperature" else CALLS[name]())
    found = {
        method: numeric(function)
        for method, function in inspect.getmembers(own, inspect.isfunction)
        if not method.startswith("_") and method != "fit" and function.__module__.startswith("nestcode.")
    }
    return {method: numbers for method, numbers in found.items() if numbers}


@pytest.mark.parametrize("name", [name for name in CALLS if methods(name)])
def test_numbers_of_methods_are_answered_or_refused(name: str) -> None:
    torch.manual_seed(0)
    given = {**GIVEN, "width": WIDTHS.get(name, 4)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method, numbers in methods(name).items():
            made = CALLS[name](tau=1.0) if name == "Temperature" else CALLS[name]()
            rest = {
                one.name: torch.ones(40, 4) if one.name == "units" else given[one.name]
                for one in inspect.signature(getattr(made, method)).parameters.values()
                if one.default is one.empty and (one.name in given or one.name == "units")
            }
            for parameter, several in numbers.items():
                for value in NUMBERS + OTHERS:
                    try:
                        getattr(copy.deepcopy(made), method)(**{**rest, parameter: [value] if several else value})
                    except NestcodeError:
                        continue
                    except Exception as error:
                        pytest.fail(f"{name}.{method}({parameter}={shown(value)}) raised {error!r:.200}")


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
