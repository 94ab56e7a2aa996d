"""Indexes: the paper's prefix tree, and one that can be changed, saved and searched while it changes.

A write, in the words of storage engines (an LSM-tree):

    add ──▶ write buffer ──flush──▶ segment ──compaction──▶ larger segment      buffer.py, segment.py, compaction.py
    remove ──▶ tombstone in a segment, or out of the buffer                     segment.py
             │
             ▼
    a new snapshot: segments, their tombstones, the buffer                      snapshot.py
             │  readers keep the snapshot they began with                       live.py
             ▼
    commit ──▶ new files, then the manifest, atomically                         store.py, manifest.py

`Index` (index.py) composes these; its answers (reader.py) come from a snapshot and a searcher (`nestcode.search`). The
prefix tree (tree.py) is a sorted array of codes; a snapshot's runs are searched as a forest of them. Whether an index
still suits its items is health.py's.
"""

from nestcode.index.health import Health
from nestcode.index.index import Index
from nestcode.index.tree import Neighborhood, Neighborhoods, PrefixTree

__all__ = ["Health", "Index", "Neighborhood", "Neighborhoods", "PrefixTree"]
