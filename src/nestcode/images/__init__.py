"""The image codec: an embedded bitstream for images of any size, which may be truncated at any byte.

    pixels ──color transform──▶ channels ──lapped transform──▶ blocks of coefficients ──bit planes──▶ embedded bitstream
              color.py                       lapped_dct.py                             bitplanes.py

`codec.py` runs these three steps for one image (`ImageCodec`) and decodes progressively (`ImageDecoder`). Streams of
several images interleave their bitstreams pass by pass, so that truncation affects all of them equally: `format.py` is
their header and layout; `stream.py` makes and reads them as bytes, `stream_writer.py` and `stream_reader.py` as files,
`stream_decoder.py` as chunks that arrive; `info.py` describes them. `refiner.py` is the learned decoder, whose network
`restoration.py` trains in PyTorch. Rates are in bits per pixel (bpp).
"""

from nestcode.images.codec import ImageCodec
from nestcode.images.info import ImageStreamInfo
from nestcode.images.refiner import Refiner
from nestcode.images.stream import compress_images, decompress_images
from nestcode.images.stream_decoder import ImageStreamDecoder
from nestcode.images.stream_reader import ImageStreamReader
from nestcode.images.stream_writer import ImageStreamWriter

__all__ = [
    "ImageCodec",
    "ImageStreamDecoder",
    "ImageStreamInfo",
    "ImageStreamReader",
    "ImageStreamWriter",
    "Refiner",
    "compress_images",
    "decompress_images",
]
