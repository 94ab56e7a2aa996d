"""Chapter 4: nested dropout orders the units of an autoencoder.

Both autoencoders are linear, so NumPy and SciPy train them: `nestcode.nn` has nonlinear ones, and needs PyTorch.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from nestcode.arrays import Doubles, Floats
from nestcode.data import patches, sample_images
from nestcode.demo.drawing import error_figure, patches_figure
from nestcode.pca import solve
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
    covariance = np.cov(X.T, bias=True, dtype=np.float64)
    with console.status("  training an autoencoder with nested dropout"):
        nested = train_nested(X, covariance)
    with console.status("  training a standard autoencoder"):
        standard = train_standard(X, covariance, steps)

    errors = {
        "nested dropout": errors_by_length(nested, covariance),
        "standard autoencoder, truncated": errors_by_length(standard, covariance),
        "optimum (PCA)": optimum_by_length(covariance),
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
                {f"{name}, {length}": partial(model.decode_prefix, length) for length in SHOWN}
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


@dataclass(frozen=True)
class LinearAutoencoder:
    """Linear units, x -> (x − mean) · encoder, and their linear decoder, code -> mean + code · decoderᵀ."""

    mean: Floats  # (features,)
    encoder: Doubles  # (features, width)
    decoder: Doubles  # (features, width)

    def decode_prefix(self, length: int, rows: Floats) -> Floats:
        """Return rows decoded from the first units of their code."""
        code = (rows - self.mean) @ self.encoder[:, :length]
        return (self.mean + code @ self.decoder[:, :length].T).astype(np.float32)


def train_nested(X: Floats, covariance: Doubles) -> LinearAutoencoder:
    """Return the autoencoder that minimizes the expected loss under nested dropout, which an eigensolver finds."""
    units = solve(covariance, WIDTH, np.random.default_rng(0)).decoder
    return LinearAutoencoder(X.mean(axis=0), units, units)


def train_standard(X: Floats, covariance: Doubles, steps: int) -> LinearAutoencoder:
    """Return the autoencoder that L-BFGS finds from random weights for the loss of whole codes."""
    weights = 0.1 * np.random.default_rng(0).standard_normal(2 * WIDTH * len(covariance))
    scaled = covariance / np.trace(covariance)
    options = {"maxiter": steps, "maxfun": 10 * steps, "maxcor": 30, "ftol": 0}
    with threadpool_limits(1):  # products this small take several times as long on threads that wait for each other
        trained = minimize(whole_code_loss, weights, args=(scaled,), jac=True, method="L-BFGS-B", options=options)
    encoder, decoder = trained.x.reshape(2, len(covariance), WIDTH)
    return LinearAutoencoder(X.mean(axis=0), encoder, decoder)


def whole_code_loss(weights: Doubles, covariance: Doubles) -> tuple[float, Doubles]:
    """Return E|x − D Eᵀ x|² of centered data with this covariance, and its gradient; the weights are E, then D."""
    encoder, decoder = weights.reshape(2, len(covariance), -1)
    projected, spread = covariance @ encoder, encoder.T @ covariance @ encoder  # E[x codeᵀ], E[code codeᵀ]
    gram = decoder.T @ decoder
    loss = np.trace(covariance) - 2 * np.sum(projected * decoder) + np.sum(spread * gram)
    gradient = [projected @ gram - covariance @ decoder, decoder @ spread - projected]
    return float(loss), 2 * np.concatenate([part.ravel() for part in gradient])


def errors_by_length(model: LinearAutoencoder, covariance: Doubles) -> Doubles:
    """Return the MSE of each length 1, …, WIDTH: a prefix is the whole code of the first units."""
    weights = np.stack([model.encoder, model.decoder])
    prefixes = (weights[:, :, :length].ravel() for length in range(1, WIDTH + 1))
    return np.array([whole_code_loss(each, covariance)[0] for each in prefixes]) / len(covariance)


def optimum_by_length(covariance: Doubles) -> Doubles:
    """Return the MSE of PCA, the optimum of linear codes: the sum of the eigenvalues left out."""
    spectrum = np.linalg.eigvalsh(covariance)[::-1]
    return np.cumsum(spectrum[::-1])[::-1][1 : WIDTH + 1] / len(spectrum)


def filters_figure(models: dict[str, LinearAutoencoder]) -> Figure:
    """Draw the filters of each model in rows of eight."""
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
