"""What an index says of itself."""

import numpy as np

from nestcode import Index, LinearCoder


def test_says_whether_its_graph_is_built() -> None:
    rows = np.random.default_rng(0).standard_normal((4200, 8)).astype(np.float32)
    index = Index(LinearCoder(32).fit(rows), vectors="float32", graph=True)
    assert repr(index).endswith("graph=True)")  # wanted, and not there yet
    index.add(rows)
    index.compact()
    index.wait()
    assert repr(index).endswith("graph=built)")
