"""A plot for the terminal: the error to expect by length."""

from collections.abc import Mapping

BLOCKS = " ▏▎▍▌▋▊▉█"


def some_lengths(width: int) -> list[int]:
    """Lengths to show: 0, and the width halved a few times.

    >>> some_lengths(100)
    [0, 1, 3, 6, 12, 25, 50, 100]
    """
    return sorted({0, *(width >> halved for halved in range(9))})


def plot_errors(errors: Mapping[int, float], columns: int = 40) -> str:
    """Errors by length as bars.

    >>> print(plot_errors({0: 1.0, 8: 0.53}, columns=4))
    bits  expected error
       0  ████ 1
       8  ██▏  0.53
    """
    most = max(errors.values()) or 1.0
    lines = ["bits  expected error"]
    for length, error in errors.items():
        whole, part = divmod(round(8 * columns * max(error, 0.0) / most), 8)
        bar = (BLOCKS[8] * whole + BLOCKS[part]).rstrip().ljust(columns)
        lines.append(f"{length:>4}  {bar} {error:.4g}")
    return "\n".join(lines)
