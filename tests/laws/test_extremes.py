"""Values up to the range of float32: right answers, or an error that names the remedy; nothing lost, no NaN, no inf."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nestcode as nc
from nestcode.errors import InvalidInput

ROWS = np.random.default_rng(0).uniform(-1, 1, (40, 6))
SCALES = {"2^57": 2.0**57, "2^63": 2.0**63, "2^83": 2.0**83, "2^124": 2.0**124, "largest": 3.4e38}
CODERS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda metric: nc.LinearCoder(8, metric=metric),
    "residual": lambda metric: nc.ResidualCoder(8, metric=metric),
    "cell": lambda metric: nc.CellCoder(8, metric=metric),
    "rotation": lambda metric: nc.RotationCoder(8, metric=metric),
    "adaptive": lambda metric: nc.AdaptiveCoder(8, metric=metric),
}
every_coder = pytest.mark.parametrize("make", CODERS.values(), ids=CODERS)
every_metric = pytest.mark.parametrize("metric", ["l2", "cosine"])


def unless_refused(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or None if it refuses the values and says how to mend them."""
    try:
        return call()
    except InvalidInput as error:
        if "rescale" not in str(error):
            raise
        return None


def check_life(make: Callable[[Any], Any], metric: Any, rows: NDArray[np.float32], folder: Path) -> Any:
    """Fit, encode, decode, save, compress, index and search; return the coder unless `fit` refuses the rows."""
    coder = unless_refused(lambda: make(metric).fit(rows))
    if coder is None:
        return None
    codes = coder.encode(rows)
    assert np.isfinite(coder.decode(codes)).all()
    assert np.isfinite([coder.expected_error(length) for length in range(coder.width_ + 1)]).all()
    coder.save(folder / "a.coder")
    assert nc.load_coder(folder / "a.coder").encode(rows) == codes
    assert np.isfinite(nc.decompress(nc.compress(rows, coder), coder)).all()
    for vectors in (None, "float32"):
        index = nc.Index(coder, vectors=vectors)
        with suppress(InvalidInput):
            index.add(rows)
        if len(index) == 0:
            continue
        index.save(folder / f"{vectors}.index")
        assert len(nc.Index.open(folder / f"{vectors}.index")) == len(rows)
        for queries in (rows[:9], ROWS[:9].astype(np.float32), np.sign(rows[:9]) * np.float32(3e38)):
            hits = unless_refused(lambda: index.search(queries, k=3))  # noqa: B023
            assert hits is None or np.isfinite(hits.distances).all()
            if vectors is not None and hits is not None and queries.base is rows:
                assert hits.ids[:, 0].tolist() == list(range(9))
    return coder


@every_coder
@every_metric
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.filterwarnings("ignore")
def test_large_values(make: Callable[[Any], Any], metric: Any, scale: float, tmp_path: Path) -> None:
    rows = (scale * ROWS).astype(np.float32)
    coder = check_life(make, metric, rows, tmp_path)
    if coder is not None and np.log2(scale).is_integer():  # then only exponents differ
        assert coder.encode(rows) == make(metric).fit(ROWS.astype(np.float32)).encode(ROWS.astype(np.float32))


@every_coder
@every_metric
@pytest.mark.filterwarnings("ignore")
def test_one_large_value(make: Callable[[Any], Any], metric: Any, tmp_path: Path) -> None:
    rows = ROWS.astype(np.float32)
    rows[3, 2] = 1e38
    check_life(make, metric, rows, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_overflowing_inner_products_are_not_blamed_on_nan() -> None:
    rows = (1e30 * ROWS).astype(np.float32)
    index = nc.Index(nc.LinearCoder(8).fit(rows))
    index.add(rows)
    for candidates in (10, 40):
        with pytest.raises(InvalidInput, match=r"inner products must be .* rescale the data and"):
            index.search((1e15 * ROWS[:3]).astype(np.float32), 3, metric="inner", vectors=rows, candidates=candidates)
