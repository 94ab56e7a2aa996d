"""Training of a refiner: bits that stay as they are, and nested dropout over how many of them are kept."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestcode.errors import Diverged
from nestcode.nn.refine import ImageRefiner, VectorRefiner
from nestcode.training.checkpoint import check_same, read_checkpoint, write_checkpoint
from nestcode.training.config import Training
from nestcode.training.data import batch_count, batches
from nestcode.training.hardware import Hardware
from nestcode.training.journal import Journal, Run
from nestcode.training.stopping import Stopping

WARM_UP = 0.05  # of the steps


@dataclass(frozen=True)
class Pairs:
    """Items, and what their codes decode to at some lengths; in units in which items vary by 1."""

    lengths: NDArray[np.int64]  # (lengths,)
    numbers: NDArray[np.float16]  # (lengths, n, directions): decoded, in some directions
    directions: NDArray[np.float32]  # (directions, features)
    items: NDArray[np.float16]  # (n, features), around the mean
    coder: str = ""  # which one made the codes

    def on(self, device: torch.device) -> "PairsOnDevice":
        """Them where they are trained on; on a GPU as far as a third of its memory goes."""
        roomy = device.type == "cpu" or self.numbers.nbytes + self.items.nbytes < torch.cuda.mem_get_info(device)[0] / 3
        return PairsOnDevice(self, device, device if roomy else torch.device("cpu"))


class PairsOnDevice:
    """Pairs as tensors."""

    def __init__(self, pairs: Pairs, device: torch.device, home: torch.device) -> None:
        self.device, self.home = device, home
        self.lengths = torch.from_numpy(pairs.lengths).to(home)
        self.numbers = torch.from_numpy(pairs.numbers).to(home)
        self.items = torch.from_numpy(pairs.items).to(home)
        self.directions = torch.from_numpy(pairs.directions).to(device)
        errors = []
        for at in range(len(pairs.lengths)):
            decoded, items, _ = self.some(torch.arange(min(2048, len(self.items)), device=home), at)
            errors.append((decoded - items).square().mean())
        self.weights = 1 / torch.stack(errors).clamp(min=1e-4)  # so that every length counts alike

    def some(self, which: Tensor, at: Tensor | int) -> tuple[Tensor, Tensor, Tensor]:
        """Decoded items, the items and the lengths, for some items at some of the lengths."""
        places = torch.as_tensor(at, device=self.home).expand(len(which))
        numbers = self.numbers[places, which].to(self.device, non_blocking=True).float()
        items = self.items[which].to(self.device, non_blocking=True).float()
        return numbers @ self.directions, items, self.lengths[places].to(self.device)


def refine(network: VectorRefiner | ImageRefiner, pairs: Pairs, training: Training, run: Run) -> list[dict[str, Any]]:
    """Train a refiner; what was reported on the way.

    Each example is decoded at a length drawn from those of `pairs`. A stopped run goes on as if it had not been.
    """
    items = len(pairs.items)
    batch_size = min(training.batch_size, items)
    total = training.total_steps(items)
    hardware = Hardware(training.but(compile=False), steps=total)
    reports: list[dict[str, Any]] = []
    journal = Journal(run, total, speaks=True)
    with torch.random.fork_rng(hardware.random_devices), Stopping() as stopping, journal.open():
        network.to(hardware.device).train()
        data = pairs.on(hardware.device)
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=hardware.gpu
        )
        identity = {
            **training.but(device="auto").to_json(),
            "coder": pairs.coder,
            "lengths": pairs.lengths.tolist(),
            "data": hashlib.sha256(pairs.items[:: max(1, items // 256)].tobytes()).hexdigest()[:16],
            "model": hashlib.sha256(f"{network} {network.settings()}".encode()).hexdigest()[:16],
        }
        step = 0
        losses: list[Tensor] = []  # since the last report
        if run.resume and run.checkpoint is not None:
            step, losses, reports = _resume(run, identity, network, optimizer)
            journal.replay(reports)
        while step < total:
            epoch, start = divmod(step, batch_count(items, batch_size))
            for which in batches(items, batch_size, epoch, training.seed, start=start):
                for group in optimizer.param_groups:
                    group["lr"] = training.learning_rate * _schedule(step, total, training)
                losses.append(_learn(network, data, which, optimizer, hardware, training, step))
                step += 1
                journal.advance(step, len(which))
                report, last = step % run.report_every == 0, step == total
                keep = run.checkpoint is not None and (step % run.checkpoint_every == 0 or last or stopping.asked)
                if report or last or keep:  # looking makes a GPU wait
                    loss = float(torch.stack(losses).mean())
                    if not math.isfinite(loss):
                        raise Diverged(f"the loss became {loss} by step {step} of {total}: lower learning_rate "
                                       f"({training.learning_rate:g}) or look for huge values in the data")  # fmt: skip
                if report or last:
                    losses = []
                    values = {"stage": 0, "step": step, "loss": loss, "fixed": 0, "errors": {"all": loss}}
                    reports.append(journal.report(values))
                if run.checkpoint is not None and keep:
                    state = {"step": step, "model": network.state_dict(), "optimizer": optimizer.state_dict()}
                    state |= {"identity": identity, "losses": losses, "reports": reports}
                    write_checkpoint(run.checkpoint, state)
                if stopping.asked:
                    stopping.stop(run.checkpoint, step)
                if step == total:
                    break
        network.eval()
    return reports


def _learn(
    network: nn.Module,
    data: PairsOnDevice,
    which: NDArray[np.int64],
    optimizer: torch.optim.Optimizer,
    hardware: Hardware,
    training: Training,
    step: int,
) -> Tensor:
    """One step; its loss, as a share of what the coder leaves without the network."""
    rng = np.random.default_rng([training.seed, step])
    drawn, half = rng.integers(len(data.lengths), size=len(which)), rng.random(len(which)) < 0.5
    at = torch.from_numpy(drawn).to(data.home)
    decoded, items, lengths = data.some(torch.from_numpy(which).to(data.home), at)
    if isinstance(network, ImageRefiner) and network.mirrored:
        turned = torch.from_numpy(half).to(decoded.device)[:, None]
        decoded, items = (torch.where(turned, network.mirror(x), x) for x in (decoded, items))
    with hardware.precision():
        refined = network(decoded, lengths)
    left = (refined.float() - items).square().mean(dim=1)
    loss = (left * data.weights[at.to(data.weights.device)]).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(network.parameters(), training.clip)
    optimizer.step()
    return torch.where(norm.isfinite(), loss.detach(), norm)  # else the weights are no numbers any more


def _schedule(step: int, total: int, training: Training) -> float:
    warm = min(1.0, (step + 1) / max(1.0, WARM_UP * total))
    return warm if training.schedule == "constant" else warm * 0.5 * (1 + math.cos(math.pi * step / total))


def _resume(
    run: Run, identity: dict[str, Any], network: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, list[Tensor], list[dict[str, Any]]]:
    """Go on from the checkpoint, if it is there."""
    assert run.checkpoint is not None
    try:
        state = read_checkpoint(run.checkpoint)
    except FileNotFoundError:
        return 0, [], []
    check_same(run.checkpoint, state["identity"], identity)
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    device = next(network.parameters()).device
    return state["step"], [loss.to(device) for loss in state["losses"]], state["reports"]
