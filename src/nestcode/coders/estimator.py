"""scikit-learn's estimator protocol without scikit-learn: parameters, column names, output as data frames.

scikit-learn itself is imported only by the methods that only it calls.
"""

import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.errors import InvalidInput

Names = NDArray[np.object_]


class Estimator:
    """The part of scikit-learn's transformer protocol that all coders share.

    Settings are the arguments of the constructor, stored under the same names.
    """

    feature_names_in_: Names  # of the data frame it was fitted on

    @property
    def n_features_in_(self) -> int:
        """The number of features it was fitted on."""
        raise NotImplementedError

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; if `deep`, also those of nested estimators, as in `base__width`."""
        settings = {name: self._given(name) for name in self._settings()}
        if deep:
            inner = {name: value.get_params() for name, value in settings.items() if hasattr(value, "get_params")}
            settings |= {f"{name}__{key}": value for name, own in inner.items() for key, value in own.items()}
        return settings

    def set_params(self, **settings: Any) -> Self:
        """Change settings; they take effect at the next fit."""
        unknown = {name for name in settings if name.partition("__")[0] not in self._settings()}
        if unknown:
            raise InvalidInput(
                f"settings must be among {', '.join(self._settings())}, got {', '.join(sorted(unknown))}"
            )
        own = {name: value for name, value in settings.items() if "__" not in name}
        type(self)(**{**self.get_params(deep=False), **own})  # raises if a value is invalid
        for name, value in own.items():
            setattr(self, name, value)
        for name in settings.keys() - own.keys():
            outer, _, key = name.partition("__")
            getattr(self, outer).set_params(**{key: settings[name]})
        return self

    @classmethod
    def _settings(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def _given(self, name: str) -> Any:
        """Return a setting as the constructor took it."""
        return getattr(self, name)

    def __repr__(self) -> str:
        settings = self.get_params(deep=False)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Self:
        """Choose what `transform` returns: an array ("default") or a data frame; None changes nothing."""
        if transform not in (None, "default", "pandas", "polars"):
            raise InvalidInput(f'transform must be "default", "pandas" or "polars", got {transform!r}')
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}  # scikit-learn's clone() copies this name
        return self

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Names:
        """Return the names of the bits: `linearcoder0`, `linearcoder1` and so on."""
        count = self._count_out()
        if input_features is not None:
            if len(input_features) != self.n_features_in_:
                raise InvalidInput(
                    f"input_features should have length equal to the {self.n_features_in_} features of the fit, "
                    f"got {len(input_features)}: leave it out"
                )
            if list(input_features) != list(getattr(self, "feature_names_in_", input_features)):
                raise InvalidInput("input_features is not equal to feature_names_in_: leave it out")
        return np.array([f"{type(self).__name__.lower()}{bit}" for bit in range(count)], dtype=object)

    def _count_out(self) -> int:
        """Return the number of columns of `transform`."""
        raise NotImplementedError

    def _store_columns(self, X: object) -> None:
        """Store the column names of the training data, at the end of a fit."""
        names = _column_names(X)
        if names is not None:
            self.feature_names_in_ = names
        else:
            vars(self).pop("feature_names_in_", None)

    def _check_columns(self, X: object) -> None:
        """Raise unless X has the columns of the fit."""
        known, names = vars(self).get("feature_names_in_"), _column_names(X)
        if known is not None and names is not None and list(known) != list(names):
            raise InvalidInput(
                f"columns must equal the columns of the fit, in the same order: {_some(known)}, got {_some(names)}: "
                "give X[list(coder.feature_names_in_)]"
            )
        shape: tuple[int, ...] = getattr(X, "shape", ())  # images have more dimensions
        if len(shape) == 2 and shape[1] != self.n_features_in_:
            raise InvalidInput(  # in the words that scikit-learn's checks expect
                f"X has {shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input: fit a new coder or give the same features"
            )

    def _framed(self, bits: NDArray[np.uint8], X: ArrayLike) -> Any:
        """Return bits in the format of `set_output`, or else of scikit-learn's global setting."""
        loaded = sys.modules.get("sklearn")
        default = "default" if loaded is None else loaded.get_config()["transform_output"]
        library = getattr(self, "_sklearn_output_config", {}).get("transform", default)
        if library == "default":
            return bits
        frame, names = import_module(library).DataFrame, self.get_feature_names_out()
        if library == "polars":
            return frame(bits, schema=names.tolist(), orient="row")
        return frame(bits, columns=names, index=X.index if isinstance(X, frame) else None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),  # bits are uint8, whatever the dtype of the data
            input_tags=InputTags(),
        )


def _column_names(X: object) -> Names | None:
    """Return the columns of a data frame, if all of them have names."""
    columns = getattr(X, "columns", None)
    names = [] if columns is None or isinstance(X, np.ndarray) else list(columns)
    return np.array(names, dtype=object) if names and all(isinstance(name, str) for name in names) else None


def _some(names: Names) -> str:
    """Return the first few names."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
