"""Training throughput of the paper's retrieval network: examples/s of a whole step, against a plain autoencoder.

The network is 3072-2048-1024-512 and back, with tied weights, in batches of 10,000. Each row is one kind of step, with
forward and backward passes and the optimizer's update, on random rows of 50,000 images on the device:

    plain       the autoencoder alone
    nested      with nested dropout
    noise       also with input corruption and dropout
    penalty     also with the adaptive L1 penalty
    full        also with the invariance penalty, estimated on an eighth of the batch
    naive       the same with the invariance penalty on the whole batch, as in the paper
    binary      the full step with binary units, through which the paper passes no gradient
    loop        the full step inside `train`, with its data loading, reports and checks
    swept       the binary step inside `train`, also with random crops and flips on the device, and unit sweeping

TFLOP/s count matrix products only. On a GPU they are in bfloat16, and steps are compiled. Rounds are interleaved, and
the best counts.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from _report import save, show
from nestcode.lengths import Geometric
from nestcode.nn import Binarize, OrderedAutoencoder, RandomViews
from nestcode.training import AdaptivePenalty, Invariance, Run, Sweep, Training, train
from nestcode.training.autoencoder import AutoencoderLoss, AutoencoderObjective
from nestcode.training.optimizers import AdamStep
from nestcode.training.runtime.accelerator import Accelerator

IMAGES = 79_302_017  # the paper's data set, two epochs
KINDS = ("plain", "nested", "noise", "penalty", "full", "naive", "binary", "loop", "swept")
IN_TRAIN = ("loop", "swept")


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny network: a smoke test")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="which steps (all)")
    parser.add_argument("--steps", type=int, default=100, help="steps per round (100)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    sizes, batch = ([48, 32, 16, 8], 64) if options.quick else ([3072, 2048, 1024, 512], 10_000)
    steps = 2 if options.quick else options.steps
    device = Accelerator(Training(), steps=0).device
    data = torch.randint(256, (5 * batch, sizes[0]), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    jobs = {kind: make_step(kind, sizes, batch, data.to(device)) for kind in options.kinds if kind not in IN_TRAIN}
    best = measure(jobs, steps, device)
    for kind in set(IN_TRAIN) & set(options.kinds):
        best[kind] = loop_seconds(kind, sizes, batch, data, 5 * steps)
    rows = [describe(kind, best, sizes, batch) for kind in options.kinds]
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    show(f"Training step of {'-'.join(map(str, sizes))}, batches of {batch:,}, on {where}", rows, "x: time over plain.")
    save(options.json, rows, ["nestcode", "torch"])


def make_settings(kind: str, batch: int, steps: int) -> Training:
    """Return the training settings of a kind of step."""
    rank = KINDS.index(kind)
    return Training(
        steps=steps,
        batch_size=batch,
        penalty=AdaptivePenalty("l1", ratio=0.05) if rank >= 3 else None,
        invariance=Invariance(0.01 if rank >= 4 else 0.0, share=1.0 if kind == "naive" else 0.125),
        sweep=Sweep() if kind == "swept" else None,
    )


def make_model(kind: str, sizes: list[int]) -> OrderedAutoencoder:
    """Return the network of a kind of step."""
    features, *layers, width = sizes
    noisy = KINDS.index(kind) >= 2
    return OrderedAutoencoder(
        features,
        width,
        layers,
        tied=True,
        lengths=Geometric(0.97),
        binarize=Binarize(width, 0.2, "none", deferred=True) if kind in ("binary", "swept") else None,
        corruption=0.1 if noisy else 0.0,
        dropout=0.2 if noisy else 0.0,
    )


def loop_seconds(kind: str, sizes: list[int], batch: int, data: torch.Tensor, steps: int) -> float:
    """Return the seconds per step of the training loop after the second report, when compilation is over."""
    run, training = Run(progress=False, report_every=steps), make_settings(kind, batch, 3 * steps)
    side = math.isqrt(sizes[0] // 3)
    augment = RandomViews((3, side, side), crop=side // 8) if kind == "swept" else None
    reports = train(make_model(kind, sizes), data.numpy(), training, run, augment=augment)
    return float(reports[3]["seconds"] - reports[2]["seconds"]) / steps or float("nan")


def make_step(kind: str, sizes: list[int], batch: int, data: torch.Tensor) -> Callable[[], None]:
    """Return one step of a kind, as the training loop takes it."""
    settings = make_settings(kind, batch, steps=1_000_000)
    accelerator = Accelerator(settings, steps=settings.steps)
    model = make_model(kind, sizes).to(accelerator.device)
    model.set_moments(data[:5000].float().mean(dim=0), data[:5000].float().var(dim=0))
    if kind == "plain":
        model.nested.eval()
    loss_of = accelerator.compiled(AutoencoderLoss(model, settings))
    objective = AutoencoderObjective(model, data[:batch], settings)
    stepper = AdamStep(objective, settings, accelerator, total=1_000_000)
    rows = data[:batch].clone()

    def accumulate() -> None:
        with accelerator.autocast():
            loss = loss_of(rows)
        loss.backward()

    graphed = accelerator.graphed(accumulate)

    def backward() -> torch.Tensor:
        rows.copy_(data[torch.randint(len(data), (batch,), device=data.device)])
        graphed()
        return torch.zeros(())

    def step() -> None:
        stepper.take(1000, backward)
        if model.binarize is not None:
            model.binarize.update()

    return step


def measure(jobs: dict[str, Callable[[], None]], steps: int, device: torch.device, rounds: int = 3) -> dict[str, float]:
    """Return the best seconds per step of each kind."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    best = dict.fromkeys(jobs, float("inf"))
    for kind, step in jobs.items():  # compile
        for _ in range(6):
            step()
        wait()
        print(f"{kind}: compiled", file=sys.stderr, flush=True)
    for _ in range(rounds):
        for kind, step in jobs.items():
            start = time.perf_counter()
            for _ in range(steps):
                step()
            wait()
            best[kind] = min(best[kind], (time.perf_counter() - start) / steps)
    return best


def describe(kind: str, best: dict[str, float], sizes: list[int], batch: int) -> dict[str, Any]:
    """Return a row of the table."""
    speed = batch / best[kind]
    return {
        "step": kind,
        "ms": 1e3 * best[kind],
        "examples/s": f"{speed:,.0f}",
        "TFLOP/s": speed * operations(kind, sizes) / 1e12,
        "x": best[kind] / best["plain"] if "plain" in best else float("nan"),
        "paper's 2 epochs, s": 2 * IMAGES / speed,
    }


def operations(kind: str, sizes: list[int]) -> float:
    """Return the FLOPs of the matrix products per example: forward, and backward to weights and inputs but the first.

    >>> operations("plain", [4, 2]) == 2 * 8 * (3 + 3 - 1)
    True
    """
    encoder = 2 * sum(a * b for a, b in pairwise(sizes))
    first = 2 * sizes[0] * sizes[1]
    back = 0 if kind in ("binary", "swept") else 2 * encoder - first  # no gradient reaches the encoder
    whole = encoder + back + 3 * encoder
    share = {"full": 1 / 8, "loop": 1 / 8, "binary": 1 / 8, "swept": 1 / 8, "naive": 1}.get(kind, 0)
    return whole + 2 * share * (3 * encoder - first)  # clean and perturbed inputs


if __name__ == "__main__":
    main()
