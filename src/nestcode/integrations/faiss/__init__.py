"""FAISS's interface to nested codes, and codes to and from FAISS's binary indexes.

`NestedIndex(d)` replaces `faiss.IndexFlatL2(d)`, and the code around it stays. It does not need FAISS; only `to_faiss`,
and `from_faiss` of an index, do (`pip install 'nestcode[faiss]'`).

    index.py         NestedIndex: FAISS's methods, and its file
    flat.py          FlatVectors: exact search while there are too few vectors to fit a coder
    conventions.py   FAISS's conventions: scores, thresholds, selectors, search parameters
    binary.py        to_faiss and from_faiss
"""

from nestcode.integrations.faiss.binary import from_faiss, to_faiss
from nestcode.integrations.faiss.index import NestedIndex, read_index, write_index

__all__ = ["NestedIndex", "from_faiss", "read_index", "to_faiss", "write_index"]
