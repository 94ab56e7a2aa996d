"""Losses of embeddings that are compared with each other: contrastive, and distillation of long prefixes into short.

Both losses compare all examples of a batch, so `NestedLoss` wraps them with `together=True`: one length for all
examples. It passes them the length, because similarities of short prefixes spread more and need another temperature.

    NestedLoss(InfoNCE(), LogUniform(), together=True)(views)                  # (2, n, width): queries, positives
    NestedLoss(PrefixDistillation(), LogUniform(), together=True)(code, teacher)

`NestedRankingLoss` is the first one for models of sentence-transformers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nestcode.arrays import check_int, is_number, shown
from nestcode.errors import InvalidInput
from nestcode.lengths import Full, Lengths, LogUniform, Mixture
from nestcode.nn.dropout import check_factor
from nestcode.nn.losses import NestedLoss
from nestcode.nn.sampling import LengthSchedule

LEAST_TEMPERATURE = 0.01  # as in CLIP: a learned one does not fall further


class Temperature(nn.Module):
    """A temperature for each length: set at some lengths, and log-linear in the logarithm of the length between them.

    >>> temperature = Temperature({1: 0.4, 16: 0.1}, learned=False)
    >>> [round(float(temperature(length)), 3) for length in (1, 4, 16, 64)]
    [0.4, 0.2, 0.1, 0.1]

    Args:
        at: the temperature at each of a few lengths; beyond them it is constant.
        learned: train the temperatures with the model.

    """

    places: Tensor  # (given,): logarithms of the lengths

    def __init__(self, at: Mapping[int, float], learned: bool = True) -> None:
        super().__init__()
        if not at or not all(is_number(value) and value > 0 for value in at.values()):
            raise InvalidInput(f"at must give temperatures above 0 by length, got {shown(at)}: for example {{1: 0.1}}")
        given = sorted((check_int(length, "a length", least=1), float(value)) for length, value in at.items())
        self.register_buffer("places", torch.tensor([float(length) for length, _ in given]).log())
        self.logarithms = nn.Parameter(torch.tensor([value for _, value in given]).log(), requires_grad=learned)

    def forward(self, length: Tensor | int) -> Tensor:
        """Return the temperature of a length, () -> ()."""
        place = torch.as_tensor(
            check_factor(length, "length", above=0), dtype=torch.float32, device=self.places.device
        ).log()
        after = torch.searchsorted(self.places, place).clamp(max=len(self.places) - 1)
        before = (after - 1).clamp(min=0)
        low, high = self.places.take(before), self.places.take(after)  # an index would be a number to torch.compile
        share = ((place - low) / (high - low).clamp(min=torch.finfo(torch.float32).tiny)).clamp(0, 1)
        found = torch.lerp(self.logarithms.take(before), self.logarithms.take(after), share)
        return found.exp().clamp(min=LEAST_TEMPERATURE)


class InfoNCE(nn.Module):
    """The contrastive loss: among all positives and negatives of a batch, a query should find its own positive.

    >>> queries = torch.eye(3)
    >>> round(float(InfoNCE(temperature=0.1)(torch.stack([queries, queries]))), 4)
    0.0001

    With cosine similarity it is the `MultipleNegativesRankingLoss` of sentence-transformers, and InfoNCE of SimCSE.

    Args:
        temperature: similarities are divided by it; a `Temperature` has one for each length.

    """

    takes_length = True

    def __init__(self, temperature: float | Temperature = 0.05) -> None:
        super().__init__()
        self.temperature = _check_temperature(temperature)

    def forward(self, views: Tensor, length: Tensor | int | None = None) -> Tensor:
        """Return the loss of queries, their positives, and optional hard negatives: (2 or more, n, width) -> ()."""
        if views.ndim != 3 or len(views) < 2:
            raise InvalidInput(
                "views must be (2 or more, n, width): queries, positives, negatives, got shape "
                f"{tuple(views.shape)}: torch.stack them"
            )
        views = functional.normalize(views, dim=2)
        logits = views[0] @ views[1:].flatten(0, 1).T / _at(self.temperature, length, views.shape[2])
        return functional.cross_entropy(logits, torch.arange(views.shape[1], device=views.device))


class PrefixDistillation(nn.Module):
    """Distillation of neighbors: trains codes to have the teacher's similarities within a batch.

    >>> code = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    >>> distill = PrefixDistillation()
    >>> round(abs(float(distill(code, code))), 4), bool(distill(code[:, :2], code) > 0.1)
    (0.0, True)

    If the teacher is the code itself at full width, long prefixes teach short prefixes. The loss is the mean
    Kullback-Leibler divergence between the softmaxes of each example's cosine similarities to the other examples. The
    teacher gets no gradient.

    Args:
        temperature: the temperature of the code's softmax; a `Temperature` depends on the length.
        teacher_temperature: the temperature of the teacher's softmax; a lower temperature gives near examples more
            weight.

    """

    takes_length = True

    def __init__(self, temperature: float | Temperature = 0.05, teacher_temperature: float = 0.05) -> None:
        super().__init__()
        self.temperature = _check_temperature(temperature)
        self.teacher_temperature = _check_temperature(teacher_temperature)

    def forward(self, code: Tensor, teacher: Tensor, length: Tensor | int | None = None) -> Tensor:
        """Return the divergence, (n, width), (n, features) -> ()."""
        if code.ndim != 2 or teacher.ndim != 2 or len(code) != len(teacher) or len(code) < 3:
            raise InvalidInput(
                "code and teacher must be (n, width) and (n, features) of the same 3 or more examples, got shapes "
                f"{tuple(code.shape)} and {tuple(teacher.shape)}"
            )
        wanted = _log_neighbors(teacher.detach(), _at(self.teacher_temperature, None, teacher.shape[1]))
        found = _log_neighbors(code, _at(self.temperature, length, code.shape[1]))
        return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)


class NestedRankingLoss(nn.Module):
    """The ranking loss of sentence-transformers over random prefixes, for its trainer.

    >>> class Model(nn.Module):                                    # in place of a SentenceTransformer
    ...     def forward(self, features):
    ...         return {"sentence_embedding": features["input_ids"].float()}
    >>> loss = NestedRankingLoss(Model())
    >>> texts = {"input_ids": torch.eye(4)}
    >>> bool(loss([texts, texts], None) > 0)
    True

    The columns of the data are anchors, positives and optionally hard negatives, as for `MultipleNegativesRankingLoss`.
    With fixed lengths and `draws=None` the loss is the mean over these lengths; sentence-transformers' `MatryoshkaLoss`
    is their sum.

    Args:
        model: a `SentenceTransformer`.
        lengths: the distribution of the kept dimensions; by default a quarter of the draws keep everything, and the
            rest are log-uniform.
        temperature: the temperature, as in `InfoNCE`; 0.05 is the scale 20 of sentence-transformers.
        draws: lengths of each step, or None for every length with support.

    """

    def __init__(
        self,
        model: nn.Module,
        lengths: Lengths | LengthSchedule | None = None,
        *,
        temperature: float | Temperature = 0.05,
        draws: int | None = 4,
    ) -> None:
        super().__init__()
        self.model = model
        lengths = Mixture([Full(), LogUniform()], [1, 3]) if lengths is None else lengths
        self.nested = NestedLoss(InfoNCE(temperature), lengths, draws=draws, together=True)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Any = None) -> Tensor:  # noqa: ARG002
        """Return the loss of tokenized columns; the labels, which this loss has no use for, are the trainer's."""
        columns = [self.model(features)["sentence_embedding"] for features in sentence_features]
        loss: Tensor = self.nested(torch.stack(columns))
        return loss


