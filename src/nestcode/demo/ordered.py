"""Chapter 1: nested dropout puts the units of an autoencoder in order."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from nestcode.data import patches, photographs
from nestcode.demo._linear import Floats, Linear, train
from nestcode.lengths import Empirical, Uniform
from nestcode.report import Page

SIDE, WIDTH = 8, 64
SHOWN = (1, 4, 16, 64)


def add_chapter(page: Page, *, steps: int, console: Console) -> None:
    """Train with and without nested dropout on patches of two photographs, and compare their prefixes."""
    photos = photographs()
    cut = patches(list(photos.values()), size=SIDE, n=20_000, rng=np.random.default_rng(0))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    learn = partial(train, X, width=WIDTH, steps=steps, console=console)
    nested = learn(lengths=Uniform(), name="nested dropout")
    ordinary = learn(lengths=Empirical([1], lengths=[WIDTH]), name="ordinary autoencoder")

    errors = {
        "nested dropout": _error_by_length(nested, X),
        "ordinary autoencoder, cut short": _error_by_length(ordinary, X),
        "best possible (principal components)": _best_by_length(X),
    }
    page.section(
        "Units in order of importance",
        f"Two linear autoencoders learn the same {len(X):,} patches of {SIDE} x {SIDE} pixels, each with "
        f"{WIDTH} units. The first is trained on prefixes of random length, the second always on the whole code.",
    )
    page.figure(
        "filters",
        _filters_figure({"nested dropout": nested, "ordinary autoencoder": ordinary}),
        "What each unit paints, first unit at the top left. Nested dropout sorts them from coarse to fine; "
        "without it they are arbitrary mixtures.",
    )
    page.figure(
        "photograph",
        _photograph_figure(photos["china"][60:300, 150:470], {"nested": nested, "ordinary": ordinary}),
        "A photograph sent as 1, 4, 16 or 64 numbers for each patch. Any prefix of the nested code is a picture.",
    )
    page.figure(
        "error",
        _error_figure(errors),
        "Error by length. The nested code follows the best possible curve, but for its last units: few prefixes "
        "reach them, so they learn last.",
    )
    page.table(
        ["units kept", *map(str, SHOWN)],
        [[name, *(f"{error[k - 1]:.5f}" for k in SHOWN)] for name, error in errors.items()],
        caption="Mean squared error of a pixel on [0, 1].",
    )


def _error_by_length(model: Linear, X: Floats) -> NDArray[np.float64]:
    """The mean squared error of each length 1, …, width."""
    code = model.encode(X)
    return np.array([np.mean((X - model.decode(code[:, :k])) ** 2, dtype=np.float64) for k in range(1, WIDTH + 1)])


def _best_by_length(X: Floats) -> NDArray[np.float64]:
    """What no linear code of that length can beat: the eigenvalues it leaves out."""
    spectrum = np.linalg.eigvalsh(np.cov(X.T.astype(np.float64), bias=True))[::-1]
    return np.cumsum(spectrum[::-1])[::-1][1 : WIDTH + 1] / len(spectrum)


def _filters_figure(models: dict[str, Linear]) -> Figure:
    figure = Figure(figsize=(8, 4.1))
    for axes, (name, model) in zip(figure.subplots(1, 2), models.items(), strict=True):
        tiles = model.decoder.T.reshape(WIDTH, SIDE, SIDE, 3)
        tiles = 0.5 + 0.5 * tiles / np.abs(tiles).max(axis=(1, 2, 3), keepdims=True)
        framed = np.pad(tiles, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=1)
        axes.imshow(framed.reshape(8, 8, SIDE + 1, SIDE + 1, 3).swapaxes(1, 2).reshape(8 * (SIDE + 1), -1, 3))
        axes.set_title(name, fontsize=11)
        axes.set_axis_off()
    figure.tight_layout()
    return figure


def _photograph_figure(photo: NDArray[np.uint8], models: dict[str, Linear]) -> Figure:
    height, width = (side // SIDE for side in photo.shape[:2])
    tiles = photo.reshape(height, SIDE, width, SIDE, 3).swapaxes(1, 2)
    X = tiles.reshape(height * width, -1).astype(np.float32) / np.float32(255)
    figure = Figure(figsize=(11, 3.9))
    grid = figure.subplots(len(models), len(SHOWN) + 1)
    for row, (name, model) in zip(grid, models.items(), strict=True):
        code = model.encode(X)
        pictures = {f"{name}, {k}": model.decode(code[:, :k]) for k in SHOWN} | {"original": X}
        for axes, (title, flat) in zip(row, pictures.items(), strict=True):
            image = flat.reshape(height, width, SIDE, SIDE, 3).swapaxes(1, 2).reshape(photo.shape)
            axes.imshow(np.clip(image, 0, 1))
            axes.set_title(title, fontsize=9)
            axes.set_axis_off()
    figure.tight_layout()
    return figure


def _error_figure(errors: dict[str, NDArray[np.float64]]) -> Figure:
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    for (name, error), style in zip(errors.items(), ("-", "-", "k:"), strict=True):
        axes.plot(np.arange(1, WIDTH + 1), error, style, label=name, linewidth=2)
    axes.set(xlabel="units kept", ylabel="mean squared error", yscale="log", xlim=(1, WIDTH))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure
