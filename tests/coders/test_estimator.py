"""Coders as scikit-learn's estimators: its own checks, pipelines, searches and data frames."""

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.utils import estimator_checks

import nestcode as nc
from nestcode.coders import Coder
from nestcode.errors import InvalidInput, NotFitted
from nestcode.nn import SemiLinearAutoencoder
from nestcode.training import Training

CODERS: dict[str, Coder] = {
    "linear": nc.LinearCoder(width=4),
    "residual": nc.ResidualCoder(width=4, beams=1),
    "adaptive": nc.AdaptiveCoder(width=4, beams=1),
    "cells": nc.CellCoder(width=4),
    "refined": nc.RefinedCoder(nc.LinearCoder(4), training=Training(steps=3, batch_size=8)),
    "autoencoder": nc.AutoencoderCoder(4, training=Training(steps=3, batch_size=8)),
}
EXPECTED = {
    "check_do_not_raise_errors_in_init_or_set_params": "a wrong setting is named where it is given, before data is read"
}
MORE = [  # that check_estimator leaves out
    estimator_checks.check_transformer_get_feature_names_out,
    estimator_checks.check_transformer_get_feature_names_out_pandas,
    estimator_checks.check_get_feature_names_out_error,
    estimator_checks.check_set_output_transform,
    estimator_checks.check_set_output_transform_pandas,
    estimator_checks.check_global_output_transform_pandas,
    estimator_checks.check_set_output_transform_polars,
    estimator_checks.check_global_set_output_transform_polars,
    estimator_checks.check_n_features_in,
]


@pytest.fixture(params=CODERS)
def coder(request: pytest.FixtureRequest) -> Any:
    return clone(CODERS[request.param])


@pytest.fixture(scope="module")
def digits() -> tuple[NDArray[Any], NDArray[Any]]:
    X, y = nc.data.digits()
    return X[:400], y[:400]


@pytest.mark.filterwarnings("ignore:the data fills")  # theirs is tiny
@pytest.mark.filterwarnings("ignore:Estimator .* does not inherit")  # scikit-learn is optional
@pytest.mark.filterwarnings("ignore:InvalidInput occurred during set_params")  # as expected below
def test_scikit_learns_own_checks_pass(coder: Any) -> None:
    results = estimator_checks.check_estimator(coder, expected_failed_checks=EXPECTED, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED)


@pytest.mark.parametrize("check", MORE, ids=lambda check: check.__name__)
@pytest.mark.filterwarnings("ignore:the data fills")
def test_its_checks_of_names_and_data_frames_pass(coder: Any, check: Any) -> None:
    check(type(coder).__name__, coder)


# Pipelines and searches


