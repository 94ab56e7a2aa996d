"""The semi-linear autoencoder: a one-layer encoder and a linear decoder (section 3 and appendix A of the paper).

With a linear encoder its nested optimum is PCA: theorem 1 (it is as good as an ordinary autoencoder), theorem 2 (the
units are principal directions up to scale) and theorem 3 (with orthonormal columns, up to sign). Three methods find it,
the last one slowly where the variances of directions are close:

    "solver"   eigenvectors of the covariance (`nestcode.pca`)
    "exact"    L-BFGS on the exact expected loss
    "sampled"  Adam on sampled truncations, the paper's procedure
"""

from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from nestcode.arrays import check_int
from nestcode.codes import MAX_WIDTH
from nestcode.errors import InvalidInput, NotFitted
from nestcode.lengths import Lengths, Uniform
from nestcode.nn.dropout import keep_prefix
from nestcode.nn.losses import expected_loss
from nestcode.nn.sampling import check_lengths, sample_lengths
from nestcode.pca import Moments, solve

Encoder = Literal["linear", "sigmoid", "tanh"]
Method = Literal["solver", "exact", "sampled"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda units: units,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
_STATE = ("mean", "encoder_weight", "encoder_bias", "decoder_weight", "decoder_bias")
LARGEST = 1e150  # values, whose squares are finite in float64
RESTART = 100  # steps after which L-BFGS starts anew, where the decoder is orthonormal
_STEPS = {"solver": 50, "exact": 1000, "sampled": 3000}


class SemiLinearAutoencoder(nn.Module):
    """An autoencoder with one layer each way, trained on the nested objective.

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> pca = SemiLinearAutoencoder(width=8, orthonormal=True).fit(X)
    >>> directions = np.linalg.eigh(np.cov(X.T))[1][:, ::-1][:, :8]
    >>> cosines = np.abs((pca.decoder_weight.numpy() * directions).sum(axis=0))
    >>> bool(cosines.min() > 0.99999)
    True

    Args:
        width: units of the code.
        encoder: "linear", "sigmoid" (the paper's other case; the mean of its units is not 0, and truncation drops that
            offset) or "tanh", a sigmoid without the offset.
        orthonormal: keep the decoder's columns orthonormal (theorem 3).
        lengths: the distribution of the kept length.
        centered: subtract each unit's mean over the training data. A dropped unit then stands for its mean, which is
            the best offset at every length: the paper's "added shifting constants".

    """

    mean: Tensor
    encoder_weight: Tensor  # (width, features)
    encoder_bias: Tensor  # (width,)
    decoder_weight: Tensor  # (features, width)
    decoder_bias: Tensor  # (features,), on top of the mean
    unit_mean: Tensor | None  # (width,), where units are centered

    def __init__(
        self,
        width: int,
        encoder: Encoder = "linear",
        orthonormal: bool = False,
        lengths: Lengths | None = None,
        centered: bool = False,
    ) -> None:
        super().__init__()
        if encoder not in _ACTIVATIONS:
            raise InvalidInput(f"encoder must be one of {', '.join(_ACTIVATIONS)}, got {encoder!r}")
        self.width = check_int(width, "width", least=1, most=MAX_WIDTH)
        self.encoder = encoder
        self.orthonormal, self.centered = orthonormal, centered
        self.lengths = Uniform() if lengths is None else lengths
        check_lengths(self.lengths)
        for name in (*_STATE, "unit_mean"):
            self.register_buffer(name, None)

    def fit(self, X: ArrayLike | Tensor, *, by: Method | None = None, steps: int | None = None, seed: int = 0) -> Self:
        """Train on data, (n, features).

        Args:
            X: the data; it is centered here.
            by: "solver" (the default for a linear encoder), "exact" (the default for any other encoder) or "sampled".
            steps: the most iterations; by default 50, 1,000 and 3,000. Sampled truncations tell directions of close
                variances apart only after many steps, more than the default for the first two of digits.
            seed: the seed of the initialization and of the sampled lengths.

        """
        by = by or ("solver" if self.encoder == "linear" else "exact")
        array = _checked(X)
        self._check(by, array.shape[1])
        steps = check_int(_STEPS[by] if steps is None else steps, "steps", least=1)
        seed = check_int(seed, "seed", least=0)
        if by == "solver":
            self._solve(array, steps, seed)
        else:
            data = torch.from_numpy(array.astype(np.float64))
            mean = data.mean(dim=0)
            data -= mean
            # The optimizers need data of a known scale, small enough for units to start where tanh is linear. The
            # orthonormal decoder of bounded units cannot be rescaled.
            fixed = self.orthonormal and self.encoder != "linear"
            scale = 1.0 if fixed else 4 * float(data.square().mean().sqrt()) or 1.0
            parameters = (self._descend if by == "exact" else self._sample)(data / scale, steps, seed)
            self._finish(parameters, scale, mean)
            if self.centered:
                self.unit_mean = None
                self.unit_mean = self.encode(data + mean).mean(dim=0)
        return self

    def forward(self, X: ArrayLike | Tensor) -> Tensor:
        """Return reconstructions, (n, features) -> (n, features)."""
        return self.decode(self.encode(X))

    def encode(self, X: ArrayLike | Tensor) -> Tensor:
        """Return codes, (n, features) -> (n, width)."""
        self._check_fitted()
        y = torch.as_tensor(X, dtype=self.mean.dtype, device=self.mean.device)
        if y.ndim != 2 or y.shape[1] != len(self.mean):
            raise InvalidInput(f"data must be (n, {len(self.mean)}), as in fit, got shape {tuple(y.shape)}")
        y = y - self.mean
        units = _ACTIVATIONS[self.encoder](y @ self.encoder_weight.T + self.encoder_bias)
        return units if self.unit_mean is None else units - self.unit_mean

    def decode(self, code: Tensor) -> Tensor:
        """Decode any number of leading units, (n, length) -> (n, features)."""
        self._check_fitted()
        if code.ndim != 2 or code.shape[1] > self.width:
            raise InvalidInput(f"a code must be (n, up to {self.width}), got shape {tuple(code.shape)}")
        return code.to(self.mean) @ self.decoder_weight[:, : code.shape[1]].T + self.decoder_bias + self.mean

    def _solve(self, array: NDArray[Any], steps: int, seed: int) -> None:
        moments = Moments()
        for first in range(0, len(array), 4096):
            piece = array[first : first + 4096]
            moments.add(piece.astype(np.float64 if piece.dtype.itemsize > 4 else np.float32))
        solution = solve(moments.covariance(), self.width, np.random.default_rng(seed), rounds=steps)
        decoder = torch.from_numpy(solution.decoder)
        mean = torch.from_numpy(moments.mean())
        self._store(decoder.T.clone(), torch.zeros(self.width), decoder, torch.zeros(len(decoder)), mean)

    def _descend(self, data: Tensor, steps: int, seed: int) -> list[Tensor]:
        if self.encoder == "linear":  # the loss depends on the covariance only: the R factor of the data has the same
            rows = torch.linalg.qr(data, mode="r")[1]
            data = rows * (len(rows) / len(data)) ** 0.5
        parameters = self._start(data.shape[1], seed)
        each = RESTART if self.orthonormal else steps
        for done in range(0, steps, each):
            self._orthonormalize(parameters)
            optimizer = torch.optim.LBFGS(
                parameters, max_iter=min(each, steps - done), history_size=30, tolerance_grad=1e-10, tolerance_change=0,
                line_search_fn="strong_wolfe",
            )  # fmt: skip

            def closure(optimizer: torch.optim.LBFGS = optimizer) -> Tensor:
                optimizer.zero_grad()
                code, decoder, bias = self._forward(data, parameters)
                loss = expected_loss(code, decoder, data, self.lengths, bias)
                loss.backward()
                return loss

            optimizer.step(closure)
        return parameters

    def _orthonormalize(self, parameters: list[Tensor]) -> None:
        """Replace an orthonormal decoder by the Q of the QR decomposition that it stands for.

        L-BFGS moves the columns out of proportion, since their scale is free, and its steps become tiny.
        """
        if self.orthonormal:
            with torch.no_grad():
                parameters[2].copy_(torch.linalg.qr(parameters[2])[0])

    def _sample(self, data: Tensor, steps: int, seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        parameters = self._start(data.shape[1], seed)
        optimizer = torch.optim.Adam(parameters, lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            batch = data[torch.randint(len(data), (min(len(data), 256),), generator=generator)]
            optimizer.zero_grad()
            code, decoder, bias = self._forward(batch, parameters)
            kept = sample_lengths(self.lengths, len(batch), self.width, generator=generator)
            error = batch - keep_prefix(code, kept) @ decoder.T - bias
            (error.square().sum() / len(batch)).backward()
            optimizer.step()
            schedule.step()
        return parameters

    def _start(self, features: int, seed: int) -> list[Tensor]:
        """Return initial encoder weight and bias, decoder weight and bias."""
        generator = torch.Generator().manual_seed(seed)
        shapes = [(self.width, features), (self.width,), (features, self.width), (features,)]
        scale = [0.1, 0.0, 0.1, 0.0]
        return [
            (torch.randn(shape, generator=generator, dtype=torch.float64) * size).requires_grad_()
            for shape, size in zip(shapes, scale, strict=True)
        ]

    def _forward(self, data: Tensor, parameters: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the code of the data, and the decoder's weight and bias."""
        weight, bias, decoder, decoder_bias = parameters
        if self.orthonormal:
            decoder = torch.linalg.qr(decoder)[0]
        if self.encoder == "linear":  # data and code are centered: the paper's zero biases
            if self.orthonormal:  # at every length the best encoder of such a decoder is its transpose
                weight = decoder.T
            return data @ weight.T, decoder, torch.zeros_like(decoder_bias)
        units = _ACTIVATIONS[self.encoder](data @ weight.T + bias)
        return units - units.mean(dim=0) if self.centered else units, decoder, decoder_bias

    def _finish(self, parameters: list[Tensor], scale: float, mean: Tensor) -> None:
        """Store parameters trained on data divided by `scale`."""
        weight, bias, decoder, decoder_bias = (parameter.detach() for parameter in parameters)
        if self.orthonormal:
            decoder = torch.linalg.qr(decoder)[0]
            weight = decoder.T.clone() if self.encoder == "linear" else weight
            self._store(weight, bias, decoder, decoder_bias, mean)
        else:
            self._store(weight / scale, bias, decoder * scale, decoder_bias * scale, mean)

    def _store(self, weight: Tensor, bias: Tensor, decoder: Tensor, decoder_bias: Tensor, mean: Tensor) -> None:
        """Replace the whole state at once, so that an interrupted fit leaves the previous state."""
        self.mean = mean
        self.encoder_weight, self.encoder_bias = weight, bias.to(weight)
        self.decoder_weight, self.decoder_bias = decoder, decoder_bias.to(decoder)

    def _check(self, by: str, features: int) -> None:
        if by not in _STEPS:
            raise InvalidInput(f"by must be one of {', '.join(_STEPS)}, got {by!r}")
        if by == "solver" and self.encoder != "linear":
            raise InvalidInput(f'the solver needs a linear encoder, got {self.encoder!r}: fit it by="exact"')
        if self.width > features:
            raise InvalidInput(f"width must be at most the number of features {features}, got {self.width}")

    def _check_fitted(self) -> None:
        if self.get_buffer("mean") is None:
            raise NotFitted("this SemiLinearAutoencoder is not fitted: call fit(X) first")

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        units = len(state.get(prefix + "encoder_bias", range(self.width)))
        if units != self.width:
            rest[-1].append(f"the state is of {units} units, and the model of {self.width}")
            return
        for name in (*_STATE, "unit_mean"):  # a model that was not fitted has no buffers yet
            if prefix + name in state:
                setattr(self, name, torch.empty_like(state[prefix + name]))
        super()._load_from_state_dict(state, prefix, *rest)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        return f"{self.width}, encoder={self.encoder!r}, orthonormal={self.orthonormal}, lengths={self.lengths}" + (
            ", centered=True" if self.centered else ""
        )


def _checked(X: ArrayLike | Tensor) -> NDArray[Any]:
    if isinstance(X, Tensor):
        X = X.detach().cpu().to(torch.promote_types(X.dtype, torch.float32) if X.is_floating_point() else X.dtype)
    array = np.asarray(X)
    if array.ndim != 2 or len(array) == 0 or array.dtype.kind not in "fiub":
        raise InvalidInput(f"data must be numeric, (n, features), got {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidInput("data must be finite: drop or impute rows with NaN or infinities first")
    if array.dtype.kind == "f" and float(np.abs(array).max(initial=0)) > LARGEST:
        raise InvalidInput(f"data must be within {LARGEST:g}, or its squares overflow: rescale it first")
    return array
