"""Streams: encode once, send as many bits as each receiver can take.

A stream has a header and then bits 0-63 of every item, 64-127 of every item and so on: cut anywhere, it is a coarser
version of the whole collection. `format.py` is the layout, `payload.py` reads what arrived, `items.py` knows shapes,
types and coders, `entropy.py` makes streams smaller without loss; `stream.py`, `decoder.py` and `files.py` are the
three ways in: bytes, chunks and files. Pictures of any size have their own: `picture_format.py`, `pictures.py`,
`picture_decoder.py` and `picture_files.py`. `shared.py` is what both have in common. `bandwidth.py` and `traces.py`
play streams to receivers.
"""

from nestcode.streams.decoder import StreamDecoder
from nestcode.streams.files import StreamReader, StreamWriter
from nestcode.streams.stream import Info, compress, decompress, info

__all__ = [
    "Info",
    "StreamDecoder",
    "StreamReader",
    "StreamWriter",
    "compress",
    "decompress",
    "info",
]
