"""Section 3 of the paper: theorems 1 to 3 as tests, and what is refused."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from nestcode.arrays import Doubles
from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.lengths import Empirical, Uniform
from nestcode.nn import SemiLinearAutoencoder
from nestcode.reproduce.pca.experiment import (
    commutation_error,
    commuting_permutations,
    cosines,
    gradients,
    off_diagonal,
    recovered_t,
    unit_coupling,
)

WIDTH = 6
X = digits()[0].astype(np.float64)
VALUES, VECTORS = (part[..., ::-1] for part in np.linalg.eigh(np.cov(X.T, bias=True)))
DIRECTIONS: Doubles = VECTORS[:, :WIDTH]
ORDINARY = Empirical([1], lengths=[WIDTH])


def cost(model: SemiLinearAutoencoder, length: int = WIDTH) -> float:
    with torch.no_grad():
        return float(np.sum((X - model.decode(model.encode(X)[:, :length]).numpy()) ** 2, axis=1).mean())


@pytest.fixture(scope="module")
def nested() -> SemiLinearAutoencoder:
    return SemiLinearAutoencoder(WIDTH).fit(X, by="exact", steps=500)


@pytest.fixture(scope="module")
def ordinary() -> SemiLinearAutoencoder:
    return SemiLinearAutoencoder(WIDTH, lengths=ORDINARY).fit(X, by="exact", steps=250)


def test_theorem_1_the_nested_optimum_is_as_good_as_the_ordinary_one(
    nested: SemiLinearAutoencoder, ordinary: SemiLinearAutoencoder
) -> None:
    assert cost(nested) == pytest.approx(cost(ordinary), rel=1e-5)
    assert cost(nested) == pytest.approx(VALUES[WIDTH:].sum(), rel=1e-5)
    for length in range(1, WIDTH + 1):  # and is so at every length
        assert cost(nested, length) == pytest.approx(VALUES[length:].sum(), rel=1e-4)


def test_theorem_2_t_commutes_and_is_diagonal(nested: SemiLinearAutoencoder, ordinary: SemiLinearAutoencoder) -> None:
    t = recovered_t(nested.decoder_weight.numpy(), DIRECTIONS)
    assert commutation_error(t) < 1e-3
    assert off_diagonal(t) < 1e-4
    assert np.abs(np.diag(t) - 1).max() > 0.1  # scales are free
    free = recovered_t(ordinary.decoder_weight.numpy(), DIRECTIONS)
    assert commutation_error(free) > 0.1
    assert off_diagonal(free) > 0.3


def test_the_lemma_no_permutation_commutes() -> None:
    assert commuting_permutations(4) == 0
    assert commutation_error(np.eye(4)) == 0
    assert commutation_error(np.triu(np.ones((3, 3)))) < 1e-12  # the lemma allows A = 0 or B = 0 in each step
    assert commutation_error(np.array([[1.0, 0.5], [0.5, 1.0]])) > 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_theorem_3_orthonormal_units_are_the_eigenvectors(seed: int) -> None:
    model = SemiLinearAutoencoder(WIDTH, orthonormal=True).fit(X, seed=seed)
    decoder = model.decoder_weight.numpy()
    np.testing.assert_allclose(decoder.T @ decoder, np.eye(WIDTH), atol=1e-12)
    assert (1 - cosines(decoder, DIRECTIONS)).max() < 1e-9


def test_an_ordinary_autoencoder_recovers_the_subspace_only(ordinary: SemiLinearAutoencoder) -> None:
    decoder = ordinary.decoder_weight.numpy()
    assert cosines(decoder, DIRECTIONS).max() < 0.99
    inside = np.linalg.norm(DIRECTIONS.T @ np.linalg.qr(decoder)[0]) ** 2
    assert inside == pytest.approx(WIDTH, abs=1e-4)


def test_the_solver_never_decomposes_the_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("eigh", "eig", "eigvalsh", "svd"):
        real = getattr(np.linalg, name)

        def small_only(matrix: Any, *rest: Any, real: Any = real, **named: Any) -> Any:
            if max(np.shape(matrix)) >= 64:
                raise AssertionError("the full covariance was decomposed")
            return real(matrix, *rest, **named)

        monkeypatch.setattr(np.linalg, name, small_only)
    with pytest.raises(AssertionError, match="decomposed"):
        np.linalg.eigh(np.eye(64))
    model = SemiLinearAutoencoder(16, orthonormal=True).fit(X)
    assert (1 - cosines(model.decoder_weight.numpy(), VECTORS)).max() < 1e-6


def test_sampled_truncations_come_close() -> None:
    model = SemiLinearAutoencoder(4).fit(X, by="sampled", steps=2000)
    assert cosines(model.decoder_weight.numpy(), DIRECTIONS).min() > 0.9


def test_a_sigmoid_with_an_offset_for_each_length_is_pca() -> None:
    model = SemiLinearAutoencoder(4, encoder="sigmoid", centered=True).fit(X)
    assert cosines(model.decoder_weight.numpy(), DIRECTIONS).min() > 1 - 1e-3
    code = model.encode(X)
    assert code.mean(dim=0).abs().max() < 1e-9
    again = SemiLinearAutoencoder(4, encoder="sigmoid", centered=True)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.encode(X), code)


def test_a_sigmoid_is_not_pca_and_a_tanh_without_its_offset_is() -> None:
    sigmoid = SemiLinearAutoencoder(4, encoder="sigmoid").fit(X, steps=300)
    tanh = SemiLinearAutoencoder(4, encoder="tanh").fit(X, steps=300)
    with torch.no_grad():
        assert sigmoid.encode(X).mean(dim=0).abs().min() > 0.1  # the offset that truncation drops
        assert tanh.encode(X).mean(dim=0).abs().max() < 0.01
    assert cosines(sigmoid.decoder_weight.numpy(), DIRECTIONS).min() < 0.9
    assert cosines(tanh.decoder_weight.numpy(), DIRECTIONS).min() > 0.99


def test_gradients_decay_with_the_unit_and_so_does_covariance() -> None:
    geometric, _, uniform = gradients(X).values()
    assert geometric[-1] / geometric[0] < 0.05 * uniform[-1] / uniform[0]
    measured, theory, covariance = unit_coupling(X, repeats=20).values()
    np.testing.assert_allclose(measured, theory, atol=0.02)
    assert covariance[0] == 1
    assert covariance[12] < 0.2 * covariance[1]


def test_integers_and_float32_give_the_same_solution() -> None:
    whole = (X * 16).astype(np.uint8)
    kinds = (whole, whole.astype(np.float32), whole.astype(np.float64))
    models = [SemiLinearAutoencoder(4).fit(data) for data in kinds]
    for model in models[1:]:
        assert cosines(model.decoder_weight.numpy(), models[0].decoder_weight.numpy()).min() > 1 - 1e-6


@pytest.mark.parametrize("encoder", ["linear", "tanh"])
def test_the_scale_of_the_data_does_not_matter(encoder: Any) -> None:
    decoders = [
        SemiLinearAutoencoder(3, encoder=encoder).fit(X * scale, by="exact", steps=20).decoder_weight / scale
        for scale in (1.0, 1e-6, 255.0)
    ]
    for decoder in decoders[1:]:
        torch.testing.assert_close(decoder, decoders[0], rtol=1e-6, atol=1e-6)


def test_it_is_a_module_whose_state_can_be_saved() -> None:
    model = SemiLinearAutoencoder(4).fit(X)
    other = SemiLinearAutoencoder(4)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X), model(X))
    assert model.float()(X[:2]).dtype == torch.float32
    with pytest.raises(RuntimeError, match="the state is of 4 units, and the model of 5"):
        SemiLinearAutoencoder(5).load_state_dict(model.state_dict())


def test_tensors_of_any_dtype_are_data() -> None:
    X16 = torch.from_numpy(X).bfloat16().requires_grad_()
    assert torch.equal(small().fit(X16).decoder_weight, small().fit(X16.detach().float().numpy()).decoder_weight)


def small(**settings: Any) -> SemiLinearAutoencoder:
    return SemiLinearAutoencoder(**{"width": 4, **settings})


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "encoder": (lambda: small(encoder="relu"), "encoder must be one of linear, sigmoid, tanh, got 'relu'"),
    "width": (lambda: small(width=0), "width must be an integer of at least 1, got 0"),
    "lengths": (lambda: small(lengths=0.9), "must be a distribution from nestcode.lengths"),
    "too wide": (lambda: small(width=65).fit(X), "at most the number of features 64, got 65"),
    "method": (lambda: small().fit(X, by="sgd"), "by must be one of solver, exact, sampled, got 'sgd'"),  # type: ignore[arg-type]
    "solver for sigmoid": (
        lambda: small(encoder="sigmoid").fit(X, by="solver"),
        "the solver needs a linear encoder, got 'sigmoid': fit it by=\"exact\"",
    ),
    "not fitted": (lambda: small().encode(X), "not fitted: call fit(X) first"),
    "other features": (lambda: small().fit(X).encode(X[:, :5]), "data must be (n, 64), as in fit, got shape"),
    "long code": (lambda: small().fit(X).decode(torch.zeros(1, 5)), "a code must be (n, up to 4), got shape (1, 5)"),
    "flat code": (lambda: small().fit(X).decode(torch.zeros(4)), "a code must be (n, up to 4), got shape (4,)"),
    "code of no model": (lambda: small().decode(torch.zeros(1, 4)), "not fitted: call fit(X) first"),
    "huge": (lambda: small().fit(X * 1e200), "data must be within 1e+150, or its squares overflow: rescale it"),
    "seed": (lambda: small().fit(X, seed=-1), "seed must be an integer of at least 0, got -1"),
    "NaN": (lambda: small(width=1).fit([[np.nan, 1.0]]), "data must be finite"),
    "flat": (lambda: small().fit(X[0]), "data must be numeric, (n, features), got float64 of shape (64,)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_it_prints_its_settings() -> None:
    assert str(SemiLinearAutoencoder(4, lengths=Uniform())) == (
        "SemiLinearAutoencoder(4, encoder='linear', orthonormal=False, lengths=Uniform())"
    )
