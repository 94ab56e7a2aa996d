"""The container of streams: bytes with block checksums that may be truncated anywhere.

    header · CRC-32 · embedded coder, if any · block · CRC-32 · block · CRC-32 · …

Streams of items (`nestcode.streams`) and of images (`nestcode.images`) fill it with different headers and payloads and
share the rest: `layout.py` has the offsets of blocks and their checksums, `blocks.py` verifies the blocks that arrived,
in memory or chunk by chunk, and reports the first damaged one, `decoder.py` is the base of progressive decoders,
`files.py` has the spool of writers and the files of readers, `info.py` the description of any stream.
"""