def _log_neighbors(rows: Tensor, temperature: Tensor | float) -> Tensor:
    """Return the log-softmax of the cosine similarities to the other rows, (n, width) -> (n, n - 1)."""
    n = len(rows)
    rows = functional.normalize(rows, dim=1)
    similarity = rows @ rows.T / temperature
    others = similarity.flatten()[1:].view(n - 1, n + 1)[:, :-1]  # without the diagonal
    return functional.log_softmax(others.reshape(n, n - 1).float(), dim=1)


def _at(temperature: nn.Module | float, length: Tensor | int | None, width: int) -> Tensor | float:
    """Return the temperature of a length, of the whole width by default."""
    if isinstance(length, Tensor) and length.ndim:
        raise InvalidInput(
            f"examples are compared with each other, so all need one length, got {len(length)}: "
            "wrap the loss in NestedLoss(…, together=True)"
        )
    if not isinstance(temperature, nn.Module):
        return temperature
    found: Tensor = temperature(width if length is None else length)
    return found


def _check_temperature(temperature: float | Temperature) -> float | Temperature:
    if not isinstance(temperature, Temperature) and not (is_number(temperature) and temperature > 0):
        raise InvalidInput(f"temperature must be above 0, or a Temperature, got {shown(temperature)}")
    return temperature
