"""The linear coder: its bits, its prefixes, its distances, and what it refuses."""

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import nestcode as nc
from nestcode import Codes, LinearCoder, ResidualCoder
from nestcode.coders import bit_planes as _planes
from nestcode.coders import sampling as _principal
from nestcode.coders.sampling import Reservoir
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.search import asymmetric_distances, cell_distances
from nestcode.storage import write_record

Doubles = NDArray[np.float64]


def curved(n: int, features: int, seed: int = 0, steep: float = 1.0) -> NDArray[np.float32]:
    """Correlated data that is not Gaussian, with a falling spectrum."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, features + 1) ** -steep
    mixing = np.linalg.qr(rng.standard_normal((features, features)))[0]
    X: NDArray[np.float32] = (3 + rng.laplace(size=(n, features)) * scales @ mixing).astype(np.float32)
    return X


@pytest.fixture(scope="module")
def data() -> NDArray[np.float32]:
    return curved(2000, 12)


@pytest.fixture(scope="module")
def coder(data: NDArray[np.float32]) -> LinearCoder:
    return LinearCoder(width=40).fit(data)


def mse(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.mean((a.astype(np.float64) - b) ** 2))


# Bits


def encode_twin(coder: LinearCoder, X: NDArray[np.float32]) -> list[list[int]]:
    """Item by item, bit by bit: walk down the tree of the direction that each bit refines."""
    model = coder._fitted()
    mean, directions, planes = model.mean, model.directions, model.planes
    coefficients = (X - mean.astype(np.float32)) @ directions.T  # one product, as rounding depends on its shape
    codes = []
    for numbers in coefficients:
        nodes = [1] * len(directions)
        bits = []
        for owner in planes.allocation:
            if owner < 0:
                bits.append(0)
                continue
            bit = int(numbers[owner] > planes.thresholds[owner, nodes[owner]])
            nodes[owner] = 2 * nodes[owner] + bit
            bits.append(bit)
        codes.append(bits)
    return codes


def decode_twin(coder: LinearCoder, codes: Codes) -> Doubles:
    model = coder._fitted()
    mean, directions, planes = model.mean, model.directions, model.planes
    out = []
    for bits in codes.bits():
        nodes = [1] * len(directions)
        for owner, bit in zip(planes.allocation, bits, strict=False):
            if owner >= 0:
                nodes[owner] = 2 * nodes[owner] + int(bit)
        coefficients = [planes.levels[d, node] if node > 1 else 0.0 for d, node in enumerate(nodes)]
        out.append(mean + np.array(coefficients) @ directions)
    return np.array(out)


def test_encoding_equals_its_twin(coder: LinearCoder, data: NDArray[np.float32]) -> None:
    assert np.array_equal(coder.transform(data[:60]), encode_twin(coder, data[:60]))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 23, 40])
def test_decoding_equals_its_twin_at_every_length(coder: LinearCoder, data: NDArray[np.float32], length: int) -> None:
    codes = coder.encode(data[:60]).prefix(length)
    np.testing.assert_allclose(coder.decode(codes), decode_twin(coder, codes), atol=1e-5)


def test_the_error_falls_with_every_bit_and_is_the_one_expected(coder: LinearCoder, data: NDArray[np.float32]) -> None:
    codes = coder.encode(data)
    errors = [mse(data, coder.decode(codes.prefix(length))) for length in range(41)]
    assert (np.diff(errors) < 0).all()
    np.testing.assert_allclose(errors, [coder.expected_error(length) for length in range(41)], rtol=1e-3)


def test_the_error_is_the_one_expected_also_where_rows_were_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_principal, "SAMPLE_ROWS", 3000)
    X = curved(20_000, 5)
    coder = LinearCoder(width=24).fit(X)
    errors = [mse(X, coder.decode(coder.encode(X).prefix(length))) for length in (0, 8, 16, 24)]
    np.testing.assert_allclose([coder.expected_error(length) for length in (0, 8, 16, 24)], errors, rtol=0.4)
    assert LinearCoder(width=24, seed=1).fit(X).fingerprint != coder.fingerprint


def test_no_bits_give_the_mean(coder: LinearCoder, data: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(coder.decode(coder.encode(data[:2]).prefix(0)), [data.mean(axis=0)] * 2, atol=1e-5)


def test_bits_come_in_order_of_what_they_gain(coder: LinearCoder) -> None:
    gains = -np.diff(coder._fitted().errors)
    assert gains[0] == gains.max()
    assert (gains[1:] <= gains[:-1] + 1e-9).all()


def test_fresh_data_from_the_same_source_fares_as_well(coder: LinearCoder) -> None:
    mixing_seed_is_shared = curved(4000, 12)[2000:]
    error = mse(mixing_seed_is_shared, coder.decode(coder.encode(mixing_seed_is_shared)))
    assert error < 1.5 * coder.expected_error(40)


def test_it_beats_one_sign_bit_for_each_direction(data: NDArray[np.float32]) -> None:
    coder = LinearCoder(width=12).fit(data)
    mean = data.mean(axis=0)
    vectors = np.linalg.eigh(np.cov(data.T))[1]
    numbers = (data - mean) @ vectors
    signs = np.where(numbers > 0, 1, -1) * np.abs(numbers).mean(axis=0)
    assert coder.expected_error(12) < 0.8 * mse(data, mean + signs @ vectors.T)


# Trees and directions


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=60), st.integers(1, 6))
@settings(deadline=None)
def test_each_split_is_the_best_one(numbers: list[float], depth: int) -> None:
    """Against trying every cut of every part, and against the error of the centers themselves."""
    array = np.array(numbers, dtype=np.float32)
    tree = _planes.TreeQuantizer(array)
    parts, error = [np.sort(array.astype(np.float64))], float(np.mean(array.astype(np.float64) ** 2))
    for _ in range(depth):
        gain = tree.split()
        cut = []
        for part in parts:
            steps = [k for k in range(1, len(part)) if part[k - 1] < part[k]]
            costs = {k: part[:k].var() * k + part[k:].var() * (len(part) - k) for k in steps}
            k = min(costs, key=costs.__getitem__) if costs else 0
            cut += [part[:k], part[k:]]
        parts = cut
        left = sum(part.var() * len(part) for part in parts if len(part)) / len(array)
        assert gain == pytest.approx(error - left, abs=1e-6 * max(1, error))
        error = left


def test_a_tree_sends_each_number_to_the_center_that_was_made_of_it() -> None:
    numbers = np.random.default_rng(0).integers(-3, 4, 500).astype(np.float32)  # many equal ones
    tree = _planes.TreeQuantizer(numbers)
    for level in range(1, 4):
        tree.split()
        nodes = np.zeros(len(numbers), dtype=int)
        for thresholds in tree.thresholds:
            nodes = 2 * nodes + (numbers > thresholds[nodes])
        for node in np.unique(nodes):
            assert tree.levels[level][node] == pytest.approx(numbers[nodes == node].mean())


def test_leading_directions_are_those_of_the_full_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    covariance = np.cov(curved(3000, 60, steep=1.5).T.astype(np.float64))
    exact = _principal.principal_directions(covariance, 12, np.random.default_rng(0))
    monkeypatch.setattr(_principal, "DENSE", 10)
    directions = _principal.principal_directions(covariance, 12, np.random.default_rng(0))
    assert np.abs((directions * exact).sum(axis=1)).min() > 1 - 1e-4
    np.testing.assert_allclose(directions @ directions.T, np.eye(12), atol=1e-6)


# Distances


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("length", [0, 1, 9, 24, 40])
def test_asymmetric_distances_are_those_to_the_decoded_codes(
    data: NDArray[np.float32], metric: Any, length: int
) -> None:
    coder = LinearCoder(width=40, metric=metric).fit(data)
    codes, queries = coder.encode(data[:80]).prefix(length), data[100:107]
    decoded = coder.decode(codes)
    scaled = queries
    if metric == "cosine":  # by angle
        scaled, decoded = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, decoded))
    expected = ((scaled[:, None].astype(np.float64) - decoded) ** 2).sum(axis=2)
    np.testing.assert_allclose(asymmetric_distances(coder, queries, codes), expected, rtol=1e-4, atol=1e-4)


def test_cells_nest_and_bound_distances_from_below(coder: LinearCoder, data: NDArray[np.float32]) -> None:
    codes, queries = coder.encode(data[:80]), data[100:110]
    true = ((queries[:, None] - data[None, :80]) ** 2).sum(axis=2)
    before = np.zeros_like(true)
    for length in range(0, 41, 4):
        cells = cell_distances(coder, queries, codes.prefix(length))
        assert (cells >= before - 1e-5).all()  # a longer prefix is a smaller cell
        assert (cells <= true + 1e-4).all()  # and holds the item
        before = cells
    own = cell_distances(coder, queries, coder.encode(queries))
    assert own.diagonal().max() < 1e-9
    assert before.max() > 1


def test_cells_are_boxes_not_single_bits(coder: LinearCoder, data: NDArray[np.float32]) -> None:
    """Against a walk over the intervals of each direction."""
    model = coder._fitted()
    mean, directions, planes = model.mean, model.directions, model.planes
    codes = coder.encode(data[:20]).prefix(30)
    numbers = (data[50] - mean) @ directions.T
    expected = []
    for bits in codes.bits():
        low, high = np.full(len(directions), -np.inf), np.full(len(directions), np.inf)
        nodes = [1] * len(directions)
        for owner, bit in zip(planes.allocation, bits, strict=False):
            threshold = planes.thresholds[owner, nodes[owner]]
            (low if bit else high)[owner] = threshold
            nodes[owner] = 2 * nodes[owner] + int(bit)
        expected.append((np.maximum(np.maximum(low - numbers, numbers - high), 0) ** 2).sum())
    np.testing.assert_allclose(cell_distances(coder, data[50:51], codes)[0], expected, rtol=1e-4, atol=1e-6)


# Data of all kinds


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int32])
def test_types_of_numbers(dtype: Any) -> None:
    X = (curved(300, 6) * 20 + 100).clip(0, 255).astype(dtype)
    X[:100] = 0
    coder = LinearCoder(width=8).fit(X)
    assert coder.decode(coder.encode(X)).dtype == np.float32
    assert mse(X, coder.decode(coder.encode(X))) < X.astype(np.float64).var(axis=0).mean()


def test_pieces_memory_maps_and_arrays_fit_the_same(tmp_path: Path) -> None:
    X = curved(9000, 5)
    np.save(tmp_path / "X.npy", X)
    whole = LinearCoder(width=20).fit(X)
    mapped = LinearCoder(width=20).fit(np.load(tmp_path / "X.npy", mmap_mode="r"))
    in_pieces = LinearCoder(width=20).fit(X[i : i + 1111] for i in range(0, len(X), 1111))
    assert mapped.fingerprint == whole.fingerprint
    assert np.mean(in_pieces.transform(X) == whole.transform(X)) > 0.999
    assert in_pieces.expected_error(20) == pytest.approx(whole.expected_error(20), rel=1e-4)


def test_the_sample_is_fair_and_does_not_depend_on_the_pieces() -> None:
    X = np.arange(5000, dtype=np.float32)[:, None]
    samples = []
    for size in (5000, 77, 4096):
        parts = (X[i : i + size] for i in range(0, len(X), size))
        sample = Reservoir(np.random.default_rng(0), 500, 1 << 28)
        samples.append(_principal.moments_and_sample(parts, normalize=False, reservoir=sample)[1])
    assert np.array_equal(samples[0], samples[1])
    assert np.array_equal(samples[0], samples[2])
    assert len(samples[0]) == 500
    assert abs(samples[0].mean() - 2500) < 200


def test_the_same_seed_gives_the_same_coder(data: NDArray[np.float32]) -> None:
    assert LinearCoder(width=16).fit(data).fingerprint == LinearCoder(width=16).fit(data).fingerprint


@pytest.mark.parametrize(
    ("X", "useful"),
    [
        (np.ones((50, 4)), 0),  # nothing varies
        (np.ones((1, 3)), 0),  # one item
        (np.array([[0.0, 5.0], [1.0, 5.0]]), 1),  # two items that differ in one feature
        (np.random.default_rng(0).standard_normal((3, 40)), 2),  # fewer items than features: two bits tell three
    ],
)
def test_data_that_cannot_fill_the_code(X: Doubles, useful: int) -> None:
    with pytest.warns(UserWarning, match="unallocated") as caught:
        coder = LinearCoder(width=30).fit(X)
    assert len(caught) == 1
    assert (coder._fitted().planes.allocation >= 0).sum() >= useful
    np.testing.assert_allclose(coder.decode(coder.encode(X)), X, atol=1e-5)
    assert coder.encode(X).width == 30
    assert asymmetric_distances(coder, X, coder.encode(X)).shape == (len(X), len(X))


def test_data_far_from_zero_is_centered_before_it_is_rounded() -> None:
    X = curved(500, 6).astype(np.float64)
    plain, far = LinearCoder(width=20).fit(X), LinearCoder(width=20).fit(X + 1e8)
    assert np.mean(plain.transform(X) == far.transform(X + 1e8)) > 0.99


def test_the_first_piece_may_be_unlike_the_rest() -> None:
    Y = (1000 + np.random.default_rng(0).standard_normal((20_000, 4)) * [1, 0.5, 0.2, 0.1]).astype(np.float32)
    first = LinearCoder(width=16).fit(iter([np.zeros((1, 4), np.float32), Y]))
    last = LinearCoder(width=16).fit(iter([Y, np.zeros((1, 4), np.float32)]))
    errors = [mse(Y, coder.decode(coder.encode(Y))) for coder in (first, last)]
    assert errors[0] == pytest.approx(errors[1], rel=0.2)


def test_a_list_of_pieces_is_an_iterable_of_pieces(data: NDArray[np.float32]) -> None:
    pieces = [data[:700], data[700:900], data[900:]]
    assert LinearCoder(width=16).fit(pieces).fingerprint == LinearCoder(width=16).fit(iter(pieces)).fingerprint


def test_constant_features_are_kept_exactly() -> None:
    X = curved(300, 6)
    X[:, 2] = 7
    coder = LinearCoder(width=20).fit(X)
    np.testing.assert_allclose(coder.decode(coder.encode(X).prefix(9))[:, 2], 7, atol=1e-4)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_the_scale_of_the_data_does_not_matter(metric: Any, scale: float) -> None:
    X = curved(500, 6).astype(np.float64) - 3
    plain = LinearCoder(width=20, metric=metric).fit(X)
    scaled = LinearCoder(width=20, metric=metric).fit(X * scale)
    assert np.mean(plain.transform(X) == scaled.transform(X * scale)) > 0.99
    assert scaled.expected_error(20) / scaled.expected_error(0) == pytest.approx(
        plain.expected_error(20) / plain.expected_error(0), rel=1e-2
    )


def test_a_setting_changed_after_the_fit_waits_for_the_next_one(data: NDArray[np.float32]) -> None:
    coder = LinearCoder(width=np.int64(16)).fit(data)  # type: ignore[arg-type]
    codes = coder.encode(data)
    coder.set_params(width=8, metric="cosine")
    assert coder.encode(data) == codes
    assert coder.decode(codes).shape == data.shape
    assert coder.to_record().settings == {"width": 16, "metric": "l2", "seed": 0}
    assert coder.fit(data).encode(data).width == 8


@pytest.mark.parametrize("kind", [LinearCoder, ResidualCoder])
def test_what_has_no_direction_is_as_far_from_all_that_has(kind: type[LinearCoder | ResidualCoder]) -> None:
    rows = np.concatenate([np.eye(3), -np.eye(3), np.zeros((1, 3))])
    coder = kind(width=6, metric="cosine").fit(rows)
    distances = asymmetric_distances(coder, rows[-1:], coder.encode(rows[:6]))
    assert np.allclose(distances, 1, atol=1e-5)


def test_cosine_ignores_lengths(data: NDArray[np.float32]) -> None:
    coder = LinearCoder(width=24, metric="cosine").fit(data)
    scaled = data * np.random.default_rng(0).uniform(0.1, 10, (len(data), 1))
    assert np.mean(coder.transform(scaled) == coder.transform(data)) > 0.999
    assert np.linalg.norm(coder.decode(coder.encode(data)), axis=1).mean() == pytest.approx(1, abs=0.05)
    assert len(coder.encode(np.zeros((1, 12)))) == 1  # a zero has no direction, and no error


def test_no_items_encode_to_no_codes(coder: LinearCoder, data: NDArray[np.float32]) -> None:
    assert asymmetric_distances(coder, np.zeros((0, 12)), coder.encode(data[:5])).shape == (0, 5)
    assert cell_distances(coder, data[:300], coder.encode(np.zeros((0, 12)))).shape == (300, 0)
    codes = coder.encode(np.zeros((0, 12)))
    assert (len(codes), codes.width) == (0, 40)
    assert coder.decode(codes).shape == (0, 12)


# Files


def test_save_then_load_is_the_same_coder(coder: LinearCoder, data: NDArray[np.float32], tmp_path: Path) -> None:
    coder.save(tmp_path / "it.coder")
    loaded = nc.load_coder(tmp_path / "it.coder")
    assert isinstance(loaded, LinearCoder)
    assert loaded.get_params() == coder.get_params()
    assert loaded.fingerprint == coder.fingerprint
    assert loaded.encode(data) == coder.encode(data)
    assert np.array_equal(loaded.decode(coder.encode(data)), coder.decode(coder.encode(data)))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_damaged_file_gives_a_wrong_coder(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Cut it anywhere, or change any byte: an error that names the file, or the very same coder."""
    folder = tmp_path_factory.getbasetemp()
    good = folder / "good.coder"
    if not good.exists():
        LinearCoder(width=9).fit(curved(50, 3)).save(good)
    blob = bytearray(good.read_bytes())
    if data.draw(st.booleans()):
        del blob[data.draw(st.integers(0, len(blob) - 1)) :]
    else:
        blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    bad = folder / "bad.coder"
    bad.write_bytes(blob)
    with contextlib.suppress(DamagedFile):
        assert nc.load_coder(bad).fingerprint == nc.load_coder(good).fingerprint


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("owners", lambda array: array + 100),  # directions that are not there
        ("owners", lambda array: np.zeros_like(array)),  # more bits than a direction may have
        ("owners", lambda array: array.astype(np.float64)),
        ("thresholds", lambda array: array[:, :1]),
        ("centers", lambda array: array[:, :3]),
        ("directions", lambda array: array[:, :2]),
        ("errors", lambda array: array[:4]),
        ("owners", lambda array: array - 5),
        ("mean", lambda array: array * np.nan),
    ],
)
def test_a_record_that_does_not_fit_together_is_refused(
    coder: LinearCoder, tmp_path: Path, name: str, change: Callable[[Any], Any]
) -> None:
    """Also where somebody made the checksum match."""
    record = coder.to_record()
    write_record(tmp_path / "crafted", replace(record, arrays={**record.arrays, name: change(record.arrays[name])}))
    with pytest.raises(DamagedFile, match="crafted is not a LinearCoder as it should be"):
        nc.load_coder(tmp_path / "crafted")


