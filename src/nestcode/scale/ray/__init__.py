"""Sharded indexes on a Ray cluster: built by `encode`, searched by `SearchCluster`.

    encode          Ray Data ──▶ shards ──▶ parts, as `nestcode.scale` makes them          building.py
    SearchCluster   queries  ──▶ replicas of the parts, in actors ──▶ one answer           cluster.py
                       ├── what a part answers, and what the client makes of the answers   part.py, reader.py
                       └── replicas: retries, hedged requests, restarts                    replicas.py

`reader.py` merges the answers of parts, wherever they come from; only `replicas.py` and `building.py` call Ray.
"""

from nestcode.scale.ray.building import encode
from nestcode.scale.ray.cluster import SearchCluster
from nestcode.search.hits import PartialHits

__all__ = ["PartialHits", "SearchCluster", "encode"]
