"""Pieces of training end at a deadline, continue from their checkpoint, and are carried in a folder."""

import io
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.reproduce import Lab, networks
from nestcode.reproduce.lab.networks import trained_network
from nestcode.reproduce.networks import Piece, pieces, train_networks
from nestcode.training import Training
from nestcode.training.presets import Preset

ROWS = np.random.default_rng(0).integers(256, size=(60, 12), dtype=np.uint8)
PRESET = Preset(width=8, training=Training(steps=100, batch_size=20, device="cpu", holdout=0.0))


def lab_of(folder: Path, **settings: object) -> Lab:
    return replace(Lab(folder, scale="toy", seeds=(0, 1), console=Console(file=io.StringIO())), **settings)  # type: ignore[arg-type]


class Interrupt(nn.Module):
    """Interrupts training at its 50th batch, as a deadline does."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def forward(self, rows: Tensor) -> Tensor:
        self.batches += 1
        if self.batches == 50:
            signal.raise_signal(signal.SIGINT)
        return rows


def test_an_interrupted_network_continues_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    lab, interrupt = lab_of(tmp_path, states=tmp_path / "states"), Interrupt()
    with pytest.raises(KeyboardInterrupt):
        trained_network(lab, "some", PRESET, ROWS, augment=interrupt, resumable=True)
    (checkpoint,) = (tmp_path / "states" / "networks").iterdir()
    assert checkpoint.name == "some-0.ckpt"
    ours, reports = trained_network(lab, "some", PRESET, ROWS, augment=interrupt, resumable=True)
    assert interrupt.batches == PRESET.training.steps
    assert not checkpoint.exists()
    theirs, same = trained_network(lab_of(tmp_path / "other"), "some", PRESET, ROWS)
    assert [one["loss"] for one in reports] == [one["loss"] for one in same]
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    carried = shutil.copytree(tmp_path / "states", tmp_path / "carried")
    trained_network(lab_of(tmp_path / "third", states=carried), "some", PRESET, ROWS, augment=interrupt)
    assert interrupt.batches == PRESET.training.steps  # read, not trained


def test_a_deadline_interrupts_the_piece_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    begun = threading.Event()

    class Timer(threading.Timer):
        """Counts from the second piece on, however long the first takes."""

        def run(self) -> None:
            begun.wait()
            super().run()

    def second() -> None:
        begun.set()
        time.sleep(600)

    made = [Piece("first", lambda: done.append("first")), Piece("second", second)]
    monkeypatch.setattr(networks, "pieces", lambda _: made)
    monkeypatch.setattr(threading, "Timer", Timer)
    assert train_networks(lab_of(tmp_path), ["first"], deadline=60)
    assert not train_networks(lab_of(tmp_path), deadline=0.2)
    assert done == ["first", "first"]


def test_pieces_have_names_of_their_own_in_order_of_importance(tmp_path: Path) -> None:
    names = [piece.name for piece in pieces(lab_of(tmp_path))]
    assert len(set(names)) == len(names)
    assert names[:3] == ["retrieval-adam-0", "retrieval-conjugate-0", "retrieval-adam-1"]
    full = [piece.name for piece in pieces(lab_of(tmp_path, scale="full"))]
    assert len(set(full)) == len(full)
    assert full[:2] == ["recipe-00", "recipe-01"]


def test_an_unknown_piece_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"must be one of retrieval-adam-0, .* got 'video'"):
        train_networks(lab_of(tmp_path), ["video"])
