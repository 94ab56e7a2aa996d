"""Section 3 and appendix A of the paper: nested dropout recovers PCA exactly.

Run it with `python -m nestcode.reproduce.pca --data DIR`; DIR holds CIFAR-10 (`nestcode data cifar10 --to DIR`).
Without it everything runs on scikit-learn's digits alone. It prints the tables and writes a page with the figures.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import nestcode
from nestcode.data import cifar10, digits
from nestcode.lengths import Empirical, Geometric, Lengths, LogUniform, Uniform
from nestcode.nn import SemiLinearAutoencoder, expected_loss, keep_prefix, sample_lengths
from nestcode.principal import Doubles, solve
from nestcode.report import Page
from nestcode.reproduce.pca_page import Row, add_reach, add_theorems, table
from nestcode.storage import write_atomic

WIDTH = 8


def recovered_t(decoder: Doubles, directions: Doubles) -> Doubles:
    """The T of theorem 2, from Γ = Q T⁻¹."""
    return np.asarray(np.linalg.inv(directions.T @ decoder), dtype=np.float64)


def commutation_error(t: Doubles) -> float:
    """How far T is from commuting in its truncation and inversion: 0 in theorem 2, infinite for singular minors."""
    inverse, worst = np.linalg.inv(t), 0.0
    for b in range(1, len(t) + 1):
        if np.linalg.cond(t[:b, :b]) > 1e12:
            return float("inf")
        minor = np.linalg.inv(t[:b, :b])
        worst = max(worst, float(np.abs(inverse[:b, :b] - minor).max() / np.abs(minor).max()))
    return worst


def off_diagonal(t: Doubles) -> float:
    """The share of T's squares that lies off its diagonal, rows scaled alike: 0 for a diagonal T."""
    rows = t / np.linalg.norm(t, axis=1, keepdims=True)
    return float(1 - (np.diag(rows) ** 2).mean())


def permutations_that_commute(size: int) -> int:
    """How many permutations other than the identity commute in truncation and inversion: the paper says none."""
    orders = itertools.permutations(range(size))
    next(orders)
    return sum(commutation_error(np.eye(size)[list(order)]) < 1e-9 for order in orders)


def cosines(decoder: Doubles, directions: Doubles) -> Doubles:
    """|cos| of each column with the principal direction of the same number."""
    norms = np.linalg.norm(decoder, axis=0)
    return np.asarray(np.abs(np.sum(decoder * directions[:, : decoder.shape[1]], axis=0)) / norms)


def theorems(X: Doubles, console: Console) -> list[Row]:
    """Train each kind of model on small data, and compare it with PCA."""
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    directions = vectors[:, ::-1][:, :WIDTH]
    best = float(values[:-WIDTH].sum())
    whole = Empirical([1], lengths=[WIDTH])
    kinds: dict[str, tuple[SemiLinearAutoencoder, str, int]] = {
        "nested, solver": (SemiLinearAutoencoder(WIDTH, orthonormal=True), "solver", 0),
        "nested, exact loss": (SemiLinearAutoencoder(WIDTH), "exact", 0),
        "nested, exact loss, seed 1": (SemiLinearAutoencoder(WIDTH), "exact", 1),
        "nested, sampled": (SemiLinearAutoencoder(WIDTH), "sampled", 0),
        "ordinary": (SemiLinearAutoencoder(WIDTH, lengths=whole), "exact", 0),
        "ordinary, seed 1": (SemiLinearAutoencoder(WIDTH, lengths=whole), "exact", 1),
        "nested, sigmoid encoder": (SemiLinearAutoencoder(WIDTH, encoder="sigmoid"), "exact", 0),
        "nested, tanh encoder": (SemiLinearAutoencoder(WIDTH, encoder="tanh"), "exact", 0),
    }
    rows: list[Row] = []
    for name, (model, by, seed) in kinds.items():
        with console.status(f"  {name}"):
            model.fit(X, by=by, seed=seed)  # type: ignore[arg-type]
        decoder = model.decoder_weight.numpy()
        with torch.no_grad():
            cost = float(np.sum((X - model.decode(model.encode(X)).numpy()) ** 2, axis=1).mean())
        t = recovered_t(decoder, directions)
        rows.append(
            {
                "model": name,
                "cost over optimum": cost / best - 1,
                "off-diagonal share of T": off_diagonal(t),
                "commutation error": commutation_error(t),
                "1 - smallest |cos|": float(1 - cosines(decoder, directions).min()),
                "t": np.abs(t / np.linalg.norm(t, axis=1, keepdims=True)).tolist(),
                "cosines": cosines(decoder, directions).tolist(),
            }
        )
    return rows


def reach(covariance: Doubles, widths: tuple[int, ...], console: Console) -> list[Row]:
    """How many principal directions the solver recovers, and how long it takes beside a full decomposition."""
    with console.status("  full eigendecomposition"):
        start = time.perf_counter()
        values, vectors = np.linalg.eigh(covariance)
        full = time.perf_counter() - start
    values, vectors = values[::-1], vectors[:, ::-1]
    rows: list[Row] = []
    for width in widths:
        with console.status(f"  width {width}"):
            start = time.perf_counter()
            solution = solve(covariance, width, np.random.default_rng(0))
            seconds = time.perf_counter() - start
        gaps = -np.diff(values[: width + 1]) / values[:width]
        clear = np.minimum(gaps, np.append(np.inf, -np.diff(values[:width]) / values[1:width])) >= 1e-3
        cos = cosines(solution.decoder, vectors)
        rows.append(
            {
                "width": width,
                "clear gaps": int(clear.sum()),
                "1 - |cos| of these": float(1 - cos[clear].min()),
                "1 - |cos| of the first 64": float(1 - cos[:64].min()),
                "rounds": len(solution.history) - 1,
                "products": solution.products,
                "time / full eigh": seconds / full,
                "cosines": cos.tolist(),
            }
        )
    return rows


