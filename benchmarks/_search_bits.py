"""The recall-by-bits table of the search benchmark: recall@10 of exhaustive search by code size."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import nestcode as nc
from _report import show
from _search_codes import PEERS, Peer, Result, local_search, principal_directions, recall_of_decoded, reduce, sign_bits
from _search_task import NEAREST, Budget, Row, Task, first, read_task, wanted
from nestcode.search import asymmetric_distances
from nestcode.training import Training

ITEMS = 50_000  # if --base is not given
Results = dict[int, Result | None]  # by code size


def recall_by_bits(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Measure, print, and yield the rows to save."""
    task = read_task(options, 600 if options.quick else 2 * (options.base or ITEMS)).halves()
    lengths = (8, 16, 80) if options.quick else tuple(sorted(options.bits))
    results = ours(task, lengths, options)
    principal = principal_directions(task.training)
    if wanted("sign bits", options.peers):
        results["sign bits"] = sign_bits(task, principal, lengths)
    reduced = reduce(task, principal)
    peers = PEERS | {"FAISS LSQ": partial(local_search, iterations=options.lsq)}
    for name, peer in peers.items():
        if wanted(name, options.peers):
            results[name] = train_each_size(name, peer, reduced, lengths, options.limit)
    show(
        f"recall@{NEAREST} by bits, exhaustive search, trained on as many other rows: {task}",
        [table_row(name, by_length, lengths) for name, by_length in results.items()],
        "Seconds: for all sizes together, on all cores; ours and sign bits are fitted and encoded once.\n"
        f"–: the method has no code of this size, or would have taken over {options.limit:g} s by then.\n"
        "ITQ and sign bits: symmetric (Hamming) distances; all others: asymmetric. RaBitQ, EDEN, turbovec: the best "
        "number of bits per dimension and\nof principal components that fit, with their correction factors.",
    )
    yield [
        {"data": task.name, "method": name, "bits": length, **vars(result)}
        for name, by_length in results.items()
        for length, result in by_length.items()
        if result is not None
    ]


def table_row(name: str, by_length: Results, lengths: tuple[int, ...]) -> Row:
    """Return a method's recall at each size, and its seconds."""
    results = {length: by_length.get(length) for length in lengths}
    row: Row = {"method": name}
    row |= {f"{length} bits": f"{result.recall:.3f}" if result else "–" for length, result in results.items()}
    row["fit s"] = f"{sum(result.fit for result in results.values() if result):.1f}"
    row["encode s"] = f"{sum(result.encode for result in results.values() if result):.1f}"
    return row


def ours(task: Task, lengths: tuple[int, ...], options: argparse.Namespace) -> dict[str, Results]:
    """Return the results of nestcode.fit's choice, three other coders and, with --implicit, ImplicitCoder."""
    width, metric = lengths[-1], task.metric
    beams = options.beams or 4
    fits: dict[str, Callable[[], nc.Coder]] = {
        "nestcode.fit": lambda: nc.fit(task.training, width, metric=metric),
        "ResidualCoder": lambda: nc.ResidualCoder(width, metric, beams=beams).fit(task.training),
        "LinearCoder": lambda: nc.LinearCoder(width, metric).fit(task.training),
        "RotationCoder": lambda: nc.RotationCoder(width, metric).fit(task.training),
    }
    if options.beams is not None:
        del fits["nestcode.fit"]
    results: dict[str, Results] = {}
    for name, fit in fits.items():
        if f"{name} (nestcode.fit)" in results:
            continue
        start = time.perf_counter()
        coder = fit()
        seconds = time.perf_counter() - start
        title = f"{type(coder).__name__} (nestcode.fit)" if name == "nestcode.fit" else name
        results[title] = read_prefixes(task, coder, encode(task, coder), seconds, lengths)
    if options.implicit is not None:
        start = time.perf_counter()
        coder = implicit(task, nc.ResidualCoder(width, metric, beams=beams), options.implicit)
        results["ImplicitCoder"] = decode_prefixes(task, coder, time.perf_counter() - start, lengths)
    return results


def implicit(task: Task, base: nc.ResidualCoder, steps: int) -> nc.ImplicitCoder:
    """Return a fitted ImplicitCoder; on a GPU its steps are CUDA graphs."""
    import torch

    gpu = torch.cuda.is_available()
    batch = min(2048, len(task.training) // 4)
    training = Training(steps=steps, batch_size=batch, learning_rate=1e-3, holdout=0.01, compile=gpu)
    return nc.ImplicitCoder(base, beams=16, preselected=8, training=training).fit(task.training)


def encode(task: Task, coder: nc.Coder) -> tuple[nc.Codes, float]:
    """Return the codes of all items, and the seconds of encoding."""
    start = time.perf_counter()
    return coder.encode(task.base), time.perf_counter() - start


def read_prefixes(
    task: Task,
    coder: nc.Coder,
    encoded: tuple[nc.Codes, float],
    fit: float,
    lengths: tuple[int, ...],
) -> Results:
    """Return the results of one fitted coder by prefix length; seconds are counted once, at the largest."""
    codes, seconds = encoded
    results: Results = {}
    for length in lengths:
        parts = (task.queries[i : i + 256] for i in range(0, len(task.queries), 256))
        found = [first(asymmetric_distances(coder, part, codes.prefix(length))) for part in parts]
        last = length == lengths[-1]
        results[length] = Result(task.recall(np.concatenate(found)), fit if last else 0.0, seconds if last else 0.0)
        print(f"{coder}, {length} bits: {results[length]}", file=sys.stderr, flush=True)
    return results


def decode_prefixes(task: Task, coder: nc.ImplicitCoder, fit: float, lengths: tuple[int, ...]) -> Results:
    """Return the same of a network, ranked by distances to decoded items as FAISS's quantizers are."""
    codes, seconds = encode(task, coder)
    results: Results = {}
    for length in lengths:
        last = length == lengths[-1]
        recall = recall_of_decoded(task, coder.decode(codes.prefix(length)))
        results[length] = Result(recall, fit if last else 0.0, seconds if last else 0.0)
        print(f"{coder}, {length} bits: {results[length]}", file=sys.stderr, flush=True)
    return results


def train_each_size(name: str, peer: Peer, task: Task, lengths: tuple[int, ...], limit: float) -> Results:
    """Return a peer's results by size, until the next size would exceed the time limit."""
    results: Results = {}
    budget = Budget(limit, growth=3)  # doubling the bits takes two to four times as long
    for length in lengths:
        if not budget.allows():
            break
        results[length] = peer(task, length)
        print(f"{name}, {length} bits: {results[length]}", file=sys.stderr, flush=True)
    return results
