"""Nearest neighbours that vote, as scikit-learn's estimators: they keep codes instead of vectors.

Not for search itself: that is `Index`, which needs no scikit-learn.
"""

import warnings
from copy import deepcopy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Doubles, check_int
from nestcode.coders import Coder, fit
from nestcode.errors import InvalidInput, import_extra
from nestcode.index.index import Index

import_extra("sklearn", extra="sklearn", purpose="classifying or predicting by neighbours")

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

WIDTH = 256  # bits of a coder that is chosen, and 8 a feature: more say little


class NestedNeighbors(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share: an index, and the neighbours it finds."""

    def __init__(
        self,
        coder: Coder | None = None,
        *,
        n_neighbors: int = 5,
        weights: Literal["uniform", "distance"] = "uniform",
        candidates: int | None = None,
    ) -> None:
        self.coder = coder
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.candidates = candidates

    def kneighbors(self, X: ArrayLike, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """The distances to the nearest items, as their codes decode, and their rows in the data: (n, n_neighbors) each.

        There are fewer where fewer were fitted. Without `return_distance` the rows come alone.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False)
        count = check_int(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors", least=1)
        hits = self.index_.search(rows, k=min(count, len(self.index_)), candidates=self.candidates)
        return (np.sqrt(hits.distances), hits.ids) if return_distance else hits.ids

    def _learn(self, X: NDArray[Any]) -> None:
        """Fit a coder, and put all items into an index."""
        check_int(self.n_neighbors, "n_neighbors", least=1)
        if self.weights not in ("uniform", "distance"):
            raise InvalidInput(f'weights must be "uniform" or "distance", got {self.weights!r}')
        if not isinstance(self.coder, Coder | None):
            raise InvalidInput(f"coder must be one of Nestcode's coders or None, got {self.coder!r}")
        coder = deepcopy(self.coder)
        if coder is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of useless bits: nobody asked for so many
                coder = fit(X, min(WIDTH, 8 * X.shape[1]))
        elif not coder.__sklearn_is_fitted__():
            coder.fit(X)
        self.index_ = Index(coder)
        self.index_.add(X)

    def _votes(self, X: ArrayLike) -> tuple[NDArray[np.int64], Doubles]:
        """The rows of the nearest items, and how much each counts: (n, n_neighbors), 1 in all for every query."""
        distances, rows = self.kneighbors(X)
        votes = np.ones(distances.shape)
        if self.weights == "distance":
            nearest = distances[:, :1]  # if it is at 0, only those at 0 count
            votes = np.divide(nearest, distances, out=np.ones(distances.shape), where=distances > 0)
        return rows, votes / votes.sum(axis=1, keepdims=True)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        index = state.pop("index_", None)  # an index is not pickled
        return state if index is None else state | {"_kept": (index.coder, index.codes(np.arange(len(index))))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        coder, codes = state.pop("_kept", (None, None))
        super().__setstate__(state)
        if coder is not None:
            self.index_ = Index(coder)
            self.index_.add(codes)


class NestedNeighborsClassifier(ClassifierMixin, NestedNeighbors):  # type: ignore[misc]
    """The class that most of the nearest items have (needs scikit-learn).

    >>> from nestcode.data import digits
    >>> X, y = digits()
    >>> classifier = NestedNeighborsClassifier().fit(X[:1500], y[:1500])
    >>> bool(classifier.score(X[1500:], y[1500:]) > 0.95)
    True

    Args:
        coder: which codes to keep; it is copied, and fitted unless it is. By default `nestcode.fit` chooses one of 256
            bits, or fewer where there are few features. `coder__width` and its other settings can be searched.
        n_neighbors: how many neighbours vote.
        weights: "uniform", or "distance" where near ones count more.
        candidates: how many items a query is compared with (see `Index.search`).

    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Encode the items of known classes."""
        rows, labels = validate_data(self, X, y)
        check_classification_targets(labels)
        self.classes_, self._numbers = np.unique(labels, return_inverse=True)
        self._learn(rows)
        return self

    def predict_proba(self, X: ArrayLike) -> Doubles:
        """The share of the votes for each of `classes_`, (n, classes)."""
        rows, votes = self._votes(X)
        shares = np.zeros((len(rows), len(self.classes_)))
        np.add.at(shares, (np.arange(len(rows))[:, None], self._numbers[rows]), votes)
        return shares

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of each item."""
        best: NDArray[Any] = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])


class NestedNeighborsRegressor(RegressorMixin, NestedNeighbors):  # type: ignore[misc]
    """The mean of what the nearest items have (needs scikit-learn).

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 2))
    >>> regressor = NestedNeighborsRegressor(weights="distance").fit(X, X.sum(axis=1))
    >>> bool(regressor.score(X + 0.01, X.sum(axis=1) + 0.02) > 0.99)
    True

    Its arguments are those of `NestedNeighborsClassifier`.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Encode the items of known values."""
        rows, values = validate_data(self, X, y, y_numeric=True)
        self._values = values.astype(np.float64)
        self._learn(rows)
        return self

    def predict(self, X: ArrayLike) -> Doubles:
        """The value of each item."""
        rows, votes = self._votes(X)
        values: Doubles = (self._values[rows] * votes).sum(axis=1)
        return values
