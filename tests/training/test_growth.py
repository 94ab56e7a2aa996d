"""A code grows while that pays, and its old prefixes stay the same."""

from typing import Any

import pytest
import torch

from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.lengths import Geometric
from nestcode.nn import Groups
from nestcode.training import Growth
from tests.training.runs import learn, network, settings


def grown(**changes: Any) -> tuple[int, list[int]]:
    growth = {"start": 8, "step": 8, "most": 40, "least": 0.0, **changes}
    model, reports = learn(settings("growth", growth=Growth(**growth)))
    return model.width, sorted({report["stage"] for report in reports})


def test_growth_stops_where_the_last_units_gain_too_little() -> None:
    assert grown(least=1e9) == (8, [0])
    assert grown(most=24) == (24, [0, 1, 2])
    assert grown(most=23) == (16, [0, 1])


def test_stages_never_change_earlier_prefixes() -> None:
    X = torch.from_numpy(digits()[0][:200]).float()
    by_width = {}
    for most in (8, 16, 24):
        model, _ = learn(settings("growth", growth=Growth(start=8, step=8, most=most, least=0.0)))
        by_width[most] = model.encode(X), model
    for narrow, wide in ((8, 16), (16, 24)):
        code, _ = by_width[narrow]
        longer, model = by_width[wide]
        assert torch.equal(longer[:, :narrow], code)
        assert torch.equal(model.decode(longer[:, :narrow]), by_width[narrow][1].decode(code))


def test_only_chains_grow() -> None:
    with pytest.raises(InvalidInput, match="a code grows along a chain"):
        learn(settings("growth"), model=network(lengths=Groups([4, 4], Geometric(0.5))))
    with pytest.raises(InvalidInput, match="least must be a share of the error"):
        Growth(least=-1)
