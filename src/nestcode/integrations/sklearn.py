"""k-nearest-neighbors estimators for scikit-learn that store codes instead of vectors.

They fit into scikit-learn's pipelines and grid searches. For search itself use `nestcode.Index`, which does not need
scikit-learn.
"""

import warnings
from copy import deepcopy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Doubles, Ids, check_int
from nestcode.coders import Coder, fit
from nestcode.errors import InvalidInput, import_extra
from nestcode.index import Index

import_extra("sklearn", extra="sklearn", purpose="nestcode.integrations.sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

__all__ = ["NestedNeighborsClassifier", "NestedNeighborsRegressor"]

WIDTH = 256  # bits of the default coder, and at most 8 per feature: more hardly lower its error


class NestedNeighbors(BaseEstimator):  # type: ignore[misc]
    """Base class of the two estimators: an index of codes and the neighbors it returns."""

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
        """Return the distances to the nearest decoded items and their rows in the training data.

        Each is (n, n_neighbors), with fewer columns if fewer items were fitted. `return_distance=False` returns the
        rows alone.
        """
        check_is_fitted(self)
        queries = validate_data(self, X, reset=False)
        count = check_int(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors", least=1)
        hits = self.index_.search(queries, k=min(count, len(self.index_)), candidates=self.candidates)
        return (np.sqrt(hits.distances), hits.ids) if return_distance else hits.ids

    def _build_index(self, X: NDArray[Any]) -> None:
        """Fit the coder unless it is fitted, and add all items to an index."""
        check_int(self.n_neighbors, "n_neighbors", least=1)
        if self.weights not in ("uniform", "distance"):
            raise InvalidInput(f'weights must be "uniform" or "distance", got {self.weights!r}')
        if not isinstance(self.coder, Coder | None):
            raise InvalidInput(f"coder must be one of Nestcode's coders or None, got {self.coder!r}")
        coder = deepcopy(self.coder)
        if coder is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about unallocated bits: the user did not choose the width
                coder = fit(X, min(WIDTH, 8 * X.shape[1]))
        elif not coder.__sklearn_is_fitted__():
            coder.fit(X)
        self.index_ = Index(coder)
        self.index_.add(X)

    def _weighted_neighbors(self, X: ArrayLike) -> tuple[Ids, Doubles]:
        """Return the rows of the nearest items and weights that sum to 1 per query, (n, n_neighbors) each."""
        distances, rows = self.kneighbors(X)
        weights = np.ones(distances.shape)
        if self.weights == "distance":
            nearest = distances[:, :1]  # where it is 0, only items at distance 0 keep a weight
            weights = np.divide(nearest, distances, out=np.ones(distances.shape), where=distances > 0)
        return rows, weights / weights.sum(axis=1, keepdims=True)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        index = state.pop("index_", None)  # an Index has locks and threads and is not pickled
        return state if index is None else state | {"_stored": (index.coder, index.codes(np.arange(len(index))))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        coder, codes = state.pop("_stored", (None, None))
        super().__setstate__(state)
        if coder is not None:
            self.index_ = Index(coder)
            self.index_.add(codes)


class NestedNeighborsClassifier(ClassifierMixin, NestedNeighbors):  # type: ignore[misc]
    """k-nearest-neighbors classifier on nested codes.

    >>> from nestcode.data import digits
    >>> X, y = digits()
    >>> classifier = NestedNeighborsClassifier().fit(X[:1500], y[:1500])
    >>> bool(classifier.score(X[1500:], y[1500:]) > 0.95)
    True

    Args:
        coder: the coder of the items. It is copied, and fitted unless it is already. By default `nestcode.fit` chooses
            one of 256 bits, or of 8 bits per feature if that is less. Grid search reaches its settings as
            `coder__width` and so on.
        n_neighbors: the number of neighbors that vote.
        weights: "uniform", or "distance" to weight neighbors by inverse distance.
        candidates: the number of items scored per query (see `Index.search`).

    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Encode the training items and remember their classes."""
        rows, labels = validate_data(self, X, y)
        check_classification_targets(labels)
        self.classes_, self._labels = np.unique(labels, return_inverse=True)
        self._build_index(rows)
        return self

    def predict_proba(self, X: ArrayLike) -> Doubles:
        """Return the weighted share of neighbors in each of `classes_`, (n, classes)."""
        rows, weights = self._weighted_neighbors(X)
        shares = np.zeros((len(rows), len(self.classes_)))
        np.add.at(shares, (np.arange(len(rows))[:, None], self._labels[rows]), weights)
        return shares

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each item, (n,)."""
        best: NDArray[Any] = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])


class NestedNeighborsRegressor(RegressorMixin, NestedNeighbors):  # type: ignore[misc]
    """k-nearest-neighbors regressor on nested codes.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 2))
    >>> regressor = NestedNeighborsRegressor(weights="distance").fit(X, X.sum(axis=1))
    >>> bool(regressor.score(X + 0.01, X.sum(axis=1) + 0.02) > 0.99)
    True

    It has the arguments of `NestedNeighborsClassifier`.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Encode the training items and remember their values."""
        rows, values = validate_data(self, X, y, y_numeric=True)
        self._values = values.astype(np.float64)
        self._build_index(rows)
        return self

    def predict(self, X: ArrayLike) -> Doubles:
        """Return the weighted mean of the neighbors' values, (n,)."""
        rows, weights = self._weighted_neighbors(X)
        values: Doubles = (self._values[rows] * weights).sum(axis=1)
        return values
