"""Indexes too large for one process: encode shards anywhere, then merge them into indexes of consecutive key ranges.

    items ──encode_shard──▶ sorted shards ──find_splitters──▶ bounds ──merge_range──▶ one index for each range

Every step is a function of its inputs and a folder to write, so that any engine may run it on any machine with a shared
file system, and run it again after a crash: what is there is not made again (shards.py). `nestcode.scale.ray` runs the
steps on a Ray cluster. `Index.open([...])` reads the result as one index. `PartCache` copies indexes out of object
storage to a local disk (objects.py).
"""

from nestcode.scale.objects import PartCache
from nestcode.scale.shards import encode_shard, find_splitters, merge_range, merge_shards

__all__ = ["PartCache", "encode_shard", "find_splitters", "merge_range", "merge_shards"]
