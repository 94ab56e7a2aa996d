"""Implicit codebooks: a residual quantizer whose codebooks are functions of what is decoded so far.

              ┌── centroid k ──────────────────────────────────────┐
    entry k ──┴── embedding k ──┐                                  │
                                +──▶ residual blocks ──▶ correction + ──▶ codebook entry
    x̂ so far ───── context ─────┘

A stage of residual quantization has one codebook for all items; here the codebook of a stage adapts to the item (QINCo,
Huijben et al. 2024). The centroids alone pre-select the candidates that the network is evaluated for (QINCo2, Vallaeys
et al. 2025), and beam search chooses among these. The last layer is initialized to 0, so untrained implicit codebooks
are those of the residual quantizer they were made from.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

UNITS, LAYERS = 128, 2  # of the default network
HIDDEN = 2  # hidden units of a block, as a multiple of the units


class ImplicitStage(NamedTuple):
    """The weights of one stage."""

    scale: Tensor  # (): the unit of its centroids and corrections
    centroids: Tensor  # (entries, features)
    embedding: Tensor  # (entries, units)
    context: Tensor  # (features, units)
    up: Tensor  # (layers, units, hidden)
    down: Tensor  # (layers, hidden, units)
    out: Tensor  # (units, features)

    def entries(self, decoded: Tensor, chosen: Tensor) -> Tensor:
        """Return the codebook entries `chosen` in the context of `decoded`: (…, features), (…, a) -> (…, a, features).

        Centroids have a stop-gradient: they follow a loss of their own, as they also pre-select candidates.
        """
        hidden = _rows(self.embedding, chosen) + (decoded @ self.context)[..., None, :]
        for up, down in zip(self.up.unbind(), self.down.unbind(), strict=True):
            hidden = hidden + torch.relu(hidden @ up) @ down
        return self.scale * (_rows(self.centroids.detach(), chosen) + hidden @ self.out)

    def hidden(self, decoded: Tensor, chosen: Tensor) -> Tensor:
        """Return the last hidden layer for these entries, made in place: (…, features), (…, a) -> (… · a, units)."""
        hidden = (_rows(self.embedding, chosen) + (decoded @ self.context)[..., None, :]).flatten(0, -2)
        for up, down in zip(self.up.unbind(), self.down.unbind(), strict=True):
            hidden.addmm_(torch.relu_(hidden @ up), down)
        return hidden

    def to(self, dtype: torch.dtype) -> "ImplicitStage":
        """Return the weights in another precision."""
        return ImplicitStage(*(part.to(dtype) for part in self))


class ImplicitCodebooks(nn.Module):
    """The codebooks of all stages.

    >>> books = ImplicitCodebooks(torch.randn(3, 256, 16))
    >>> x = torch.randn(5, 16)
    >>> codes = books.search(x, beams=4, preselected=8)
    >>> codes.shape, books(codes).shape
    (torch.Size([5, 3]), torch.Size([5, 3, 16]))

    Args:
        codebooks: of the residual quantizer it starts as, (stages, entries, features), for data of variance 1.
        units: of the network.
        layers: residual blocks of the network.

    """

    scale: Tensor

    def __init__(self, codebooks: Tensor, units: int = UNITS, layers: int = LAYERS) -> None:
        super().__init__()
        self.stages, self.size, features = codebooks.shape
        self._settings = {"units": int(units), "layers": int(layers)}
        scale = codebooks.square().mean(dim=(1, 2)).sqrt()
        self.register_buffer("scale", torch.where(scale > 0, scale, 1))
        self.centroids = nn.Parameter(codebooks / self.scale[:, None, None])
        self.embedding = nn.Parameter(self.centroids.detach() @ _normal(self.stages, features, units))
        self.context = nn.Parameter(_normal(self.stages, features, units))
        self.up = nn.Parameter(_normal(self.stages, layers, units, HIDDEN * units))
        self.down = nn.Parameter(_normal(self.stages, layers, HIDDEN * units, units))
        self.out = nn.Parameter(torch.zeros(self.stages, units, features))

    def weights(self) -> list[ImplicitStage]:
        """Return the weights by stage."""
        parts = (self.scale, self.centroids, self.embedding, self.context, self.up, self.down, self.out)
        return [ImplicitStage(*some) for some in zip(*(part.unbind() for part in parts), strict=True)]

    def forward(self, codes: Tensor) -> Tensor:
        """Return what every prefix of codes decodes to, (n, stages) -> (n, stages, features)."""
        prefixes: list[Tensor] = []
        for stage, entry in zip(self.weights(), codes.long().unbind(dim=1), strict=True):
            decoded = prefixes[-1] if prefixes else self._zeros(codes)
            prefixes.append(decoded + stage.entries(decoded, entry[:, None])[:, 0])
        return torch.stack(prefixes, dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """Return what codes of any number of stages decode to, (n, stages) -> (n, features)."""
        decoded = self._zeros(codes)
        for stage, entry in zip(self.weights(), codes.long().unbind(dim=1), strict=False):
            decoded = decoded + stage.entries(decoded, entry[:, None])[:, 0]
        return decoded

    def _zeros(self, codes: Tensor) -> Tensor:
        return self.scale.new_zeros(len(codes), self.out.shape[2])

    def chosen_centroids(self, codes: Tensor) -> Tensor:
        """Return the centroids of the entries in codes, (n, stages) -> (n, stages, features)."""
        first = torch.arange(0, self.stages * self.size, self.size, device=codes.device)
        scaled = self.centroids * self.scale[:, None, None]
        return _rows(scaled.flatten(0, 1), codes.long() + first)

    @torch.no_grad()
    def search(self, x: Tensor, beams: int, preselected: int, last: int = 1) -> Tensor:
        """Return the codes of items by beam search, (n, features) -> (n, stages) integers.

        The network is evaluated in the precision of autocast, all else in that of the items. With a residual r, a
        centroid c and a correction h·out by the last hidden layer h,

            |r − c − h·out|² = |r − c|² + h·(h·out·outᵀ + 2 (c − r)·outᵀ)

        so that errors of candidates cost products of hidden units, and only chosen entries are made.

        Args:
            x: the items.
            beams: partial encodings that are kept for each item.
            preselected: entries of each stage that the network is evaluated for, for each beam: the nearest centroids.
            last: only every entry that divides by this is chosen in the last stage, which then has fewer bits.

        """
        precision = _autocast_dtype(x)
        decoded, codes = torch.zeros_like(x)[:, None], torch.zeros(len(x), 1, 0, dtype=torch.long, device=x.device)
        with torch.autocast(x.device.type, enabled=False):
            for number, stage in enumerate(self.weights()):
                step = last if number == self.stages - 1 else 1
                residual = x[:, None] - decoded  # (n, beams, features)
                centroids, out = stage.scale * stage.centroids, stage.scale * stage.out
                nearness = residual @ (2 * centroids[::step]).T - centroids[::step].square().sum(dim=1)
                nearest = nearness.topk(min(preselected, nearness.shape[2]), sorted=False)
                near = step * nearest.indices  # (n, beams, preselected)
                hidden = stage.to(precision).hidden(decoded.to(precision), near)  # (n · beams · preselected, units)
                gram, toward = (out @ out.T).to(precision), (2 * residual @ out.T).to(precision)
                slopes = _rows((2 * centroids @ out.T).to(precision), near) - toward[:, :, None]
                changes = slopes.flatten(0, 2).addmm_(hidden, gram).mul_(hidden).sum(dim=1, dtype=x.dtype)
                misses = residual.square().sum(dim=2, keepdim=True) - nearest.values  # of the centroids alone
                errors = (misses + changes.view_as(near)).flatten(1)
                best = errors.topk(min(beams, errors.shape[1]), largest=False).indices  # (n, beams)
                parent, entry = best // near.shape[2], near.flatten(1).gather(1, best)
                correction = _pick(hidden.view(*errors.shape, hidden.shape[1]), best).to(x.dtype) @ out
                decoded = _pick(decoded, parent) + _rows(centroids, entry) + correction
                codes = torch.cat([_pick(codes, parent), entry[:, :, None]], dim=2)
        return codes[:, 0]

    def settings(self) -> dict[str, Any]:
        """Return the arguments, beside `codebooks`, that rebuild the network."""
        return dict(self._settings)


def _autocast_dtype(x: Tensor) -> torch.dtype:
    """Return what autocast multiplies in on the device of x, or without it the dtype of x."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _normal(*shape: int) -> Tensor:
    """Return random weights that keep the variance of their inputs."""
    return torch.randn(*shape) / math.sqrt(shape[-2])


def _rows(table: Tensor, chosen: Tensor) -> Tensor:
    """Return rows of a table, (rows, features), (…) -> (…, features); unlike indexing, a CUDA graph can hold it."""
    rows: Tensor = table.index_select(0, chosen.flatten()).view(*chosen.shape, table.shape[1])
    return rows


def _pick(values: Tensor, places: Tensor) -> Tensor:
    """Return some values of each item, (n, many, features), (n, some) -> (n, some, features); copies whole rows."""
    n, many, features = values.shape
    first = torch.arange(0, n * many, many, device=values.device)[:, None]
    return _rows(values.reshape(n * many, features), first + places)
