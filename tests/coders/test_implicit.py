"""ImplicitCoder: training pays, bits nest, and an index ranks by additive codebooks first."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nestcode as nc
from nestcode.coders.implicit.additive import fit_additive
from nestcode.errors import InvalidInput
from nestcode.lengths import Geometric, Uniform
from nestcode.training import Invariance, Training
from tests import twins
from tests.coders.cases import fitted, fresh_rows, mse, training_rows


def coder(**settings: Any) -> nc.ImplicitCoder:
    base, training = nc.ResidualCoder(8, beams=1), Training(steps=6, batch_size=32)
    return nc.ImplicitCoder(**{"base": base, "units": 8, "layers": 1, "training": training, **settings})


def torus(count: int) -> Any:
    """Points of a curved surface, whose residuals depend on where on it they lie."""
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, (2, count, 1))
    return np.concatenate([wave(k * angle) for wave in (np.cos, np.sin) for angle in angles for k in (1, 2)], axis=1)


def test_codebooks_that_adapt_have_less_error_on_fresh_items() -> None:
    rows = torus(2500)
    base = nc.ResidualCoder(16, beams=2).fit(rows[:2000])
    training = Training(steps=200, batch_size=64, learning_rate=5e-3)
    adapted = coder(base=base, units=32, training=training).fit(rows[:2000], progress=False)
    codes, fresh = adapted.encode(rows[2000:]), rows[2000:]
    before = mse(base.decode(base.encode(fresh)), fresh)
    assert mse(adapted.decode(codes), fresh) < 0.98 * before
    assert mse(adapted.decode(codes), fresh) < mse(adapted.additive_.decode(codes), fresh) < 1.2 * before


def test_bits_within_a_byte_name_subtrees() -> None:
    implicit = fitted("implicit")
    codes = implicit.encode(training_rows("implicit")[:300])
    for length in (3, 11):  # beyond whole bytes, what bits add depends on nothing but these bits
        whole = implicit.decode(codes.prefix(length // 8 * 8))
        added = implicit.decode(codes.prefix(length)) - whole
        known = codes.packed[:, length // 8] >> (8 - length % 8)
        for value in np.unique(known):
            some = added[known == value]
            np.testing.assert_allclose(some, np.broadcast_to(some[0], some.shape), atol=1e-4)


def test_an_index_reranks_by_what_the_network_decodes() -> None:
    implicit, rows, queries = fitted("implicit"), training_rows("implicit")[:300], fresh_rows("implicit")[:5]
    index = nc.Index(implicit)
    index.add(rows)
    exact = twins.distances(queries, implicit.decode(implicit.encode(rows)), "l2")
    hits = index.search(queries, k=5, candidates=299, rerank=200)
    np.testing.assert_allclose(np.sort(exact, axis=1)[:, :5], hits.distances, rtol=1e-3)
    few = index.search(queries, k=5, candidates=150, rerank=5)  # the additive codebooks chose these
    np.testing.assert_allclose(np.take_along_axis(exact, few.ids, axis=1), few.distances, rtol=1e-3)


def test_a_resumed_fit_equals_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, file = training_rows("implicit")[:200], tmp_path / "run.ckpt"
    whole = coder().fit(rows, progress=False)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("nestcode.training.implicit.ImplicitObjective.finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            coder().fit(rows, checkpoint=file, checkpoint_every=4, progress=False)
    resumed = coder().fit(rows, checkpoint=file, resume=True, progress=False)
    assert resumed.fingerprint == whole.fingerprint
    assert coder(lengths=Geometric(0.5)).fit(rows, progress=False).encode(rows) == whole.encode(rows)  # of one stage


def test_a_loaded_coder_has_the_settings_it_was_fitted_with_and_fits_again_alike(tmp_path: Path) -> None:
    rows = training_rows("implicit")[:200]
    one = coder(beams=2, preselected=3, lengths=Geometric(0.5)).fit(rows, progress=False)
    one.save(tmp_path / "a.coder")
    again = nc.load_coder(tmp_path / "a.coder")
    assert isinstance(again, nc.ImplicitCoder)
    assert (again.beams, again.preselected, again.units, again.layers) == (2, 3, 8, 1)
    assert (again.lengths, again.base.get_params()) == (Geometric(0.5), one.base.get_params())
    fingerprint = again.fingerprint
    assert again.fit(rows, progress=False).fingerprint == one.fingerprint == fingerprint


# Additive codebooks


def expected_error(codes: torch.Tensor, rows: torch.Tensor, codebooks: torch.Tensor, pmf: Any) -> float:
    entries = torch.stack([book[chosen] for book, chosen in zip(codebooks, codes.T, strict=True)], dim=1)
    errors = (rows[:, None] - entries.cumsum(dim=1)).square().sum(dim=2).mean(dim=0)
    return float((errors * torch.from_numpy(pmf)).sum())


def test_additive_codebooks_minimize_the_expected_error_of_a_prefix() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 8, (400, 3), generator=generator)
    codes[:, 2] = (codes[:, 2] + codes[:, 0]) // 2  # so that stages depend on each other
    rows = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    survival, pmf = Uniform().survival(3), Uniform().pmf(3)
    found = [fit_additive(codes, rows, survival, sweeps) for sweeps in (1, 2, 4, 60)]
    errors = [expected_error(codes, rows, codebooks, pmf) for codebooks, _ in found]
    assert errors == sorted(errors, reverse=True)
    design = torch.nn.functional.one_hot(codes, 8).double()  # the exact optimum: each prefix is one regression
    weights = torch.from_numpy(pmf).sqrt()
    kept = torch.stack([design * (torch.arange(3) <= last)[:, None] * weights[last] for last in range(3)])
    wanted = torch.stack([rows * weight for weight in weights])
    best = torch.linalg.lstsq(kept.flatten(0, 1).flatten(1), wanted.flatten(0, 1), driver="gelsd").solution
    best = torch.nn.functional.pad(best.view(3, 8, 2), (0, 0, 0, 248))
    assert errors[-1] == pytest.approx(expected_error(codes, rows, best, pmf), rel=1e-6)
    counts = found[0][1]
    assert counts[0].tolist() == torch.bincount(codes[:, 0], minlength=256).tolist()


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": nc.LinearCoder(8)}, "base must be ResidualCoder"),
        ({"units": 0}, "units must be an integer of at least 1, got 0"),
        ({"layers": 0}, "layers must be an integer of at least 1, got 0"),
        ({"beams": 2000}, "beams must be at most 1024, got 2000"),
        ({"preselected": 300}, "preselected must be at most the 256 entries of a codebook, got 300"),
        ({"lengths": 8}, "lengths must be Lengths"),
        ({"training": 8}, "training must be Training"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        coder(**settings)


def test_techniques_of_autoencoders_are_refused() -> None:
    with pytest.raises(InvalidInput, match="an implicit coder is trained by Adam, and its bits are not"):
        coder(training=Training(invariance=Invariance(1.0))).fit(np.eye(8))


def test_a_base_of_other_data_is_refused() -> None:
    base = nc.ResidualCoder(8).fit(np.eye(5))
    with pytest.raises(InvalidInput, match="base was fitted on 5 features, the data has 8: fit base on this data"):
        coder(base=base).fit(np.eye(8))
