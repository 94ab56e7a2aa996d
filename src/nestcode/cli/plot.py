"""A bar chart for the terminal: expected error by prefix length."""

from collections.abc import Mapping

BLOCKS = " ▏▎▍▌▋▊▉█"


def some_lengths(width: int) -> list[int]:
    """Return the lengths to show: 0, the width, and the width halved up to eight times.

    >>> some_lengths(100)
    [0, 1, 3, 6, 12, 25, 50, 100]
    """
    return sorted({0, *(width >> halved for halved in range(9))})


def plot_errors(errors: Mapping[int, float], columns: int = 40) -> str:
    """Return a bar chart of errors by length.

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
