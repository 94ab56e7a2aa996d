"""Nested dropout and binarization in two processes (DDP, FSDP) have the gradients and thresholds of one."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from nestcode.lengths import Uniform
from nestcode.nn import Binarize, NestedDropout

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without torch.distributed")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.decoder = nn.Linear(5, 8), nn.Linear(8, 5)
        self.drop = NestedDropout(Uniform(), fill=nn.Parameter(torch.full((8,), 0.5)))

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        out: Tensor = self.decoder(self.drop(self.encoder(x), kept))
        return out


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 5, generator=generator), torch.randint(0, 9, (12,), generator=generator)


def skewed(step: int) -> Tensor:
    return torch.randn(200, 16, generator=torch.Generator().manual_seed(step)).exp()


def work(rank: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh  # which import SymPy, and only these processes need it
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = DistributedDataParallel(Model())
    x, kept = (tensor[rank::2] for tensor in batch())
    model(x, kept).square().mean().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model(x).sum().backward()  # lengths of its own, too
    torch.save(gradients, f"{folder}/gradients.{rank}")
    sharded: Any = fully_shard(Model(), mesh=init_device_mesh("cpu", (2,)))
    sharded(x, kept).square().mean().backward()
    torch.save([parameter.grad.full_tensor() for parameter in sharded.parameters()], f"{folder}/shards.{rank}")
    binarize = Binarize(16, 0.2)
    for step in range(3):
        binarize(skewed(step)[rank::2])
    torch.save(binarize.state_dict(), f"{folder}/bits.{rank}")
    dist.barrier()  # gloo may hang in a process whose peer leaves while it still works
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left; starting them takes longer than their work, so it is done once."""
    found = tmp_path_factory.mktemp("processes")
    start_processes(work, args=(str(found),), nprocs=2, start_method="spawn")
    return found


def test_two_processes_give_the_gradients_of_one(folder: Path) -> None:
    model = Model()
    x, kept = batch()
    model(x, kept).square().mean().backward()
    for rank in range(2):
        for kind in ("gradients", "shards"):
            for got, parameter in zip(torch.load(folder / f"{kind}.{rank}"), model.parameters(), strict=True):
                torch.testing.assert_close(got, parameter.grad)


def test_thresholds_follow_the_sums_of_all_processes(folder: Path) -> None:
    alone = Binarize(16, 0.2)
    for step in range(3):
        alone(skewed(step))
    for rank in range(2):
        for name, value in torch.load(folder / f"bits.{rank}").items():
            torch.testing.assert_close(value, alone.get_buffer(name))
