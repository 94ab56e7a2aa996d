"""Stores: nested codes in a database that you already run. An ordinary b-tree over codes is the paper's tree.

    SqliteStore     a table in an SQLite database                      standard library
    LmdbStore       keys in an LMDB environment                        pip install 'nestcode[lmdb]'
    PostgresStore   a table in PostgreSQL or what speaks its protocol  pip install 'nestcode[postgres]'

All stores implement `neighborhood` and `search` of `nestcode.Index` by three scans (`nestcode.index.ordered`):

    search        ──▶ inverted lists, nearest first ──▶ range ──▶ codes ──▶ ranked by the client      search.py
    neighborhood  ──▶ ascend and descend from the query's code ──▶ longest shared prefix              neighborhood.py

`base.py` is the base of all stores, `sql.py` the base of SQL stores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nestcode.stores.base import CodeStore
from nestcode.stores.neighborhood import Neighborhood
from nestcode.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from nestcode.stores.lmdb import LmdbStore as LmdbStore
    from nestcode.stores.postgres import PostgresStore as PostgresStore

__all__ = ["CodeStore", "Neighborhood", "SqliteStore"]  # without the stores that need an extra

_EXTRAS = {"LmdbStore": "nestcode.stores.lmdb", "PostgresStore": "nestcode.stores.postgres"}


def __getattr__(name: str) -> Any:
    if name not in _EXTRAS:
        raise AttributeError(f"module 'nestcode.stores' has no attribute {name!r}")
    return getattr(import_module(_EXTRAS[name]), name)
