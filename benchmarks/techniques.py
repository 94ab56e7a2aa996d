"""What each technique of section 4 of the paper does, in numbers and pictures: with it and without it.

    noise        corrupted inputs and ordinary dropout      error of unseen items by length
    sweep        unit sweeping                              filters, and what late units gain
    penalty      adaptive regularization                    the ratio of gradients by unit
    invariance   the invariance penalty                     how many bits noise flips
    bits         thresholds at quantiles                    how often each bit is 1
    growth       growing width                              error by length, stage by stage
    nesting      groups and trees of units                  which units are kept together

Data are digits and patches of two photographs; all of it takes some minutes on two cores. --figures DIR writes the
pictures that docs/techniques.md shows.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import _technique_bits
import _technique_growth
import _technique_invariance
import _technique_nesting
import _technique_noise
import _technique_penalty
import _technique_sweep
from _report import save, show

Rows = list[dict[str, Any]]
TECHNIQUES: dict[str, Callable[[bool], tuple[Rows, Figure]]] = {
    "noise": _technique_noise.measure,
    "sweep": _technique_sweep.measure,
    "penalty": _technique_penalty.measure,
    "invariance": _technique_invariance.measure,
    "bits": _technique_bits.measure,
    "growth": _technique_growth.measure,
    "nesting": _technique_nesting.measure,
}


def main() -> None:
    """Measure, print, draw and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which techniques (all)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="also draw the pictures there")
    options = parser.parse_args()
    unknown = set(options.names) - set(TECHNIQUES)
    if unknown:
        parser.error(f"techniques are {', '.join(TECHNIQUES)}, got {', '.join(sorted(unknown))}")
    saved: Rows = []
    for name in options.names or TECHNIQUES:
        rows, figure = TECHNIQUES[name](options.quick)
        show(name, rows, "")
        saved += [{"technique": name, **row} for row in rows]
        if options.figures is not None:
            options.figures.mkdir(parents=True, exist_ok=True)
            figure.savefig(options.figures / f"{name}.png", dpi=110, bbox_inches="tight")
    save(options.json, saved, ["nestcode", "torch"])


if __name__ == "__main__":
    main()
