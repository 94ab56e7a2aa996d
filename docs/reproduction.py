"""Rewrite the parts of docs/reproduction.md that come from docs/reproduction/*.json: score, reasons and tables.

    python docs/reproduction.py

A claim that differs or is inconclusive needs a reason in REASONS: without one the page is not written.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE, RESULTS = DOCS / "reproduction.md", DOCS / "reproduction"
LENGTHS = (16, 64, 256, 512, 1024)  # of the compression network
SHOWN = (1, 32, 128, 512)  # of the retrieval network
REASONS = {  # by the beginning of the claim; values are in the column beside it
    "depth grows as log(N/R) / H(β), codes of the retrieval network": "its bits depend on each other, which the paper "
    "neglects: made independent, they are on the line",
    "neighborhood sizes decay exponentially": "the first eight bits keep 0.69 of the images each, about as many as "
    "independent ones (0.68), the next 32 bits 0.82, since they depend on earlier ones",
    "each factor of 16 in R": "the bits to walk shift by a constant, but a neighborhood of 512 takes time to be "
    "returned; walking bit by bit, as the paper does, takes less at every factor",
    "semantic hashing with a radius above 2": "at 16 and 32 bits its ball has 697 and 5,489 codes, fewer than a scan "
    "of a million compares",
    "a linear scan costs O(KN)": "an item takes 0.7 ns besides its bits, as much as 71 of them, and a scan 0.06 ms "
    "besides its items: that sum is within 5 % of each of the 16 times (least squares), and O(KN) only in the limit",
    "with invariance, retrieval is better": "codes say less of the image the larger the weight: the MSE at 32 bits is "
    ".0335 without, and .0339, .0374, .0564 and .0595",
    "with invariance, similar examples": "no interval excludes 0. Thresholds are quantiles, so that a scale which all "
    "examples share changes no bit; it falls at the two small weights and rises at the two large ones",
    "images of 1024 bits": "one bit per unit wastes bits: real-valued units reach it, "
    "[ordered bit planes](concepts/ordered-bits.md) are better without a network",
    "OBD is below truncated": "it estimates the loss of a single bit, and many are removed: estimated anew in rounds, "
    "it is better; bits are more alike than real-valued units",
    "JPEG is above the ordered codes": "its smallest file is nearly all headers, which are left out here",
    "digits: unsupervised codes": "digits are easy: votes of the nearest items by pixels are as good (98.0 %), so that "
    "labels have nothing to add; on CIFAR-10 it holds",
    "boundaries are orthogonal": "training has not converged. The claim follows from the loss for a quantizer that "
    "splits every cell on its own; the network has one function per bit for all cells",
}

Result = dict[str, Any]


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(written(PAGE.read_text()))


def written(page: str) -> str:
    """Return the page with all generated parts, each between two comments with its name."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    parts = {"score": score, "differs": differing, "recipes": recipes, "network": network, "compression": compression}
    for name, make in parts.items():
        begin, end = f"<!-- {name}, by docs/reproduction.py -->", f"<!-- end of {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise SystemExit(f"{PAGE} must have {begin} and {end} once each")
        head, _, tail = page.partition(begin)
        page = f"{head}{begin}\n\n{make(results)}\n\n{end}{tail.partition(end)[2]}"
    return page


def claims(results: dict[str, Result], verdict: str) -> list[dict[str, Any]]:
    """Return the claims of the paper with a verdict."""
    every = [finding for result in results.values() for finding in result["findings"]]
    return [finding for finding in every if finding["of"] == "paper" and finding["verdict"] == verdict]


def score(results: dict[str, Result]) -> str:
    """Return where the results come from, and how many claims of the paper have which verdict."""
    sources = Counter((result["commit"], result["machine"]) for result in results.values())
    text = " ".join(
        f"{count} experiments are of commit {commit[:7]}, run on {machine.replace('x86_64, ', '')}."
        for (commit, machine), count in sources.most_common()
    )
    holds, differ, opened = (len(claims(results, verdict)) for verdict in ("holds", "differs", "inconclusive"))
    ours = Counter(
        finding["verdict"] for result in results.values() for finding in result["findings"] if finding["of"] == "ours"
    )
    return (
        f"{text}\n**{holds} claims of the paper hold, {differ} differ, {opened} are inconclusive.** Of our own checks "
        f"{ours['holds']} hold,\n{ours['differs']} differ and {ours['inconclusive']} are inconclusive."
    )


def differing(results: dict[str, Result]) -> str:
    """Return the table of claims that differ or are inconclusive, with their reasons."""
    rows = [
        (finding["claim"], finding["where"], finding["ours"], verdict, reason(finding["claim"]))
        for verdict in ("differs", "inconclusive")
        for finding in claims(results, verdict)
    ]
    return table(["claim", "in the paper", "here", "verdict", "why"], rows)


def reason(claim: str) -> str:
    """Return the reason for a verdict."""
    found = [text for start, text in REASONS.items() if claim.startswith(start)]
    if not found:
        raise SystemExit(f"the claim {claim!r} does not hold: give its reason in REASONS")
    return found[0]


def recipes(results: dict[str, Result]) -> str:
    """Return the table of the search, the worst recipe first."""
    found = results["neighborhoods"]["numbers"]["recipes"]
    rows = sorted(found.items(), key=lambda item: -item[1]["errors"][-1])
    return table(
        ["recipe, 16 million examples", f"MSE at {' / '.join(map(str, SHOWN))} bits", "recall, R = 32"],
        [
            (name, values(one["errors"][length.bit_length() - 1] for length in SHOWN), f"{one['recall'][1]:.3f}")
            for name, one in rows
        ],
    )


def network(results: dict[str, Result]) -> str:
    """Return the table of the retrieval network at the full budget."""
    rows = []
    for name, one in results["neighborhoods"]["numbers"]["training"].items():
        own = one.get("own errors")
        last = [one["errors"][1][length.bit_length() - 1] for length in (*SHOWN[:-1], 256, 512)]
        rows.append((name, values(last), values([own[1][-1]]) if own else "", values(one["recall"], digits=3)))
    lengths = " / ".join(map(str, (*SHOWN[:-1], 256, 512)))
    return table(
        ["159 million examples", f"MSE at {lengths} bits", "at 512, its own decoder", "recall, R = 2 / 32 / 512"], rows
    )


def compression(results: dict[str, Result]) -> str:
    """Return the table of the compression network, means over seeds."""
    networks = results["rates"]["numbers"]["networks"]
    kinds = [name for name in next(iter(networks.values()))[0] if name.startswith(("nested", "OBD", "truncated"))]

    def cell(kind: str, runs: list[dict[str, Any]]) -> str:
        return values(sum(run[kind][length] for run in runs) / len(runs) for length in LENGTHS)

    return table(
        [f"MSE at {' / '.join(map(str, LENGTHS))}", *networks],
        [(kind, *(cell(kind, runs) for runs in networks.values())) for kind in kinds],
    )


def values(numbers: Any, digits: int = 4) -> str:
    """Write numbers below 1 without their zero.

    >>> values([0.0123, 0.5])
    '.0123 / .5000'
    """
    return " / ".join(f"{number:.{digits}f}".removeprefix("0") for number in numbers)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    first, *others = ("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (headers, *rows))
    return "\n".join([first, "|" + "---|" * len(headers), *others])


if __name__ == "__main__":
    main()
