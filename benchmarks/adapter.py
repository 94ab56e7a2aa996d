"""Truncating frozen embeddings: recall@10 by the number of dimensions kept, on sentences that no method was fitted on.

Neighbors are those of whole embeddings by cosine. Every learned method gets the same batches and steps, and no labels:

    nested adapter      NestedAdapter: a rotation and a correction, distilled over random lengths
    truncation          the first dimensions as they are
    PCA                 the first principal directions, not centered, as the cosine is not
    Matryoshka-Adaptor  like Yoon et al. 2024, unsupervised: a residual network trained to keep the similarities of
                        pairs and of neighbors at fixed lengths
    SMEC                like Zhang et al. 2025: linear maps that halve the dimensions one after another, each trained
                        with those before it frozen
    CSR                 like Wen et al. 2025: a sparse autoencoder with 4 times as many units, of which the largest
                        are kept; at equal bytes (float16 values, and indices), so it keeps fewer units than the others

Data: --sentences PATH (see benchmarks/search.py) or --embeddings FILE.npy; digits with --quick.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from math import ceil, log2
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from _report import save, show
from _sentences import read_embeddings, read_sentences
from nestcode.arrays import Floats
from nestcode.data import digits
from nestcode.metrics import by_length, plot_by_length
from nestcode.nn import NestedAdapter
from nestcode.nn.adapter import neighbor_batches, warm_cosine

NEAREST = 10
QUERIES = 1000
Truncated = Callable[[Tensor, int], Tensor]  # rows and dimensions to their truncated embeddings


def main() -> None:
    """Measure, print, draw and save."""
    options = read_options()
    torch.set_float32_matmul_precision("high")
    name, rows = read_rows(options)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = functional.normalize(torch.from_numpy(rows).to(device), dim=1)
    fitted, items = data[: len(data) * 7 // 10], data[len(data) * 7 // 10 :]
    queries, items = items[: min(QUERIES, len(items) // 4)], items[min(QUERIES, len(items) // 4) :]
    features = data.shape[1]
    lengths = sorted({max(2, features // part) for part in (64, 48, 32, 24, 16, 12, 8, 6, 4, 2, 1)})
    exact = nearest(queries, items)

    def recall(truth: object, found: object) -> float:
        return float((np.asarray(found)[:, :, None] == np.asarray(truth)[:, None]).any(axis=1).mean())

    curves = {}
    for method, fit in METHODS.items():
        start = time.perf_counter()
        truncated = fit(fitted, options.steps)
        seconds = time.perf_counter() - start
        with torch.no_grad():
            search = lambda rows, length, f=truncated: nearest(f(rows, length), f(items, length))  # noqa: E731
            curves[method] = by_length(search, queries, lengths, recall, exact), seconds
    table = [
        {"dimensions": length, **{method: curve[length] for method, (curve, _) in curves.items()}} for length in lengths
    ]
    note = f"Fitted on {len(fitted):,} others, {options.steps:,} steps: " + ", ".join(
        f"{method} {seconds:.0f} s" for method, (_, seconds) in curves.items() if seconds > 0.5
    )
    show(f"recall@{NEAREST} of {len(queries):,} queries among {len(items):,} {name}, held out", table, note)
    if options.figure:
        drawn = {method: curve for method, (curve, _) in curves.items()}
        plot_by_length(drawn, options.figure, f"recall@{NEAREST}", "dimensions")
    save(options.json, table, ["nestcode", "numpy", "torch"])


def read_options() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test on digits")
    parser.add_argument("--sentences", type=Path, metavar="PATH", help="a text file, one sentence per line")
    parser.add_argument("--embeddings", type=Path, metavar="FILE", help="the file of their embeddings")
    parser.add_argument("--model", metavar="DIR", help="a model of sentence-transformers instead of MiniLM")
    parser.add_argument("--base", type=int, default=100_000, metavar="N", help="number of sentences (100,000)")
    parser.add_argument("--steps", type=int, metavar="N", help="training steps of each method (3,000)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw recall by dimensions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    options.steps = options.steps or (3 if options.quick else 3000)
    return options


def read_rows(options: argparse.Namespace) -> tuple[str, Floats]:
    """Return a name and embeddings in random order."""
    if options.embeddings is not None and options.embeddings.is_file():
        name, rows = "embeddings", np.load(options.embeddings, allow_pickle=False).astype(np.float32)
    elif options.sentences is not None:
        texts = np.random.default_rng(0).permutation(read_sentences(options.sentences))[: options.base].tolist()
        file = options.embeddings or options.sentences.with_name(f"adapter-{options.base}.npy")
        name, rows = "sentences by all-MiniLM-L6-v2", read_embeddings(file, texts, options.model)
    else:
        name, rows = "digits", (digits()[0] - 0.5).astype(np.float32)
        rows = rows[:600] if options.quick else rows
    return name, np.random.default_rng(1).permutation(rows)[: options.base]


def nearest(queries: Tensor, items: Tensor) -> Tensor:
    """Return the items with the highest cosine, (queries, 10)."""
    return (functional.normalize(queries, dim=1) @ functional.normalize(items, dim=1).T).topk(NEAREST).indices


def train(module: nn.Module, loss: Callable[[Tensor], Tensor], rows: Tensor, steps: int, lr: float = 1e-3) -> None:
    """Minimize a loss of batches of neighbors, as NestedAdapter.fit does."""
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(warm_cosine, steps=steps))
    for batch in neighbor_batches(rows, steps, torch.Generator().manual_seed(0)):
        optimizer.zero_grad()
        loss(batch).backward()
        optimizer.step()
        schedule.step()


def similarity_error(code: Tensor, batch: Tensor) -> Tensor:
    """Return the error of the similarities of all pairs, plus that of each row's 10 nearest."""
    code = functional.normalize(code, dim=1)
    wanted = batch @ batch.T
    error = (code @ code.T - wanted).abs()
    neighbors = wanted.topk(min(NEAREST + 1, len(batch)), dim=1).indices
    return error.mean() + error.gather(1, neighbors).mean()


