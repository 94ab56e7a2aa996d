"""Chapter 4: nested dropout puts the units of an autoencoder in order."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from nestcode.data import patches, sample_images
from nestcode.demo.drawing import error_figure, photograph_figure
from nestcode.lengths import Empirical
from nestcode.nn import SemiLinearAutoencoder
from nestcode.report import Page

TITLE = "How it works: units in order of importance"
SIDE, WIDTH = 8, 64
SHOWN = (1, 4, 16, 64)

CODE = """
loss = NestedLoss(lambda code, image: mse_loss(decoder(code), image), LogUniform())
loss(encoder(images), images).backward()  # in any PyTorch model
"""


def add_chapter(page: Page, *, steps: int, console: Console) -> str:
    """Train with and without nested dropout on patches of two photographs, and compare their prefixes."""
    photos = sample_images()
    cut = patches(list(photos.values()), size=SIDE, n=20_000, rng=np.random.default_rng(0))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    with console.status("  an autoencoder with nested dropout"):
        nested = SemiLinearAutoencoder(WIDTH, orthonormal=True).fit(X)
    with console.status("  an ordinary autoencoder"):
        whole = Empirical([1], lengths=[WIDTH])
        ordinary = SemiLinearAutoencoder(WIDTH, lengths=whole).fit(X, by="exact", steps=steps)

    errors = {
        "nested dropout": _error_by_length(nested, X),
        "ordinary autoencoder, cut short": _error_by_length(ordinary, X),
        "best possible (principal components)": _best_by_length(X),
    }
    page.section(
        TITLE,
        "In training, nested dropout keeps the first units of a code, a random number of them, and drops the rest. So "
        f"what matters most must be said first. Two linear autoencoders learnt the same {len(X):,} patches of {SIDE} x "
        f"{SIDE} pixels, each with {WIDTH} units: one with nested dropout, one without.",
    )
    page.figure(
        "filters",
        _filters_figure({"nested dropout": nested, "ordinary autoencoder": ordinary}),
        "What each unit paints, first unit at the top left. Nested dropout sorts them from coarse to fine; "
        "without it they are arbitrary mixtures.",
    )

    page.figure(
        "photograph",
        photograph_figure(
            photos["china"][60:300, 150:470],
            SIDE,
            [
                {f"{name}, {length}": partial(_at_length, model, length) for length in SHOWN}
                for name, model in (("nested", nested), ("ordinary", ordinary))
            ],
        ),
        "A photograph sent as 1, 4, 16 or 64 numbers for each patch. Any prefix of the nested code is a picture.",
    )
    page.figure(
        "error",
        error_figure({name: (np.arange(1, WIDTH + 1), error) for name, error in errors.items()}, "units kept"),
        "Error by length. The nested code reaches the best possible error at every length.",
    )
    page.code(CODE.strip())
    page.table(
        ["units kept", *map(str, SHOWN)],
        [[name, *(f"{error[k - 1]:.5f}" for k in SHOWN)] for name, error in errors.items()],
        caption="Mean squared error of a pixel on [0, 1].",
    )
    nested_error, ordinary_error, best = (error[SHOWN[1] - 1] for error in errors.values())
    return (
        f"{SHOWN[1]} of {WIDTH} units have {nested_error / best:.2f} times the least error possible; "
        f"without nested dropout {ordinary_error / best:.0f} times"
    )


def _at_length(model: SemiLinearAutoencoder, length: int, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    decoded: NDArray[np.float32] = model.decode(model.encode(rows)[:, :length]).numpy()
    return decoded


def _error_by_length(model: SemiLinearAutoencoder, X: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean squared error of each length 1, …, width."""
    code = model.encode(X)
    return np.array([np.mean((X - model.decode(code[:, :k]).numpy()) ** 2) for k in range(1, WIDTH + 1)])


def _best_by_length(X: NDArray[np.float32]) -> NDArray[np.float64]:
    """What no linear code of that length can beat: the eigenvalues it leaves out."""
    spectrum = np.linalg.eigvalsh(np.cov(X.T.astype(np.float64), bias=True))[::-1]
    return np.cumsum(spectrum[::-1])[::-1][1 : WIDTH + 1] / len(spectrum)


def _filters_figure(models: dict[str, SemiLinearAutoencoder]) -> Figure:
    figure = Figure(figsize=(8, 4.1))
    for axes, (name, model) in zip(figure.subplots(1, 2), models.items(), strict=True):
        tiles = model.decoder_weight.numpy().T.reshape(WIDTH, SIDE, SIDE, 3)
        tiles = 0.5 + 0.5 * tiles / np.abs(tiles).max(axis=(1, 2, 3), keepdims=True)
        framed = np.pad(tiles, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=1)
        axes.imshow(framed.reshape(8, 8, SIDE + 1, SIDE + 1, 3).swapaxes(1, 2).reshape(8 * (SIDE + 1), -1, 3))
        axes.set_title(name, fontsize=11)
        axes.set_axis_off()
    figure.tight_layout()
    return figure
