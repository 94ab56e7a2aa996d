"""The image codec: one embedded bitstream for images of any size, cut at any byte."""

from nestcode.images.codec import ImageCodec
from nestcode.images.decoder import ImageStreamDecoder
from nestcode.images.files import ImageStreamReader, ImageStreamWriter
from nestcode.images.stream import ImageStreamInfo, compress_images, decompress_images, stream_info

__all__ = [
    "ImageCodec",
    "ImageStreamDecoder",
    "ImageStreamInfo",
    "ImageStreamReader",
    "ImageStreamWriter",
    "compress_images",
    "decompress_images",
    "stream_info",
]
