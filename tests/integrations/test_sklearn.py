"""The k-nearest-neighbors estimators against scikit-learn's own."""

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nestcode import LinearCoder, ResidualCoder
from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.integrations.sklearn import NestedNeighborsClassifier, NestedNeighborsRegressor

BOTH = [NestedNeighborsClassifier, NestedNeighborsRegressor]


@pytest.fixture(scope="module")
def labeled() -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4))
    return X, np.where(X[:, 0] > 0.3, "high", np.where(X[:, 1] > 0, "left", "low"))


@pytest.mark.parametrize("kind", BOTH)
def test_check_estimator_passes(kind: Any) -> None:
    from sklearn.utils import estimator_checks  # which imports all estimators, and only this process needs them

    estimator_checks.check_estimator(kind(), on_skip=None)
    estimator_checks.check_dataframe_column_names_consistency(kind.__name__, kind())


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_predictions_equal_scikit_learns_on_decoded_items(
    labeled: tuple[NDArray[Any], NDArray[Any]], weights: Any
) -> None:
    """The plain twin is scikit-learn's estimator fitted on decoded items."""
    X, y = labeled
    coder = LinearCoder(width=20).fit(X)
    decoded = coder.decode(coder.encode(X)).astype(np.float64)
    queries = np.random.default_rng(1).standard_normal((50, 4))
    for ours, theirs, values in (
        (NestedNeighborsClassifier, KNeighborsClassifier, y),
        (NestedNeighborsRegressor, KNeighborsRegressor, X[:, 2]),
    ):
        fast = ours(LinearCoder(width=20), weights=weights, candidates=len(X)).fit(X, values)
        slow = theirs(weights=weights, algorithm="brute").fit(decoded, values)
        # Items that decode alike tie, and the libraries may break ties differently.
        near, far = fast.kneighbors(queries, 6)[0], slow.kneighbors(queries, 6)[0]
        assert np.allclose(near, far, atol=1e-4)
        clear = far[:, 5] - far[:, 4] > 1e-3
        assert clear.sum() > 25
        if ours is NestedNeighborsClassifier:
            assert np.allclose(fast.predict_proba(queries)[clear], slow.predict_proba(queries)[clear], atol=1e-3)
        else:
            assert np.allclose(fast.predict(queries)[clear], slow.predict(queries)[clear], atol=1e-3)


def test_accuracy_is_close_to_that_of_uncompressed_vectors() -> None:
    X, y = digits()
    coder = LinearCoder(width=64)
    model = make_pipeline(StandardScaler(with_std=False), NestedNeighborsClassifier(coder)).fit(X[:1000], y[:1000])
    exact = KNeighborsClassifier().fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) > exact.score(X[1000:], y[1000:]) - 0.03
    assert not coder.__sklearn_is_fitted__()


def test_grid_search_reaches_the_coders_settings(labeled: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, y = labeled
    model = NestedNeighborsClassifier(LinearCoder(width=1))
    search = GridSearchCV(model, {"coder__width": [1, 24], "n_neighbors": [5]}, cv=3).fit(X, y)
    assert search.best_params_ == {"coder__width": 24, "n_neighbors": 5}


def test_probabilities_sum_to_one(labeled: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, y = labeled
    model = NestedNeighborsClassifier(LinearCoder(width=16), n_neighbors=7).fit(X, y)
    shares = model.predict_proba(X)
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.allclose(shares * 7, np.round(shares * 7))
    assert model.classes_.tolist() == ["high", "left", "low"]
    assert np.array_equal(model.predict(X), model.classes_[shares.argmax(axis=1)])


def test_all_items_vote_when_there_are_fewer_than_n_neighbors() -> None:
    model = NestedNeighborsRegressor(LinearCoder(width=2), n_neighbors=9).fit(
        [[0.0], [1.0], [2.0], [3.0]], [0, 1, 2, 3]
    )
    assert model.predict([[5.0]]).tolist() == [1.5]
    assert model.kneighbors([[5.0]], return_distance=False).shape == (1, 4)


def test_items_at_distance_zero_outvote_all_others() -> None:
    X = [[0.0], [0.0], [4.0], [4.0]]
    model = NestedNeighborsRegressor(LinearCoder(width=1), weights="distance").fit(X, [1, 3, 10, 20])
    assert model.predict(X).tolist() == [2, 2, 15, 15]


def test_a_fitted_coder_is_not_fitted_again(labeled: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, y = labeled
    coder = ResidualCoder(width=16).fit(X[:300])
    model = NestedNeighborsClassifier(coder).fit(X, y)
    assert model.index_.coder is not None
    assert model.index_.coder.fingerprint == coder.fingerprint


def test_a_pickle_predicts_the_same(labeled: tuple[NDArray[Any], NDArray[Any]]) -> None:
    X, y = labeled
    model = NestedNeighborsClassifier(LinearCoder(width=16)).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert pickle.loads(pickle.dumps(NestedNeighborsClassifier(n_neighbors=3))).n_neighbors == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be an integer of at least 1, got 0"),
        ({"weights": "near"}, 'weights must be "uniform" or "distance", got \'near\''),
        ({"coder": StandardScaler()}, "coder must be one of Nestcode's coders or None, got StandardScaler"),
    ],
)
def test_invalid_settings_are_named(
    labeled: tuple[NDArray[Any], NDArray[Any]], wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        NestedNeighborsClassifier(**wrong).fit(*labeled)