def test_foreign_and_newer_files_are_named(coder: LinearCoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(DamagedFile, match="was not written by Nestcode"):
        nc.load_coder(tmp_path / "foreign")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(DamagedFile, match="damaged or not a Nestcode file"):
        nc.load_coder(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        nc.load_coder(tmp_path / "nothing")
    coder.save(tmp_path / "newer")
    monkeypatch.setattr(LinearCoder, "VERSION", 0)
    with pytest.raises(DamagedFile, match=r"version 1 .* reads up to 0: upgrade"):
        nc.load_coder(tmp_path / "newer")


# scikit-learn's protocol


def test_scikit_learn_takes_it_for_one_of_its_own(data: NDArray[np.float32]) -> None:
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.utils.validation import check_is_fitted

    coder = LinearCoder(width=16)
    copy = clone(coder)
    assert copy is not coder
    assert copy.get_params() == {"width": 16, "metric": "l2", "seed": 0}
    labels = data[:, 0] > np.median(data[:, 0])
    model = make_pipeline(coder, LogisticRegression(max_iter=1000)).fit(data, labels)
    assert model.score(data, labels) > 0.75
    assert not hasattr(LinearCoder(width=16), "n_features_in_")
    alone = make_pipeline(LinearCoder(width=16)).fit(data)
    assert np.array_equal(alone.transform(data), coder.transform(data))
    check_is_fitted(coder)
    with pytest.raises(NotFittedError):
        check_is_fitted(LinearCoder(width=16))


def test_transform_and_back(coder: LinearCoder, data: NDArray[np.float32]) -> None:
    bits = coder.transform(data)
    assert bits.dtype == np.uint8
    assert bits.shape == (len(data), 40)
    assert np.array_equal(coder.inverse_transform(bits[:, :13]), coder.decode(coder.encode(data).prefix(13)))
    assert np.array_equal(LinearCoder(width=40).fit_transform(data), bits)
    assert coder.n_features_in_ == 12
    assert coder.set_params(seed=3).seed == 3
    coder.set_params(seed=0)


FITTED = LinearCoder(width=8).fit(curved(100, 4))
X4 = curved(5, 4)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "width 0": (lambda: LinearCoder(0), "width must be an integer of at least 1, got 0"),
    "width 1.5": (lambda: LinearCoder(1.5), "width must be an integer of at least 1, got 1.5"),  # type: ignore[arg-type]
    "seed": (lambda: LinearCoder(8, seed=-1), "seed must be an integer of at least 0, got -1"),
    "metric": (lambda: LinearCoder(8, metric="l1"), 'metric must be "l2" or "cosine", got \'l1\''),  # type: ignore[arg-type]
    "not fitted": (lambda: LinearCoder(8).encode(X4), "this LinearCoder is not fitted: call fit(X) first"),
    "saved too soon": (lambda: LinearCoder(8).save("x"), "not fitted"),
    "no items": (lambda: LinearCoder(8).fit(np.zeros((0, 3))), "fit needs at least 1 item, got none"),
    "no pieces": (lambda: LinearCoder(8).fit(iter([])), "fit needs at least 1 item, got none"),
    "images": (lambda: LinearCoder(8).fit(np.zeros((5, 4, 4))), "got shape (5, 4, 4): flatten images"),
    "one item": (lambda: FITTED.encode(X4[0]), "put one item into x[None, :]"),
    "words": (lambda: LinearCoder(8).fit(np.array([["a"]])), "data must be numbers, got <U1"),
    "no features": (lambda: LinearCoder(8).fit(np.zeros((5, 0))), "at least 1 feature, got 0"),
    "other features": (lambda: FITTED.encode(np.zeros((5, 3))), "the 4 features the coder was fitted on, got 3"),
    "pieces that differ": (
        lambda: LinearCoder(8).fit(iter([X4, X4[:, :2]])),
        "the 4 features",
    ),
    "NaN": (lambda: FITTED.encode([[1, 2, float("nan"), 4]]), "finite and within float32, but some of it is nan"),
    "infinite": (lambda: LinearCoder(8).fit([[1, float("inf")]]), "data must be finite and within float32"),
    "beyond float32": (lambda: LinearCoder(8).fit([[1.0, 1e300]]), "data must be finite and within float32"),
    "wide codes": (
        lambda: FITTED.decode(Codes.from_bits(np.zeros((1, 9), bool))),
        "coder's width 8, got 9",
    ),
    "bits for codes": (lambda: FITTED.decode(np.zeros((1, 8))), "expected Codes, got ndarray"),  # type: ignore[arg-type]
    "long length": (lambda: FITTED.expected_error(9), "length must be between 0 and the coder's width 8, got 9"),
    "negative length": (lambda: FITTED.expected_error(-1), "length must be an integer of at least 0, got -1"),
    "setting": (lambda: FITTED.set_params(depth=3), "settings must be among width, metric, seed, got depth"),
    "queries": (lambda: asymmetric_distances(FITTED, np.zeros((1, 3)), FITTED.encode(X4)), "the 4 features"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_a_failed_fit_loses_nothing(data: NDArray[np.float32]) -> None:
    coder = LinearCoder(width=16).fit(data)
    before = coder.fingerprint
    with pytest.raises(InvalidInput):
        coder.fit(np.full((5, 12), np.nan))
    assert coder.fingerprint == before