def halvings(features: int) -> list[int]:
    """Return Matryoshka's lengths.

    >>> halvings(384)
    [6, 12, 24, 48, 96, 192, 384]
    """
    return [features >> power for power in range(12) if features >> power >= 6][::-1] or [features]


def fit_nested(rows: Tensor, steps: int) -> Truncated:
    """Fit the adapter of this library."""
    adapter = NestedAdapter(rows.shape[1]).to(rows.device).fit(rows.cpu(), steps=steps).eval()
    return lambda x, length: adapter(x)[:, :length]


def fit_pca(rows: Tensor, steps: int) -> Truncated:  # noqa: ARG001
    """Fit principal directions."""
    directions = torch.linalg.eigh(rows.T @ rows)[1].flip(1)
    return lambda x, length: x @ directions[:, :length]


def fit_matryoshka_adaptor(rows: Tensor, steps: int) -> Truncated:
    """Fit a residual network to keep similarities at fixed lengths, and the embedding itself."""
    features = rows.shape[1]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU(), nn.Linear(2 * features, features))
    network = network.to(rows.device)

    def adapted(x: Tensor) -> Tensor:
        out: Tensor = x + network(x * features**0.5)
        return out

    def loss(batch: Tensor) -> Tensor:
        code = adapted(batch)
        errors = [similarity_error(code[:, :length], batch) for length in halvings(features)]
        return torch.stack(errors).sum() + (code - batch).abs().mean()

    train(network, loss, rows, steps)
    return lambda x, length: adapted(x)[:, :length]


def fit_smec(rows: Tensor, steps: int) -> Truncated:
    """Fit linear maps that halve the dimensions, one after another; a length between takes the next larger."""
    lengths = halvings(rows.shape[1])[::-1]
    maps: list[nn.Linear] = []

    def compressed(x: Tensor, layers: Iterable[nn.Linear]) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x

    for before, after in pairwise(lengths):
        with torch.no_grad():
            inputs = compressed(rows, maps)
            layer = nn.Linear(before, after, bias=False, device=rows.device)
            layer.weight.copy_(torch.linalg.eigh(inputs.T @ inputs)[1].flip(1).T[:after])
        stages = [*maps, layer]
        share = max(1, steps // (len(lengths) - 1))
        train(layer, lambda batch, stages=stages: similarity_error(compressed(batch, stages), batch), rows, share)  # type: ignore[misc]
        maps.append(layer.requires_grad_(False))

    def truncated(x: Tensor, length: int) -> Tensor:
        used = sum(after >= length for after in lengths[1:])
        return compressed(x, maps[:used])[:, :length]

    return truncated


def fit_csr(rows: Tensor, steps: int) -> Truncated:
    """Fit a sparse autoencoder, and keep as many of its largest units as fit into the bytes of a dense prefix."""
    features = rows.shape[1]
    units = 4 * features
    torch.manual_seed(0)
    encoder, decoder = nn.Linear(features, units), nn.Linear(units, features, bias=False)
    with torch.no_grad():
        encoder.weight.copy_(decoder.weight.T)
    model = nn.ModuleList([encoder, decoder]).to(rows.device)

    def sparse(x: Tensor, active: int) -> Tensor:
        code = functional.relu(encoder(x * features**0.5))
        values, places = code.topk(active, dim=1)
        return torch.zeros_like(code).scatter(1, places, values)

    def loss(batch: Tensor) -> Tensor:
        codes = [sparse(batch, max(1, features // part)) for part in (64, 16, 4)]
        rebuilt = [(decoder(code) - batch * features**0.5).square().mean() for code in codes]
        own = torch.arange(len(batch), device=batch.device)
        keys = functional.normalize(codes[-1], dim=1)
        contrast = [functional.cross_entropy(functional.normalize(code, dim=1) @ keys.T / 0.05, own) for code in codes]
        return torch.stack(rebuilt).sum() + 0.1 * torch.stack(contrast).sum()

    train(model, loss, rows, steps)
    bits = 16 + ceil(log2(units))  # of a value and its index
    return lambda x, length: sparse(x, max(1, length * 16 // bits))


METHODS: dict[str, Callable[[Tensor, int], Truncated]] = {
    "nested adapter": fit_nested,
    "truncation": lambda rows, steps: lambda x, length: x[:, :length],  # noqa: ARG005
    "PCA": fit_pca,
    "Matryoshka-Adaptor": fit_matryoshka_adaptor,
    "SMEC": fit_smec,
    "CSR": fit_csr,
}


if __name__ == "__main__":
    main()
