"""Coders in scikit-learn's searches, unions and pipelines; its own checks are in `test_contract.py`."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline

import nestcode as nc
from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.nn import SemiLinearAutoencoder
from nestcode.training import Training


@pytest.fixture(scope="module")
def digits() -> tuple[NDArray[Any], NDArray[Any]]:
    X, y = nc.data.digits()
    return X[:400], y[:400]


# Pipelines and searches


def test_widths_are_searched_in_a_pipeline(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, y = digits
    model = make_pipeline(nc.LinearCoder(width=1), LogisticRegression(max_iter=1000))
    search = GridSearchCV(model, {"linearcoder__width": [2, 64]}, cv=3).fit(X, y)
    assert search.best_params_ == {"linearcoder__width": 64}
    assert search.predict(X[:3]).shape == (3,)


def test_widths_are_searched_by_a_custom_scorer(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    def fidelity(coder: Coder, X: NDArray[Any], _: Any = None) -> float:
        return -float(np.mean((X - coder.decode(coder.encode(X))) ** 2))

    search = GridSearchCV(nc.LinearCoder(width=1), {"width": [4, 16, 64]}, scoring=fidelity, cv=3).fit(digits[0])
    assert search.best_params_ == {"width": 64}
    assert list(search.cv_results_["rank_test_score"]) == [3, 2, 1]


def test_unions_concatenate_codes(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, _ = digits
    parts: list[Any] = [("a", nc.LinearCoder(width=8)), ("b", nc.CellCoder(width=8))]
    union = FeatureUnion(parts).fit(X)
    assert np.array_equal(union.transform(X), np.hstack([part.fit(X).transform(X) for _, part in parts]))
    assert union.get_feature_names_out()[[0, 8]].tolist() == ["a__linearcoder0", "b__cellcoder0"]


def test_settings_of_a_base_are_nested_settings() -> None:
    coder = nc.RefinedCoder(nc.LinearCoder(width=8))
    assert coder.get_params()["base__width"] == 8
    assert "base__width" not in coder.get_params(deep=False)
    assert coder.set_params(base__width=16).width == 16
    with pytest.raises(InvalidInput, match=r"settings must be among base, .*, got bass__width"):
        coder.set_params(bass__width=3)


def test_settings_that_were_not_given_follow_the_preset() -> None:
    coder = nc.AutoencoderCoder()
    assert coder.get_params()["width"] is None
    assert coder.width == 128
    assert clone(coder).set_params(preset="paper-compression").width == 1024
    assert coder.set_params(width=8).width == coder.get_params()["width"] == 8
    assert coder.set_params(width=None).width == 128


def test_refused_settings_change_nothing() -> None:
    coder = nc.LinearCoder(width=8)
    with pytest.raises(InvalidInput, match="width must be"):
        coder.set_params(seed=3, width=0)
    assert coder.get_params() == {"width": 8, "metric": "l2", "seed": 0}


def test_items_on_disk_are_read_a_few_at_a_time(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    """Like arrays of h5py and zarr, which could also be read at once."""

    class OnDisk:
        shape = digits[0].shape

        def __len__(self) -> int:
            return len(digits[0])

        def __getitem__(self, number: int) -> Any:
            return digits[0][number]

        def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
            raise AssertionError("the whole array was read")

    coder = nc.AutoencoderCoder(width=4, training=Training(steps=3, batch_size=8)).fit(OnDisk(), progress=False)
    assert np.array_equal(coder.transform(OnDisk()), coder.transform(digits[0]))


def test_models_raise_scikit_learns_not_fitted_error_too() -> None:
    with pytest.raises(NotFittedError, match="SemiLinearAutoencoder is not fitted"):
        SemiLinearAutoencoder(width=2).encode([[1.0]])


def test_coders_need_no_scikit_learn() -> None:
    source = """
import sys
import numpy as np, nestcode as nc
X = np.random.default_rng(0).standard_normal((100, 4))
coder = nc.LinearCoder(width=8)
try:
    coder.transform(X)
except nc.errors.NotFitted as error:
    assert type(error) is nc.errors.NotFitted
coder.set_output(transform="default").fit_transform(X)
assert coder.get_feature_names_out()[7] == "linearcoder7"
print(coder, "sklearn" in sys.modules, "pandas" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert run.stdout == "LinearCoder(width=8, metric='l2', seed=0) False False\n", run.stderr
