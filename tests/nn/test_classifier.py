"""Nested dropout with labels: neighbors, error rates, resuming."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from nestcode import Codes, Index
from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.nn import (
    Binarize,
    ImageEncoder,
    NestedAdapter,
    OrderedAutoencoder,
    OrderedClassifier,
    OrderedNetwork,
    RandomViews,
)
from nestcode.training import Growth, Run, Sweep, Training, errors_by_length, train
from nestcode.training.runtime.sampler import split_holdout
from tests.training.runs import Digits, assert_same, interrupt, state

X, Y = digits()
QUIET = Run(progress=False)


def classifier(seed: int = 0, **changes: Any) -> OrderedClassifier:
    torch.manual_seed(seed)
    own = {"layers": (64,), "binarize": Binarize(16, signed=True), **changes}
    return OrderedClassifier(64, 16, 10, **own)


def learn(model: OrderedNetwork, labels: Any, data: Any = None, steps: int = 30, **run: Any) -> list[dict[str, Any]]:
    training = Training(steps=steps, batch_size=50, learning_rate=0.01)
    return train(model, X[:600] if data is None else data, training, Run(progress=False, **run), labels=labels)


def knn(model: OrderedNetwork, length: int) -> float:
    """Return the accuracy of a 10-nearest-neighbor vote on held-out digits."""

    def codes(rows: NDArray[np.float32]) -> Codes:
        with torch.inference_mode():
            return Codes.from_bits((model.encode(torch.from_numpy(rows)) > 0).numpy()[:, :length])

    index = Index(width=length)
    index.add(codes(X[:1400]))
    near = Y[index.search(codes(X[1400:]), k=10, candidates=1400).ids]
    return float(np.mean([np.bincount(row).argmax() == label for row, label in zip(near, Y[1400:], strict=True)]))


def test_neighbors_share_the_class_and_more_so_at_longer_prefixes() -> None:
    training = Training(steps=200, batch_size=64, learning_rate=0.01)
    with_labels = classifier()
    train(with_labels, X[:1400], training, QUIET, labels=Y[:1400])
    torch.manual_seed(0)
    without = OrderedAutoencoder(64, 16, (64,), binarize=Binarize(16, signed=True), corruption=0, dropout=0)
    train(without, X[:1400], training, QUIET)
    found = [knn(with_labels, length) for length in (2, 4, 16)]
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.85
    assert found[2] > knn(without, 16) + 0.05


def test_errors_are_error_rates_on_held_out_items() -> None:
    model = classifier(binarize=None)
    reports = learn(model, Y[:600])
    assert reports[-1]["errors"][16] < 0.5 < reports[0]["errors"][16]
    apart, _ = split_holdout(600, Training())
    for length in (1, 4, 16):
        guess = model.classify(torch.from_numpy(X[apart]), kept=length).numpy()
        assert reports[-1]["errors"][length] == pytest.approx((guess != Y[apart]).mean())


def test_a_run_with_labels_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole, resumed = classifier(), classifier()
    learn(whole, Y[:600])
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt"}
    with pytest.raises(KeyboardInterrupt):
        learn(classifier(), Y[:600], data=Digits(interrupt(), at=17), **run)
    learn(resumed, Y[:600], **run, resume=True)
    assert_same(state(whole), state(resumed))
    other = Y[:600].copy()
    other[77] = (other[77] + 1) % 10
    with pytest.raises(InvalidInput, match="from a run with other data"):
        learn(classifier(), other, **run, resume=True)


def test_a_run_with_random_views_resumes_bit_for_bit(tmp_path: Path) -> None:
    def model() -> OrderedClassifier:
        torch.manual_seed(0)
        encoder = nn.Sequential(RandomViews((1, 8, 8), crop=1, flip=False), ImageEncoder((1, 8, 8), 16, channels=8))
        return classifier(layers=(), encoder=encoder, smoothing=0.1)

    whole, resumed = model(), model()
    run: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "steps": 10}
    learn(whole, Y[:600], steps=10)
    with pytest.raises(KeyboardInterrupt):
        learn(model(), Y[:600], data=Digits(interrupt(), at=7), **run)
    learn(resumed, Y[:600], **run, resume=True)
    assert_same(state(whole), state(resumed))


def test_lengths_and_labels_are_checked() -> None:
    some = torch.from_numpy(X[:5])
    with pytest.raises(InvalidInput, match="kept must be an integer of at least 0, got -1"):
        classifier().classify(some, kept=-1)
    with pytest.raises(InvalidInput, match="the error rate of a classifier needs labels"):
        errors_by_length(classifier(), some, [1])


def test_units_of_a_classifier_are_swept_but_do_not_grow() -> None:
    model = classifier()
    sweep = Training(steps=30, batch_size=50, sweep=Sweep(tolerance=0.05))
    assert train(model, X[:600], sweep, QUIET, labels=Y[:600])[-1]["frozen"] > 0
    with pytest.raises(InvalidInput, match="does not grow"):
        train(classifier(), X[:600], Training(growth=Growth()), QUIET, labels=Y[:600])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "is trained on labels: give one for each item"),
        (Y[:599], r"one for each of 600 items, got int64 of shape \(599,\)"),
        (Y[:600] / 2, "labels must be integers"),
        (Y[:600] + 1, "labels must be from 0 to 9, got 1 to 10: map them"),
        (Y[:600, None], r"got int64 of shape \(600, 1\)"),
    ],
)
def test_wrong_labels_are_named(labels: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learn(classifier(), labels)


def test_labels_for_a_model_without_classes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="labels are for an OrderedClassifier"):
        learn(OrderedAutoencoder(64, 16), Y[:600])
    with pytest.raises(InvalidInput, match="classes must be an integer of at least 2, got 1"):
        OrderedClassifier(64, 16, 1)
    with pytest.raises(InvalidInput, match="the encoder must return 16 values"):
        learn(classifier(encoder=nn.Linear(64, 8), layers=()), Y[:600])


def test_what_is_no_tensor_or_no_model_is_named() -> None:
    X: Any = np.zeros((5, 8), np.float32)
    calls: list[Callable[[], object]] = [
        lambda: OrderedClassifier(8, 4, classes=2).classify(X),
        lambda: OrderedClassifier(8, 4, classes=2).decode(X[:, :4]),
        lambda: NestedAdapter(8)(X),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=r"must be a tensor, got ndarray: convert an array with torch.as_tensor"):
            call()
    with pytest.raises(InvalidInput, match=r"model must be an OrderedAutoencoder or .* got Linear"):
        train(torch.nn.Linear(8, 8), X)  # type: ignore[arg-type]


def test_a_log_that_is_a_folder_is_named(tmp_path: Path) -> None:
    model = OrderedClassifier(8, 4, classes=2)
    with pytest.raises(IsADirectoryError, match="cannot be written"):
        train(model, np.ones((5, 8)), run=Run(log=tmp_path), labels=np.arange(5) % 2)