def test_widths_are_searched_in_a_pipeline(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, y = digits
    model = make_pipeline(nc.LinearCoder(width=1), LogisticRegression(max_iter=1000))
    search = GridSearchCV(model, {"linearcoder__width": [2, 64]}, cv=3).fit(X, y)
    assert search.best_params_ == {"linearcoder__width": 64}
    assert search.predict(X[:3]).shape == (3,)


def test_widths_are_searched_by_a_scorer_of_ones_own(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    def fidelity(coder: Coder, X: NDArray[Any], _: Any = None) -> float:
        return -float(np.mean((X - coder.decode(coder.encode(X))) ** 2))

    search = GridSearchCV(nc.LinearCoder(width=1), {"width": [4, 16, 64]}, scoring=fidelity, cv=3).fit(digits[0])
    assert search.best_params_ == {"width": 64}
    assert list(search.cv_results_["rank_test_score"]) == [3, 2, 1]


def test_unions_put_codes_side_by_side(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, _ = digits
    parts: list[Any] = [("a", nc.LinearCoder(width=8)), ("b", nc.CellCoder(width=8))]
    union = FeatureUnion(parts).fit(X)
    assert np.array_equal(union.transform(X), np.hstack([part.fit(X).transform(X) for _, part in parts]))
    assert union.get_feature_names_out()[[0, 8]].tolist() == ["a__linearcoder0", "b__cellcoder0"]


def test_settings_of_an_inner_coder_are_settings_too() -> None:
    coder = nc.RefinedCoder(nc.LinearCoder(width=8))
    assert coder.get_params()["base__width"] == 8
    assert "base__width" not in coder.get_params(deep=False)
    assert coder.set_params(base__width=16).width == 16
    with pytest.raises(InvalidInput, match=r"settings must be among base, .*, got bass__width"):
        coder.set_params(bass__width=3)


def test_what_was_not_given_stays_open() -> None:
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


# Data frames


def frame(X: NDArray[Any]) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"pixel{i}" for i in range(X.shape[1])], index=np.arange(len(X)) + 100)


def test_bits_come_as_data_frames(coder: Any, digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, _ = digits
    plain = coder.fit_transform(X)
    bits = coder.set_output(transform="pandas").transform(frame(X))
    assert isinstance(bits, pd.DataFrame)
    assert bits.index[0] == 100
    assert list(bits.columns) == [f"{type(coder).__name__.lower()}{bit}" for bit in range(4)]
    assert np.array_equal(bits, plain)
    assert np.array_equal(coder.inverse_transform(bits), coder.inverse_transform(plain))
    assert isinstance(coder.set_output(transform="polars").transform(X), pl.DataFrame)
    assert isinstance(clone(coder).fit_transform(X), pl.DataFrame)
    assert isinstance(coder.set_output(transform="default").transform(X), np.ndarray)
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(coder.transform(X), np.ndarray)  # a coder's own word counts more
        assert isinstance(clone(CODERS["linear"]).fit_transform(X), pd.DataFrame)
    with pytest.raises(InvalidInput, match='transform must be "default", "pandas" or "polars", got \'arrow\''):
        coder.set_output(transform="arrow")


def test_columns_must_be_those_of_the_fit(coder: Any, digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X = frame(digits[0])
    coder.fit(X)
    assert list(coder.feature_names_in_) == list(X.columns)
    assert np.array_equal(coder.transform(X), coder.transform(X.to_numpy()))
    with pytest.raises(InvalidInput, match=r"in their order, pixel0, .*, …, got pixel63, .*, …: give"):
        coder.transform(X[X.columns[::-1]])
    with pytest.raises(InvalidInput, match="got pixel0, pixel1, pixel2: give"):
        coder.transform(X[X.columns[:3]])
    assert np.array_equal(coder.transform(X[X.columns[::-1]][list(coder.feature_names_in_)]), coder.transform(X))
    coder.fit(X.to_numpy())
    assert not hasattr(coder, "feature_names_in_")


def test_names_follow_the_fit_and_not_a_setting_changed_since(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    coder = nc.LinearCoder(width=8).fit(digits[0]).set_params(width=32)
    assert len(coder.get_feature_names_out()) == coder.transform(digits[0]).shape[1] == 8


# What comes in


@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.csc_array])
def test_sparse_data_is_named(coder: Any, make: Any) -> None:
    with pytest.raises(InvalidInput, match=r"data must be dense, got a sparse cs._.*: convert it with X.toarray\(\)"):
        coder.fit(make(np.eye(8)))


def test_numbers_may_come_as_objects(coder: Any, digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, _ = digits
    assert np.array_equal(coder.fit(X.astype(object)).transform(X), coder.fit(X).transform(X.astype(object)))
    with pytest.raises(InvalidInput, match="data must be numbers, got object"):
        coder.fit(np.array([["a", 1.0], [2.0, 3.0]], dtype=object))


def test_items_on_disk_are_read_a_few_at_a_time(digits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    """As h5py's and zarr's arrays, which could also be read at once."""

    class OnDisk:
        shape = digits[0].shape

        def __len__(self) -> int:
            return len(digits[0])

        def __getitem__(self, number: int) -> Any:
            return digits[0][number]

        def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
            raise AssertionError("all of it was read")

    coder = nc.AutoencoderCoder(width=4, training=Training(steps=3, batch_size=8)).fit(OnDisk(), progress=False)
    assert np.array_equal(coder.transform(OnDisk()), coder.transform(digits[0]))


# Errors


def test_not_fitted_is_both_libraries_error(coder: Any) -> None:
    for use in (coder.transform, coder.encode):
        with pytest.raises(NotFittedError, match=f"this {type(coder).__name__} is not fitted: call fit") as raised:
            use(np.zeros((2, 3)))
        assert isinstance(raised.value, NotFitted)
        for again in (pickle.loads(pickle.dumps(raised.value)), copy.copy(raised.value)):
            assert isinstance(again, NotFitted)
            assert isinstance(again, NotFittedError)
            assert str(again) == str(raised.value)


def test_so_is_that_of_a_model() -> None:
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
