"""Nested dropout under DistributedDataParallel: two processes give the gradients of one."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from nestcode.lengths import Uniform
from nestcode.nn import NestedDropout

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without torch.distributed")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.drop, self.decoder = nn.Linear(5, 8), NestedDropout(Uniform()), nn.Linear(8, 5)

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        out: Tensor = self.decoder(self.drop(self.encoder(x), kept))
        return out


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 5, generator=generator), torch.randint(0, 9, (12,), generator=generator)


def work(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = DistributedDataParallel(Model())
    x, kept = (tensor[rank::2] for tensor in batch())
    model(x, kept).square().mean().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model(x).sum().backward()  # lengths of its own, too
    torch.save(gradients, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    start_processes(work, args=(str(tmp_path),), nprocs=2, start_method="spawn")
    model = Model()
    x, kept = batch()
    model(x, kept).square().mean().backward()
    for rank in range(2):
        for got, parameter in zip(torch.load(tmp_path / f"{rank}.pt"), model.parameters(), strict=True):
            torch.testing.assert_close(got, parameter.grad)
