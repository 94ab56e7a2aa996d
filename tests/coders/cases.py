"""The coders under contract: one entry of `CASES` for each. To add a coder, add an entry."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from nestcode.coders import Coder
from nestcode.coders.base import Metric
from nestcode.coders.refined import MLP
from nestcode.data import digits
from nestcode.training import Training
from tests.coders import reference

Rows = NDArray[np.float32]
QUICK = Training(steps=60, batch_size=64, learning_rate=0.01)


@dataclass(frozen=True)
class Case:
    """A coder, the data it is fitted to, and how exactly it keeps the common laws."""

    make: Callable[[Metric], Coder]  # unfitted
    rows: Callable[[], Rows]  # to train on, then fresh ones
    train: int  # how many to train on
    tiny: Coder | None  # for scikit-learn's checks, which fit it to very little data
    changes: dict[str, Any]  # other settings, under the names that set_params takes
    lengths: tuple[int, ...]  # to check laws at
    fresh_errors: bool = True  # expected errors are those of fresh rows, else of training rows
    errors_rtol: float = 1e-3
    step: int = 1  # bits after which the error falls
    mean_atol: float = 1e-4
    distance_atol: float = 1e-4
    pieces_rtol: float = 0.05  # of the error after a fit in pieces, whose sums round otherwise
    little: tuple[str, ...] = ("all alike", "one", "zero", "two", "three", "three wide", "five")  # data it reproduces
    little_atol: float = 1e-5
    half_atol: float = 0.02  # of values decoded by a coder stored as float16
    twins: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # plain encoding and decoding
    scales: tuple[float, ...] = ()  # of data, that must not matter
    outliers: tuple[float, ...] = (1e6, 1e20, 1e30)  # times a row, that still have codes
    warns: bool = False  # of unallocated bits
    seeded: bool = True  # another seed gives another coder
    damage: dict[str, list[Callable[[Any], Any]]] = field(default_factory=dict)  # to arrays of its record
    labels: bool = False  # needs some
    network: bool = False  # is trained by PyTorch

    def fit(self, coder: Coder, rows: Rows) -> Any:
        """Fit a coder to rows."""
        if not self.network:
            return coder.fit(rows)
        y = (rows[:, 20] > np.median(rows[:, 20])).astype(int) if self.labels else None
        return coder.fit(rows, y, progress=False)  # type: ignore[call-arg]


def curved() -> Rows:
    """Correlated data with a falling spectrum that is not Gaussian."""
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    rows: Rows = (3 + rng.laplace(size=(4000, 12)) * np.arange(1, 13) ** -1.0 @ mixing).astype(np.float32)
    return rows


def flat() -> Rows:
    """A flat spectrum with clusters that no single direction shows."""
    centers = np.random.default_rng(7).standard_normal((60, 20))
    rng = np.random.default_rng(0)
    rows: Rows = (5 + centers[rng.integers(0, 60, 5000)] + 0.3 * rng.standard_normal((5000, 20))).astype(np.float32)
    return rows


def gaussian() -> Rows:
    """Correlated Gaussian data."""
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    rows: Rows = (3 + rng.standard_normal((4000, 12)) * np.arange(1, 13) ** -0.5 @ mixing).astype(np.float32)
    return rows


def falling() -> Rows:
    """Clusters with a falling spectrum."""
    centers = np.random.default_rng(7).standard_normal((40, 12))
    rng = np.random.default_rng(0)
    rows = centers[rng.integers(0, 40, 5000)] + 0.3 * rng.standard_normal((5000, 12))
    return (3 + rows * np.arange(1, 13) ** -0.5).astype(np.float32)


def images() -> Rows:
    return np.random.default_rng(0).permutation(digits()[0].astype(np.float32))


def last(value: Any) -> Callable[[Any], Any]:
    """Return a function that overwrites the last value of an array."""

    def change(array: NDArray[Any]) -> NDArray[Any]:
        copy = array.copy()
        copy.reshape(-1)[-1] = value
        return copy

    return change


PLANES: dict[str, list[Callable[[Any], Any]]] = {  # damage to bit planes
    "owners": [
        lambda array: array + 100,  # directions that do not exist
        lambda array: array - 5,
        lambda array: np.zeros_like(array),  # more bits than a direction may have
        lambda array: array[:-1],
        lambda array: array.astype(np.float64),
    ],
    "thresholds": [lambda array: array[:, :1]],
}

CASES: dict[str, Case] = {
    "linear": Case(
        make=lambda metric: nc.LinearCoder(width=40, metric=metric),
        rows=curved,
        train=2000,
        tiny=nc.LinearCoder(width=4),
        changes={"width": 8, "metric": "cosine", "seed": 3},
        lengths=(0, 1, 7, 8, 23, 40),
        fresh_errors=False,
        twins=(reference.encode_linear, reference.decode_linear),
        scales=(1e-30, 1e-12, 1e12, 1e30),
        warns=True,
        pieces_rtol=1e-4,
        seeded=False,  # it trains on all rows, as they are few
        damage={**PLANES, "centers": [lambda array: array[:, :3]]},
    ),
    "rotation": Case(
        make=lambda metric: nc.RotationCoder(width=40, metric=metric),  # three planes, and a third of one
        rows=gaussian,
        train=2000,
        tiny=nc.RotationCoder(width=4),
        changes={"width": 8, "metric": "cosine", "seed": 3},
        lengths=(0, 1, 7, 12, 23, 40),
        errors_rtol=0.2,
        little=("all alike", "one", "zero"),  # it knows no data but their mean and spread
        twins=(reference.encode_linear, reference.decode_linear),
        scales=(1e-30, 1e-12, 1e12, 1e30),
        warns=True,
        pieces_rtol=1e-9,
        damage={"errors": [lambda array: -array, lambda array: array[::-1].copy()]},
    ),
    "residual": Case(
        make=lambda metric: nc.ResidualCoder(width=28, metric=metric),  # three and a half bytes
        rows=flat,
        train=3000,
        tiny=nc.ResidualCoder(width=4, beams=1),
        changes={"width": 8, "metric": "cosine", "beams": 1, "seed": 3},
        lengths=(0, 3, 8, 21, 28),
        errors_rtol=0.2,
        distance_atol=1e-3,
        outliers=(1e6,),
        twins=(reference.encode_residual, reference.decode_residual),
        damage={
            "books": [lambda array: array[:, :, :3], last(np.nan)],
            "counts": [last(-1)],
        },
    ),
    "cell": Case(
        make=lambda metric: nc.CellCoder(width=40, metric=metric, cells=32),
        rows=falling,
        train=3000,
        tiny=nc.CellCoder(width=4),
        changes={"width": 9, "metric": "cosine", "cells": 512, "seed": 3},
        pieces_rtol=0.02,
        lengths=(0, 1, 3, 5, 6, 8, 13, 16, 39, 40),  # the first 5 bits name the cell
        fresh_errors=False,
        twins=(reference.encode_cell, reference.decode_cell),
        scales=(1e-30, 1e-12, 1e12, 1e30),
        warns=True,
        damage={
            **PLANES,
            "centers": [lambda array: array[:16], lambda array: array[:, :3], last(np.nan)],
            "counts": [lambda array: array - 10_000, lambda array: array[:5]],
            "levels": [lambda array: array[:2]],
        },
    ),
    "adaptive": Case(
        make=lambda metric: nc.AdaptiveCoder(width=68, metric=metric),  # eight and a half bytes
        rows=images,
        train=1000,
        tiny=nc.AdaptiveCoder(width=4, beams=1),
        changes={"width": 16, "metric": "cosine", "beams": 1, "seed": 3},
        lengths=(0, 3, 8, 24, 29, 68),
        errors_rtol=0.2,
        step=8,
        pieces_rtol=0.1,
        little_atol=1e-3,
        twins=(reference.encode_adaptive, reference.decode_adaptive),
        damage={
            "entries": [lambda array: array[:3], lambda array: array.reshape(-1), last(np.nan)],
            "changes": [lambda array: array[:, :, :5], last(5000), last(-32768)],
            "counts": [last(-1)],
            "levels": [lambda array: array[1:], last(32767)],
            "unit": [lambda array: 0 * array, last(np.nan)],
        },
    ),
    "refined": Case(
        make=lambda metric: nc.RefinedCoder(nc.LinearCoder(24, metric), MLP(units=16), training=QUICK),
        rows=images,
        train=1000,
        tiny=nc.RefinedCoder(nc.LinearCoder(4), MLP(units=8), training=Training(steps=1, batch_size=8)),
        changes={"base__width": 8, "base__metric": "cosine", "training": QUICK.but(steps=2)},
        lengths=(0, 3, 8, 24),
        errors_rtol=0.2,
        mean_atol=0.1,
        network=True,
    ),
    "implicit": Case(
        make=lambda metric: nc.ImplicitCoder(
            nc.ResidualCoder(20, metric, beams=1), units=8, layers=1, training=QUICK.but(steps=20, batch_size=32)
        ),  # two and a half bytes
        rows=images,
        train=1000,
        tiny=nc.ImplicitCoder(
            nc.ResidualCoder(4, beams=1), units=4, layers=1, training=Training(steps=1, batch_size=8)
        ),
        changes={"base__width": 8, "base__metric": "cosine", "training": QUICK.but(steps=2)},
        lengths=(0, 3, 8, 13, 20),
        errors_rtol=0.2,
        mean_atol=0.1,
        network=True,
    ),
    "autoencoder": Case(
        make=lambda metric: nc.AutoencoderCoder(24, layers=(), metric=metric, training=QUICK),
        rows=images,
        train=1000,
        tiny=nc.AutoencoderCoder(4, training=Training(steps=1, batch_size=8)),
        changes={"width": 8, "metric": "cosine", "layers": (8,), "training": QUICK.but(steps=2)},
        lengths=(0, 3, 8, 24),
        errors_rtol=0.2,
        mean_atol=0.1,
        network=True,
    ),
    "supervised": Case(
        make=lambda metric: nc.SupervisedCoder(24, layers=(16,), metric=metric, training=QUICK),
        rows=images,
        train=1000,
        tiny=None,  # scikit-learn's checks fit without labels
        changes={"width": 8, "metric": "cosine", "layers": (8,), "training": QUICK.but(steps=2)},
        lengths=(0, 3, 8, 24),
        errors_rtol=0.2,
        mean_atol=0.1,
        labels=True,
        network=True,
    ),
}


@cache
def training_rows(name: str) -> Rows:
    return CASES[name].rows()[: CASES[name].train]


@cache
def fresh_rows(name: str) -> Rows:
    return CASES[name].rows()[CASES[name].train :]


@cache
def fitted(name: str, metric: Metric = "l2") -> Any:
    """Return a fitted coder that tests share: copy it before you change it."""
    return CASES[name].fit(CASES[name].make(metric), training_rows(name))


def mse(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.mean((a.astype(np.float64) - b) ** 2))
