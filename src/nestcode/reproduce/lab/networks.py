"""Training of networks that several experiments share: trained once, then read from the cache.

Their weights go to `networks/` in the cache, and what experiments measure of them beside it: measurements are small,
and all that a report needs. The networks are those of `compression.py` and `retrieval.py`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestcode.arrays import Doubles
from nestcode.lengths import Empirical, LogUniform
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab.base import Lab
from nestcode.reproduce.lab.images import Pixels, as_rows
from nestcode.training import Run, train
from nestcode.training.presets import Preset, find_preset
from nestcode.training.runtime.checkpoint import read_checkpoint

Reports = list[dict[str, Any]]

QUIET = Run(progress=False, report_every=10**9)  # experiments have progress bars of their own
REPORTS = 100  # points of a loss curve
BATCH = 10_000  # of the paper

# The paper's bits are 0 or 1 and train through tied weights alone. Ours are -1 or 1, 0 where they are dropped, have
# straight-through gradients, and lengths whose distribution does not starve the tail.
RECIPES = {"paper": find_preset("paper-compression"), "ours": Preset(width=1024, lengths=LogUniform())}


def unordered(width: int) -> Empirical:
    """Return the lengths of a standard autoencoder: all units, always."""
    return Empirical([1], lengths=[width])


def trained_network(
    lab: Lab,
    name: str,
    preset: Preset,
    rows: NDArray[Any],
    *,
    real: bool = False,
    augment: nn.Module | None = None,
    resumable: bool = False,
) -> tuple[OrderedAutoencoder, Reports]:
    """Return a trained network in evaluation mode, on the GPU if there is one, and the reports of its training.

    Args:
        lab: its cache keeps the weights.
        name: of the cache file.
        preset: the network and its training, which holds the seed.
        rows: training items, (n, features): floats, or 8-bit pixels that stand for values from 0 to 1.
        real: rectified units instead of bits.
        augment: makes random views of rows.
        resumable: keep a checkpoint when interrupted, and continue from it.

    """

    def compute() -> dict[str, NDArray[Any]]:
        network = build(preset, rows.shape[1], real=real)
        checkpoint = lab.cache / "networks" / f"{name}-{preset.training.seed}.ckpt" if resumable else None
        points = lab.pick(toy=12, quick=REPORTS, full=REPORTS)
        every = max(preset.training.total_steps(len(rows)) // points, 1)
        how = Run(progress=False, report_every=every, checkpoint=checkpoint, checkpoint_every=10**9, resume=resumable)
        if lab.unfinished and checkpoint is not None and checkpoint.exists():
            reports = restore(network, checkpoint, rows)
        else:
            reports = train(network, rows, preset.training, how, augment=augment)
            if checkpoint is not None:
                checkpoint.unlink(missing_ok=True)
        if rows.dtype == np.uint8:
            to_unit_range(network)
        weights = {key: value.cpu().numpy() for key, value in network.state_dict().items()}
        return {**weights, "reports": np.array(json.dumps(reports))}

    settings = {"preset": preset, "real": real, "augment": augment, "items": rows.shape}
    stored = lab.cached(f"networks/{name}", compute, **settings)
    reports = json.loads(str(stored.pop("reports")))
    network = build(preset, rows.shape[1], real=real)
    network.load_state_dict({key: torch.from_numpy(value) for key, value in stored.items()})
    return network.to("cuda" if torch.cuda.is_available() else "cpu").eval(), reports


def to_unit_range(network: OrderedAutoencoder) -> None:
    """Let a network that was trained on 8-bit pixels take pixels from 0 to 1."""
    network.mean.div_(255)
    network.spread.div_(255)


def restore(network: OrderedAutoencoder, checkpoint: Path, rows: NDArray[Any]) -> Reports:
    """Load a network as its training was interrupted, set exact thresholds, and return its reports so far."""
    state = read_checkpoint(checkpoint)
    network.load_state_dict(state["model"])
    if network.binarize is not None:
        with torch.inference_mode():
            pieces = (torch.from_numpy(part) for part in np.array_split(rows, 20))
            network.binarize.finalize(map(network.preactivations, pieces))
    reports: Reports = state["reports"]
    return reports


def build(preset: Preset, features: int, *, real: bool = False) -> OrderedAutoencoder:
    """Return the untrained network of a preset, with its seed; real units are rectified, and have no threshold."""
    torch.manual_seed(preset.training.seed)
    network = preset.build(features)
    if real:
        network.binarize = None
    return network


def curve(reports: Reports) -> Doubles:
    """Return steps and mean losses of a training run, (2, reports)."""
    return np.array([[one["step"], one["loss"]] for one in reports if one["loss"] is not None], dtype=np.float64).T


def in_pieces(function: Callable[[Tensor], Tensor], pixels: Pixels, device: torch.device) -> Tensor:
    """Return a function of rows from 0 to 1, computed some at a time, on the CPU."""
    with torch.inference_mode():
        parts = [function(torch.from_numpy(as_rows(part)).to(device)).cpu() for part in np.array_split(pixels, 20)]
    return torch.cat(parts)
