"""Conjugate gradients against L-BFGS and Adam: loss by number of loss and gradient evaluations, on digits.

exact: a sigmoid encoder and a linear decoder, the exact expected loss of all data.
sampled: a deep autoencoder, batches of a third of the data. Each step samples a batch and its lengths and holds them
fixed during its line searches. The reported loss is the exact one of all data; its evaluations do not count.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from _report import arguments, save, show
from nestcode.data import digits
from nestcode.lengths import LogUniform
from nestcode.nn import NestedLoss, expected_loss, keep_prefix, sample_lengths
from nestcode.training.conjugate_gradient import ConjugateGradient

WIDTH, LENGTHS = 32, LogUniform()
SHOWN = (50, 100, 200, 500)
GRID = range(0, SHOWN[-1] + 1, 10)

Loss = Callable[[], Tensor]
Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Method:
    """An optimizer and its line in the figure (Okabe–Ito colors, which are safe for color blindness)."""

    make: Make
    color: str
    line: str = "-"


METHODS = {
    "conjugate gradients, 10 searches per step": Method(lambda p: ConjugateGradient(p, searches=10), "#D55E00"),
    "conjugate gradients, 1 search per step": Method(ConjugateGradient, "#D55E00", "--"),
    "L-BFGS, 10 searches per step": Method(
        lambda p: torch.optim.LBFGS(p, max_iter=10, line_search_fn="strong_wolfe"), "#0072B2"
    ),
    "Adam, learning rate 0.03": Method(lambda p: torch.optim.Adam(p, lr=0.03), "#000000"),
    "Adam, learning rate 0.01": Method(lambda p: torch.optim.Adam(p, lr=0.01), "#000000", "--"),
    "Adam, learning rate 0.001": Method(lambda p: torch.optim.Adam(p, lr=0.001), "#000000", ":"),
}


class Exact(nn.Module):
    """Every step minimizes the same function."""

    def __init__(self, X: Tensor, generator: torch.Generator) -> None:  # noqa: ARG002
        super().__init__()
        self.encoder, self.decoder = nn.Linear(X.shape[1], WIDTH), nn.Linear(WIDTH, X.shape[1])
        self.X = X

    def whole(self) -> Tensor:
        """Return the reported loss."""
        code = torch.sigmoid(self.encoder(self.X))
        return expected_loss(code, self.decoder.weight, self.X, LENGTHS, self.decoder.bias)

    def draw(self) -> Loss:
        """Return the loss of one step."""
        return self.whole


class Sampled(nn.Module):
    """Every step samples a batch and its lengths."""

    def __init__(self, X: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        features, hidden = X.shape[1], 64
        self.encoder = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, WIDTH))
        self.decoder = nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, features))
        self.X, self.generator = X, generator

    def whole(self) -> Tensor:
        """Return the reported loss."""
        loss: Tensor = NestedLoss(self.error, LENGTHS, draws=None)(self.encoder(self.X), self.X)
        return loss

    def draw(self) -> Loss:
        """Return the loss of one step with its sampled batch and lengths fixed."""
        n = len(self.X) // 3
        rows = self.X[torch.randperm(len(self.X), generator=self.generator)[:n]]
        kept = sample_lengths(LENGTHS, n, WIDTH, generator=self.generator)
        return lambda: self.error(keep_prefix(self.encoder(rows), kept), rows)

    def error(self, code: Tensor, target: Tensor) -> Tensor:
        """Return the squared error, summed over features and averaged over the batch."""
        loss: Tensor = (self.decoder(code) - target).square().sum() / len(target)
        return loss


TITLES = {"exact": "Exact expected loss, all data", "sampled": "Deep, sampled lengths and batches"}
TASKS: dict[str, type[Exact | Sampled]] = {"exact": Exact, "sampled": Sampled}


def main() -> None:
    """Measure, print, draw and save."""
    options = arguments(__doc__)
    torch.set_num_threads(1)
    X = torch.from_numpy(digits()[0])[: 150 if options.quick else None]
    grid, shown, seeds = (range(0, 41, 10), (20, 40), 1) if options.quick else (GRID, SHOWN, 3)
    curves = {
        (task, name): torch.tensor([curve(task, method, X, seed, grid) for seed in range(seeds)]).mean(dim=0).tolist()
        for task in TASKS
        for name, method in METHODS.items()
    }
    rows = [
        {"task": task, "method": name} | {str(n): losses[grid.index(n)] for n in shown}
        for (task, name), losses in curves.items()
    ]
    show("Loss by number of evaluations", rows, f"Mean of {seeds} seeds. A step counts when it has ended.")
    save(options.json, rows, ["nestcode", "torch"])
    if options.figure is not None:
        draw(curves, grid).savefig(options.figure, dpi=150)


def curve(task: str, method: Method, X: Tensor, seed: int, grid: range) -> list[float]:
    """Return the loss of all data after each number of evaluations in the grid."""
    torch.manual_seed(seed)
    model = TASKS[task](X - X.mean(dim=0), torch.Generator().manual_seed(seed))
    optimizer = method.make(model.parameters())
    spent, seen, losses = 0, [0], [model.whole().item()]
    while spent < grid[-1]:
        begun, loss = spent, model.draw()

        def closure(loss: Loss = loss) -> Tensor:
            nonlocal spent
            spent += 1
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        optimizer.step(closure)  # type: ignore[arg-type]
        if spent - begun > 1 or spent in grid:  # Adam's steps between grid points are not evaluated
            seen.append(spent)
            with torch.no_grad():
                losses.append(model.whole().item())
    return [losses[bisect_right(seen, n) - 1] for n in grid]


def draw(curves: dict[tuple[str, str], list[float]], grid: range) -> Figure:
    """Return a figure with one panel per task."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels: Any = figure.subplots(1, len(TASKS))
    for axes, task in zip(panels, TASKS, strict=True):
        for name, method in METHODS.items():
            losses = curves[task, name]
            axes.plot(grid, losses, color=method.color, linestyle=method.line, linewidth=2, label=name)
        axes.set(title=TITLES[task], xlabel="evaluations of loss and gradient", ylabel="expected squared error")
        lowest = min(min(curves[task, name]) for name in METHODS)
        axes.set(ylim=(0.97 * lowest, 1.4 * lowest), xlim=(0, grid[-1]))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    main()
