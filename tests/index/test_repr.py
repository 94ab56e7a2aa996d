"""What an index says of itself."""

import numpy as np

from nestcode import Index, LinearCoder


def test_counts_items() -> None:
    rows = np.eye(3, dtype=np.float32)
    index = Index(LinearCoder(4).fit(rows))
    index.add(rows[:1])
    assert repr(index).startswith("Index(1 item of 4 bits")
    index.add(rows[1:])
    assert repr(index).startswith("Index(3 items of 4 bits")


def test_says_whether_its_graph_is_built() -> None:
    rows = np.random.default_rng(0).standard_normal((4200, 8)).astype(np.float32)
    index = Index(LinearCoder(32).fit(rows), vectors="float32", graph=True)
    assert repr(index).endswith("graph=True)")  # wanted, and not there yet
    index.add(rows)
    index.compact()
    index.wait()
    assert repr(index).endswith("graph=built)")