def pca_ratio(X: NDArray[np.float32], width: int) -> float:
    """Fitting the autoencoder, covariance and all, in units of scikit-learn's exact PCA."""
    from sklearn.decomposition import PCA

    start = time.perf_counter()
    PCA(width, svd_solver="covariance_eigh").fit(X)
    theirs = time.perf_counter() - start
    start = time.perf_counter()
    SemiLinearAutoencoder(width, orthonormal=True).fit(X)
    return (time.perf_counter() - start) / theirs


def gradients(X: Doubles, width: int = 32) -> dict[str, Doubles]:
    """The gradient's magnitude by unit, at a random start."""
    generator = torch.Generator().manual_seed(0)
    data = torch.from_numpy(X - X.mean(axis=0))
    weight = torch.randn(X.shape[1], width, generator=generator, dtype=torch.float64).div_(8)
    code, found = data @ weight, {}
    choices: list[Lengths] = [Geometric(0.8), LogUniform(), Uniform()]
    for lengths in choices:
        decoder = weight.clone().requires_grad_()
        expected_loss(code, decoder, data, lengths).backward()
        assert decoder.grad is not None
        found[str(lengths)] = decoder.grad.norm(dim=0).numpy()
    return found


def coupling(X: Doubles, width: int = 32, decay: float = 0.8, repeats: int = 100) -> dict[str, Doubles]:
    """What units share, by their distance: how often both are kept, and the covariance of truncated units."""
    generator = torch.Generator().manual_seed(0)
    kept = sample_lengths(Geometric(decay), repeats * len(X), width, generator=generator)
    weight = torch.randn(X.shape[1], width, generator=generator, dtype=torch.float64)
    code = torch.from_numpy(X - X.mean(axis=0)) @ weight
    covariance = torch.zeros(width, width, dtype=torch.float64)
    for part in kept.view(repeats, -1):
        truncated = keep_prefix(code, part)
        covariance += truncated.T @ truncated
    survival = np.array([(kept >= k).double().mean().item() for k in range(1, width + 1)])
    distance, units = np.arange(16), np.arange(16)
    share = np.abs(covariance.numpy()) / np.diag(covariance)[:, None]
    return {
        "P(both kept | first kept), measured": np.array(
            [np.mean(survival[units + d] / survival[units]) for d in distance]
        ),
        "ρ^|i−j|": np.power(decay, distance.astype(np.float64)),
        "|covariance| / variance of the first": np.array([np.mean(share[units, units + d]) for d in distance]),
    }


def main() -> None:
    """Run everything, print the tables, write the page and the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("report/pca"), help="folder for the page")
    parser.add_argument("--quick", action="store_true", help="few units of few images, to see that it runs")
    options = parser.parse_args()
    console = Console(stderr=True)
    page = Page("Nested dropout recovers PCA", "Section 3 and appendix A of the paper, computed on this machine.")
    X = digits()[0].astype(np.float64)
    console.print("[bold]1/3[/] The theorems on digits")
    rows = theorems(X, console)
    numbers: dict[str, object] = {"version": nestcode.__version__, "theorems": rows}
    numbers["permutations that commute"] = permutations_that_commute(5)
    add_theorems(page, rows, gradients(X), coupling(X))
    show("The theorems, digits, 8 units", rows)
    print(f"Permutations of 5 units, other than the identity, that commute: {numbers['permutations that commute']}\n")
    if options.data is None:
        console.print("Give --data DIR with CIFAR-10 for the reach of the solver.")
    else:
        console.print("[bold]2/3[/] The covariance of CIFAR-10")
        images = cifar10(options.data).train[: 500 if options.quick else None].astype(np.float32) / np.float32(255)
        if options.quick:
            images = images[:, ::16]
        covariance = np.cov(images.T, bias=True, dtype=np.float64)
        console.print("[bold]3/3[/] The reach of the solver")
        reached = reach(covariance, (4, 16) if options.quick else (16, 64, 256, 512), console)
        ratio = pca_ratio(images, 16 if options.quick else 512)
        numbers |= {"reach": reached, "time / sklearn PCA": ratio}
        add_reach(page, reached, ratio)
        show("Reach on CIFAR-10", reached)
        width = reached[-1]["width"]
        print(f"Fit of {width} units, covariance and all, in units of scikit-learn's exact PCA: {ratio:.2f}\n")
    page.footer("Made by python -m nestcode.reproduce.pca")
    write_atomic(options.out / "pca.json", json.dumps(numbers, indent=1).encode())
    print(page.write(options.out))


def show(title: str, rows: list[Row]) -> None:
    """Print one table."""
    headers, cells = table(rows)
    printed = Table(title=title, title_justify="left")
    for header in headers:
        printed.add_column(header, justify="left" if header == "model" else "right")
    for row in cells:
        printed.add_row(*row)
    console = Console()
    console.width = max(console.width, 120)
    console.print(printed)


if __name__ == "__main__":
    main()
