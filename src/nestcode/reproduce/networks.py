"""What a full report trains and fits, piece by piece: `nestcode reproduce networks --full --states DIR`.

Each piece takes less than ten minutes of a GPU. Its networks and measurements go to the folder of states, which can be
carried from one machine to another: `nestcode reproduce all --full --states DIR` then draws the report from them
without training. An interrupted piece continues from its checkpoint.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from nestcode.errors import InvalidInput
from nestcode.reproduce.filters import experiment as filters
from nestcode.reproduce.knn import experiment as knn
from nestcode.reproduce.lab import Lab
from nestcode.reproduce.lab.compression import READINGS, Reading, compression, compression_images, reading_seeds
from nestcode.reproduce.lab.recipes import RECIPES
from nestcode.reproduce.lab.retrieval import METHODS, recipe_outcome, retrieval
from nestcode.reproduce.pinwheel import experiment as pinwheel
from nestcode.reproduce.rates import experiment as rates
from nestcode.reproduce.regularization import measures
from nestcode.reproduce.regularization.design import CELLS
from nestcode.reproduce.regularization.experiment import penalties, table_seeds


@dataclass(frozen=True)
class Piece:
    """A part of the training that is done at a time."""

    name: str
    run: Callable[[], object]


def pieces(lab: Lab) -> list[Piece]:
    """Return all pieces, the most important first."""
    first, *others = lab.seeds
    recipes = RECIPES if lab.scale == "full" else ()
    made = [Piece(f"recipe-{place:02}", partial(recipe_outcome, lab, recipe)) for place, recipe in enumerate(recipes)]
    made += [Piece(f"retrieval-{by}-{first}", partial(retrieval, lab, by, first)) for by in METHODS]
    made += [Piece(f"retrieval-adam-{seed}", partial(retrieval, lab, "adam", seed)) for seed in others]
    made += [
        Piece(f"compression-{reading}-{seed}", partial(_compress, lab, reading, seed))
        for reading in READINGS
        for seed in reading_seeds(lab, reading)
    ]
    made += [Piece(f"penalties-{seed}", partial(_fill_penalties, lab, seed)) for seed in lab.seeds]
    made += [Piece(f"table-{seed}", partial(_fill_table, lab, seed)) for seed in table_seeds(lab)]
    made += [Piece(f"filters-{seed}", partial(filters.train_seed, lab, seed)) for seed in lab.seeds]
    made += [Piece(f"knn-{seed}", partial(knn.train_seed, lab, seed)) for seed in lab.seeds]
    made += [Piece(f"pinwheel-{seed:02}", partial(pinwheel.train_seed, lab, seed)) for seed in pinwheel.restarts(lab)]
    return [*made, Piece("codecs", partial(_fill_codecs, lab))]


def train_networks(lab: Lab, wanted: Sequence[str] = (), deadline: float | None = None) -> bool:
    """Train all pieces, or those whose names begin with one of `wanted`; return whether all of these are done.

    Args:
        lab: settings; its states keep the networks.
        wanted: beginnings of names.
        deadline: seconds from now after which the piece at work is interrupted at its checkpoint.

    """
    every = pieces(lab)
    unknown = [name for name in wanted if not any(piece.name.startswith(name) for piece in every)]
    if unknown:
        names = ", ".join(piece.name for piece in every)
        raise InvalidInput(f"a piece must be one of {names}, or the beginning of one, got {unknown[0]!r}")
    chosen = [piece for piece in every if not wanted or piece.name.startswith(tuple(wanted))]
    with _interrupted_after(deadline) as timer:
        for number, piece in enumerate(chosen, start=1):
            start = time.perf_counter()
            try:
                piece.run()
            except (KeyboardInterrupt, RuntimeError):  # CUDA reports an interrupted graph capture as its own error
                if timer is None or timer.is_alive():
                    raise
                lab.console.print(f"deadline: {piece.name} is not done; the same command continues", highlight=False)
                return False
            minutes = (time.perf_counter() - start) / 60
            lab.console.print(f"{number}/{len(chosen)} {piece.name}: {minutes:.2f} minutes", highlight=False)
    return True


@contextmanager
def _interrupted_after(seconds: float | None) -> Iterator[threading.Timer | None]:
    """Interrupt the block as Ctrl-C does, unless it ends before: training then writes its checkpoint."""
    if seconds is None:
        yield None
        return
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def _compress(lab: Lab, reading: Reading, seed: int) -> None:
    compression(lab, compression_images(lab), reading, seed)


def _fill_codecs(lab: Lab) -> None:
    """Fit our coders, and measure them and the codecs."""
    images = compression_images(lab)
    rates.others(lab, images)
    rates.sign_curve(lab, images)


def _fill_penalties(lab: Lab, seed: int) -> None:
    task = measures.make_task(lab)
    for penalty in penalties().values():
        measures.train_and_measure(lab, task, seed, penalty=penalty)


def _fill_table(lab: Lab, seed: int) -> None:
    task = measures.make_task(lab)
    for cell in CELLS:
        measures.measure_cell(lab, task, cell, seed)
