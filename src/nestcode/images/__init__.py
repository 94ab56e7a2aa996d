"""The image codec: one embedded bitstream for images of any size, cut at any byte."""

from nestcode.images.codec import PictureCoder
from nestcode.images.decoder import PicturesDecoder
from nestcode.images.files import PicturesReader, PicturesWriter
from nestcode.images.stream import PicturesInfo, compress_pictures, decompress_pictures, pictures_info

__all__ = [
    "PictureCoder",
    "PicturesDecoder",
    "PicturesInfo",
    "PicturesReader",
    "PicturesWriter",
    "compress_pictures",
    "decompress_pictures",
    "pictures_info",
]
