"""Ablations of the techniques in section 4 of the paper: each with and without, as a table and a figure.

    noise        input corruption and dropout       test MSE by length
    sweep        unit sweeping                      filters, and test MSE by length
    passes       unit sweeping, by gradient         test MSE by length
    hidden       unit sweeping, deep and tied       test MSE by length, with hidden layers frozen or not
    refit        refit of a linear decoder          test MSE by length
    searches     line searches on bits              share of strong Wolfe searches, test MSE by length
    penalty      adaptive regularization            ratio of gradients by unit
    invariance   invariance penalty                 share of bits that noise flips
    bits         quantile thresholds                share of ones per bit
    growth       growing width                      test MSE by length, stage by stage
    nesting      groups and trees of units          kept subsets and their MSE

Data: digits and patches of the sample images; a few minutes on two cores. --figures DIR writes the figures of
docs/techniques.md.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import _technique_bits
import _technique_growth
import _technique_hidden
import _technique_invariance
import _technique_nesting
import _technique_noise
import _technique_passes
import _technique_penalty
import _technique_refit
import _technique_searches
import _technique_sweep
from _report import save, show

Rows = list[dict[str, Any]]
TECHNIQUES: dict[str, Callable[[bool], tuple[Rows, Figure]]] = {
    "noise": _technique_noise.measure,
    "sweep": _technique_sweep.measure,
    "passes": _technique_passes.measure,
    "hidden": _technique_hidden.measure,
    "refit": _technique_refit.measure,
    "searches": _technique_searches.measure,
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
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write the figures to this folder")
    options = parser.parse_args()
    unknown = set(options.names) - set(TECHNIQUES)
    if unknown:
        parser.error(f"techniques must be among {', '.join(TECHNIQUES)}, got {', '.join(sorted(unknown))}")
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
