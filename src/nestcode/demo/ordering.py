"""Chapter 4: nested dropout orders the units of an autoencoder."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from nestcode.arrays import Doubles, Floats
from nestcode.data import patches, sample_images
from nestcode.demo.drawing import error_figure, patches_figure
from nestcode.lengths import Empirical
from nestcode.nn import SemiLinearAutoencoder
from nestcode.report import Page

TITLE = "How it works: nested dropout"
SIDE, WIDTH = 8, 64
PATCHES = 20_000
SHOWN = (1, 4, 16, 64)

CODE = """
loss = NestedLoss(lambda code, image: mse_loss(decoder(code), image), LogUniform())
loss(encoder(images), images).backward()  # in any PyTorch model
"""


def add_chapter(page: Page, *, steps: int, console: Console) -> str:
    """Train autoencoders with and without nested dropout on patches of two images, and compare their prefixes."""
    images = sample_images()
    cut = patches(list(images.values()), size=SIDE, n=PATCHES, rng=np.random.default_rng(0))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    with console.status("  training an autoencoder with nested dropout"):
        nested = SemiLinearAutoencoder(WIDTH, orthonormal=True).fit(X)
    with console.status("  training a standard autoencoder"):
        whole = Empirical([1], lengths=[WIDTH])
        standard = SemiLinearAutoencoder(WIDTH, lengths=whole).fit(X, by="exact", steps=steps)

    errors = {
        "nested dropout": errors_by_length(nested, X),
        "standard autoencoder, truncated": errors_by_length(standard, X),
        "optimum (PCA)": optimum_by_length(X),
    }
    page.section(
        TITLE,
        "During training, nested dropout samples a length, keeps that many units of the code and drops the rest, so "
        f"the first units carry the most information. Two linear autoencoders of {WIDTH} units are trained on the same "
        f"{len(X):,} patches of {SIDE} x {SIDE} pixels, one with nested dropout and one without.",
    )
    page.figure(
        "filters",
        filters_figure({"nested dropout": nested, "standard autoencoder": standard}),
        "The filter of each unit, first unit at the top left. Nested dropout orders them from coarse to fine; without "
        "it they are arbitrary mixtures.",
    )
    page.figure(
        "ordering",
        patches_figure(
            images["china"][60:300, 150:470],
            SIDE,
            [
                {f"{name}, {length}": partial(decode_prefix, model, length) for length in SHOWN}
                for name, model in (("nested", nested), ("standard", standard))
            ],
        ),
        "An image decoded from the first 1, 4, 16 or 64 units of each patch. Every prefix of the nested code decodes "
        "to an image.",
    )
    page.figure(
        "error",
        error_figure({name: (np.arange(1, WIDTH + 1), error) for name, error in errors.items()}, "length (units)"),
        "MSE by length. The nested code reaches the optimum at every length.",
    )
    page.code(CODE.strip())
    page.table(
        ["length (units)", *map(str, SHOWN)],
        [[name, *(f"{error[k - 1]:.5f}" for k in SHOWN)] for name, error in errors.items()],
        caption="MSE of pixels on the scale from 0 to 1.",
    )
    nested_error, standard_error, best = (error[SHOWN[1] - 1] for error in errors.values())
    return (
        f"{SHOWN[1]} of {WIDTH} units have {nested_error / best:.2f} times the MSE of PCA; "
        f"without nested dropout {standard_error / best:.0f} times"
    )


def decode_prefix(model: SemiLinearAutoencoder, length: int, rows: Floats) -> Floats:
    """Return rows decoded from the first units of their code."""
    decoded: Floats = model.decode(model.encode(rows)[:, :length]).numpy()
    return decoded


def errors_by_length(model: SemiLinearAutoencoder, X: Floats) -> Doubles:
    """Return the MSE of each length 1, …, WIDTH."""
    code = model.encode(X)
    return np.array([np.mean((X - model.decode(code[:, :k]).numpy()) ** 2) for k in range(1, WIDTH + 1)])


def optimum_by_length(X: Floats) -> Doubles:
    """Return the MSE of PCA, the optimum of linear codes: the sum of the eigenvalues left out."""
    spectrum = np.linalg.eigvalsh(np.cov(X.T.astype(np.float64), bias=True))[::-1]
    return np.cumsum(spectrum[::-1])[::-1][1 : WIDTH + 1] / len(spectrum)


def filters_figure(models: dict[str, SemiLinearAutoencoder]) -> Figure:
    """Draw the filters of each model in rows of eight."""
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
