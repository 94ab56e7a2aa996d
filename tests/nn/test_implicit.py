"""Implicit codebooks, beside a plain beam search."""

import pytest
import torch
from torch import Tensor

from nestcode.nn.implicit import ImplicitCodebooks


def codebooks(stages: int = 3, size: int = 16, features: int = 5) -> Tensor:
    steps = 0.5 ** torch.arange(stages)[:, None, None]
    return torch.randn(stages, size, features, generator=torch.Generator().manual_seed(0)) * steps


def trained(**sizes: int) -> ImplicitCodebooks:
    """Return a network whose entries depend on what is decoded."""
    torch.manual_seed(1)
    network = ImplicitCodebooks(codebooks(**sizes), units=6, layers=2)
    torch.nn.init.normal_(network.out, std=0.3)
    return network


def items(count: int = 4, features: int = 5) -> Tensor:
    return torch.randn(count, features, generator=torch.Generator().manual_seed(2))


def plain_search(network: ImplicitCodebooks, x: Tensor, beams: int, candidates: int, last: int) -> list[int]:
    """Encode one item: lists of partial encodings, each extended by its candidates."""
    kept = [(0.0, list[int](), torch.zeros_like(x))]
    for number, stage in enumerate(network.weights()):
        allowed = range(0, network.size, last if number == network.stages - 1 else 1)
        extended = []
        for _, code, decoded in kept:
            centroids = stage.scale * stage.centroids
            near = sorted(allowed, key=lambda k: float((x - decoded - centroids[k]).square().sum()))[:candidates]
            for entry in near:
                longer = decoded + stage.entries(decoded, torch.tensor([entry]))[0]
                extended.append((float((x - longer).square().sum()), [*code, entry], longer))
        kept = sorted(extended, key=lambda one: one[0])[:beams]
    return kept[0][1]


@pytest.mark.parametrize(("beams", "candidates", "last"), [(1, 1, 1), (3, 4, 1), (9, 99, 4)])
def test_the_search_equals_its_twin(beams: int, candidates: int, last: int) -> None:
    network, x = trained(), items()
    found = network.search(x, beams, candidates, last)
    with torch.no_grad():
        assert found.tolist() == [plain_search(network, one, beams, candidates, last) for one in x]


def test_autocast_rounds_the_network_but_hardly_the_codes() -> None:
    network, x = trained(), items(200)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network.search(x, 4, 4)
    errors = [(x - network.decode(codes)).square().sum().detach() for codes in (rounded, network.search(x, 4, 4))]
    torch.testing.assert_close(*errors, rtol=0.01, atol=0)


def test_more_beams_and_candidates_make_better_codes() -> None:
    network, x = trained(), items(200)
    errors = [
        float((x - network.decode(network.search(x, effort, effort))).square().sum().detach()) for effort in (1, 4, 16)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_every_prefix_decodes_on_the_way() -> None:
    network, codes = trained(), trained().search(items(), 2, 4)
    prefixes = network(codes)
    for stages in range(1, 4):
        torch.testing.assert_close(network.decode(codes[:, :stages]), prefixes[:, stages - 1])
    assert not network.decode(codes[:, :0]).any()


def test_untrained_ones_are_those_of_the_residual_quantizer() -> None:
    books = codebooks()
    network = ImplicitCodebooks(books, units=4)
    codes = network.search(items(), 1, 16)
    entries = torch.stack([book[chosen] for book, chosen in zip(books, codes.T, strict=True)], dim=1)
    torch.testing.assert_close(network(codes), entries.cumsum(dim=1))
    torch.testing.assert_close(network.chosen_centroids(codes), entries)


def test_centroids_follow_a_loss_of_their_own() -> None:
    network = trained()
    codes = network.search(items(), 2, 4)
    network(codes).sum().backward()
    assert network.centroids.grad is None
    assert all(weight.grad is not None for name, weight in network.named_parameters() if name != "centroids")
    network.chosen_centroids(codes).sum().backward()
    assert network.centroids.grad is not None


def test_codebooks_of_zeros_stay_finite() -> None:
    network = ImplicitCodebooks(torch.zeros(2, 16, 5), units=4)
    assert not network(network.search(items(), 2, 4)).any()
