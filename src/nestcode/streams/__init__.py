"""Streams of items: encode once, send as many bits as each receiver can take.

    items ──encode──▶ codes ──prefix-major layout, entropy coding──▶ blocks with checksums ──truncate──▶ receivers

The layout is prefix-major: bits 0-63 of every item come first, then bits 64-127 of every item, and so on, so that a
stream truncated anywhere is a coarser version of the whole collection. `format.py` is the header and the layout,
`items.py` turns items into codes and back, `entropy.py` is the optional entropy coding, `payload.py` reads the codes
that arrived. There are three ways in: `stream.py` for bytes (`compress`, `decompress`), `writer.py` and `reader.py` for
files, `decoder.py` for chunks. `info.py` describes a stream of items or of images (`stream_info`).

`nestcode.container` has blocks, checksums and truncated headers; images of any size have their own streams in
`nestcode.images`.
"""

from nestcode.streams.decoder import StreamDecoder
from nestcode.streams.info import ItemStreamInfo, stream_info
from nestcode.streams.reader import StreamReader
from nestcode.streams.stream import compress, decompress
from nestcode.streams.writer import StreamWriter

__all__ = [
    "ItemStreamInfo",
    "StreamDecoder",
    "StreamReader",
    "StreamWriter",
    "compress",
    "decompress",
    "stream_info",
]
