"""The first table of the search benchmark: recall by bits, when every code is compared."""

import argparse
import sys
import time

import numpy as np

import nestcode as nc
from _report import show
from _search_codes import PEERS, Answer, principal_directions, reduce, sign_bits
from _search_task import NEAREST, Budget, Row, Task, first, read_task, wanted
from nestcode.coders.refined import MLP
from nestcode.search import asymmetric_distances
from nestcode.training import Training

ITEMS = 50_000  # where no number is given
Answers = dict[int, Answer | None]  # by length


def recall_by_bits(options: argparse.Namespace) -> list[Row]:
    """Measure, print, and return what is saved."""
    task = read_task(options, 300 if options.quick else options.base or ITEMS)
    lengths = (8, 16, 80) if options.quick else (64, 128, 256) if options.short else (64, 128, 256, 512)
    answers = ours(task, lengths, options)
    principal = principal_directions(task.base)
    if wanted("sign bits", options):
        answers["sign bits"] = sign_bits(task, principal, lengths)
    reduced = reduce(task, principal)
    for name in PEERS:
        if wanted(name, options):
            answers[name] = trained_anew(name, reduced, lengths, options.limit)
    show(
        f"Recall@{NEAREST} by bits, every code compared: {task}",
        [table_row(name, by_length, lengths) for name, by_length in answers.items()],
        "Seconds: of all lengths together, on all cores; ours and sign bits are fitted and encoded once.\n"
        f"–: the method has no code of this size, or would have taken over {options.limit:g} s by then.\n"
        "ITQ and sign bits compare bits with bits; all others real queries with codes. RaBitQ, EDEN: the best bits a "
        "number and number of\nprincipal directions that fit, their factors counted.",
    )
    return [
        {"data": task.name, "method": name, "bits": length, **vars(answer)}
        for name, by_length in answers.items()
        for length, answer in by_length.items()
        if answer is not None
    ]


def table_row(name: str, by_length: Answers, lengths: tuple[int, ...]) -> Row:
    """A method's recall at each length, and its seconds."""
    answers = {length: by_length.get(length) for length in lengths}
    row: Row = {"method": name}
    row |= {f"{length} bits": f"{answer.recall:.3f}" if answer else "–" for length, answer in answers.items()}
    row["fit s"] = f"{sum(answer.fit for answer in answers.values() if answer):.1f}"
    row["encode s"] = f"{sum(answer.encode for answer in answers.values() if answer):.1f}"
    return row


def ours(task: Task, lengths: tuple[int, ...], options: argparse.Namespace) -> dict[str, Answers]:
    """Both coders, one of them as nestcode.fit chooses it, and its bits decoded by a network: read at every length."""
    width, metric = lengths[-1], task.metric
    start = time.perf_counter()
    if options.beams is None:
        chosen = nc.fit(task.base, width, metric)
        name = f"{type(chosen).__name__} (nestcode.fit)"
    else:
        chosen = nc.ResidualCoder(width, metric, beams=options.beams).fit(task.base)
        name = f"ResidualCoder, {options.beams} beams"
    seconds = time.perf_counter() - start
    encoded = encode(task, chosen)
    answers = {name: read_prefixes(task, chosen, encoded, seconds, lengths)}
    other: nc.LinearCoder | nc.ResidualCoder = (
        nc.ResidualCoder(width, metric) if isinstance(chosen, nc.LinearCoder) else nc.LinearCoder(width, metric)
    )
    start = time.perf_counter()
    other.fit(task.base)
    seconds = time.perf_counter() - start
    answers[type(other).__name__] = read_prefixes(task, other, encode(task, other), seconds, lengths)
    if options.deep is not None:
        training = Training(
            steps=options.deep, batch_size=options.deep_batch, learning_rate=options.deep_rate, holdout=0.01
        )
        channels = options.deep_channels
        network = None if channels is None else MLP(channels[0], len(channels))
        coder = nc.RefinedCoder(chosen, network, training=training)
        start = time.perf_counter()
        coder.fit(task.base)
        seconds = time.perf_counter() - start
        answers[f"RefinedCoder, the bits of {name}"] = read_prefixes(task, coder, encoded, seconds, lengths)
    return answers


def encode(task: Task, coder: nc.LinearCoder | nc.ResidualCoder) -> tuple[nc.Codes, float]:
    """The codes of all items, and the seconds they took."""
    start = time.perf_counter()
    return coder.encode(task.base), time.perf_counter() - start


def read_prefixes(
    task: Task,
    coder: nc.LinearCoder | nc.ResidualCoder | nc.RefinedCoder,
    encoded: tuple[nc.Codes, float],
    fit: float,
    lengths: tuple[int, ...],
) -> Answers:
    """One fitted coder at every length; the seconds are counted once, at the largest."""
    codes, seconds = encoded
    answers: Answers = {}
    for length in lengths:
        parts = (task.queries[i : i + 256] for i in range(0, len(task.queries), 256))
        found = [first(asymmetric_distances(coder, part, codes.prefix(length))) for part in parts]
        last = length == lengths[-1]
        answers[length] = Answer(task.recall(np.concatenate(found)), fit if last else 0.0, seconds if last else 0.0)
        print(f"{coder}, {length} bits: {answers[length]}", file=sys.stderr, flush=True)
    return answers


def trained_anew(name: str, task: Task, lengths: tuple[int, ...], limit: float) -> Answers:
    """A peer at every length, until the next one would take too long."""
    answers: Answers = {}
    budget = Budget(limit, growth=3)  # twice the bits take two to four times as long
    for length in lengths:
        if not budget.allows():
            break
        answers[length] = PEERS[name](task, length)
        print(f"{name}, {length} bits: {answers[length]}", file=sys.stderr, flush=True)  # it takes minutes
    return answers
