"""The cost of the exact expected loss relative to a plain squared error, forward and backward.

Both steps take the same codes, weight and targets. The plain loss decodes whole codes; the exact one averages over all
lengths.
"""

import torch

from _report import arguments, save, seconds_each, show
from nestcode.lengths import LogUniform
from nestcode.nn import expected_loss


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    torch.set_num_threads(1)
    sizes = [(50, 60, 40)] if options.quick else [(1000, 3072, 256), (1000, 3072, 1024)]
    rows = [measure(*size, rounds=5) for size in sizes]
    show("Forward and backward, one thread: ms", rows, "x: exact over plain; best of 5 rounds.")
    save(options.json, rows, ["nestcode", "torch"])


def measure(n: int, features: int, width: int, rounds: int) -> dict[str, float | int]:
    """Measure one size with batches of n."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(n, features, generator=generator)
    code = torch.randn(n, width, generator=generator).requires_grad_()
    weight = torch.randn(features, width, generator=generator).requires_grad_()
    lengths = LogUniform()

    def step(loss: torch.Tensor) -> None:
        code.grad = weight.grad = None
        loss.backward()

    best = seconds_each(
        {
            "plain": lambda: step((target - code @ weight.T).square().sum() / n),
            "exact": lambda: step(expected_loss(code, weight, target, lengths)),
        },
        rounds,
    )
    return {
        "batch": n,
        "features": features,
        "width": width,
        "plain": 1e3 * best["plain"],
        "exact": 1e3 * best["exact"],
        "x": best["exact"] / best["plain"],
    }


if __name__ == "__main__":
    main()
