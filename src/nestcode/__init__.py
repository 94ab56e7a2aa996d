"""Nested codes: bit strings whose every prefix is a good code of its length.

>>> import nestcode as nc
>>> codes = nc.Codes.from_bits([[True, False, True], [True, True, False]])
>>> codes.prefix(1).hamming(codes.prefix(1))
array([[0, 0],
       [0, 0]], dtype=int32)

Names are imported on first use, so `import nestcode` takes a few milliseconds and loads neither NumPy nor PyTorch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.byteorder != "little":
    raise ImportError(
        "Nestcode needs a little-endian machine, as x86-64 and ARM are, and this one is big-endian: serve the index on "
        "another machine, and search it over HTTP"
    )

if TYPE_CHECKING:
    from nestcode import coders as coders
    from nestcode import data as data
    from nestcode import errors as errors
    from nestcode import images as images
    from nestcode import index as index
    from nestcode import lengths as lengths
    from nestcode import metrics as metrics
    from nestcode import nn as nn
    from nestcode import scale as scale
    from nestcode import search as search
    from nestcode import simulate as simulate
    from nestcode import stores as stores
    from nestcode import streams as streams
    from nestcode import training as training
    from nestcode.coders import AdaptiveCoder as AdaptiveCoder
    from nestcode.coders import AutoencoderCoder as AutoencoderCoder
    from nestcode.coders import CellCoder as CellCoder
    from nestcode.coders import Coder as Coder
    from nestcode.coders import ImplicitCoder as ImplicitCoder
    from nestcode.coders import LinearCoder as LinearCoder
    from nestcode.coders import RefinedCoder as RefinedCoder
    from nestcode.coders import ResidualCoder as ResidualCoder
    from nestcode.coders import RotationCoder as RotationCoder
    from nestcode.coders import SupervisedCoder as SupervisedCoder
    from nestcode.coders import fit as fit
    from nestcode.coders import load_coder as load_coder
    from nestcode.codes import Codes as Codes
    from nestcode.images import ImageCodec as ImageCodec
    from nestcode.images import ImageStreamDecoder as ImageStreamDecoder
    from nestcode.images import ImageStreamReader as ImageStreamReader
    from nestcode.images import ImageStreamWriter as ImageStreamWriter
    from nestcode.images import compress_images as compress_images
    from nestcode.images import decompress_images as decompress_images
    from nestcode.index import Index as Index
    from nestcode.streams import StreamDecoder as StreamDecoder
    from nestcode.streams import StreamReader as StreamReader
    from nestcode.streams import StreamWriter as StreamWriter
    from nestcode.streams import compress as compress
    from nestcode.streams import decompress as decompress
    from nestcode.streams import stream_info as stream_info

__version__ = "0.1.0"

# The module of each public name; a module is its own.
_HOMES = {
    "AdaptiveCoder": "nestcode.coders",
    "AutoencoderCoder": "nestcode.coders",
    "CellCoder": "nestcode.coders",
    "Coder": "nestcode.coders",
    "Codes": "nestcode.codes",
    "ImageCodec": "nestcode.images",
    "ImageStreamDecoder": "nestcode.images",
    "ImageStreamReader": "nestcode.images",
    "ImageStreamWriter": "nestcode.images",
    "ImplicitCoder": "nestcode.coders",
    "Index": "nestcode.index",
    "LinearCoder": "nestcode.coders",
    "RefinedCoder": "nestcode.coders",
    "ResidualCoder": "nestcode.coders",
    "RotationCoder": "nestcode.coders",
    "StreamDecoder": "nestcode.streams",
    "StreamReader": "nestcode.streams",
    "StreamWriter": "nestcode.streams",
    "SupervisedCoder": "nestcode.coders",
    "coders": "nestcode.coders",
    "compress": "nestcode.streams",
    "compress_images": "nestcode.images",
    "data": "nestcode.data",
    "decompress": "nestcode.streams",
    "decompress_images": "nestcode.images",
    "errors": "nestcode.errors",
    "fit": "nestcode.coders",
    "images": "nestcode.images",
    "index": "nestcode.index",
    "lengths": "nestcode.lengths",
    "load_coder": "nestcode.coders",
    "metrics": "nestcode.metrics",
    "nn": "nestcode.nn",
    "scale": "nestcode.scale",
    "search": "nestcode.search",
    "simulate": "nestcode.simulate",
    "stores": "nestcode.stores",
    "stream_info": "nestcode.streams",
    "streams": "nestcode.streams",
    "training": "nestcode.training",
}

# `from nestcode import *` must work without PyTorch, so the names that need it are left out. Type checkers read a
# literal list only.
__all__ = [
    "AdaptiveCoder",
    "CellCoder",
    "Coder",
    "Codes",
    "ImageCodec",
    "ImageStreamDecoder",
    "ImageStreamReader",
    "ImageStreamWriter",
    "Index",
    "LinearCoder",
    "ResidualCoder",
    "RotationCoder",
    "StreamDecoder",
    "StreamReader",
    "StreamWriter",
    "__version__",
    "coders",
    "compress",
    "compress_images",
    "data",
    "decompress",
    "decompress_images",
    "errors",
    "fit",
    "images",
    "index",
    "lengths",
    "load_coder",
    "metrics",
    "scale",
    "search",
    "simulate",
    "stores",
    "stream_info",
    "streams",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nestcode' has no attribute {name!r}")
    try:
        home = import_module(_HOMES[name])
    except ImportError as error:  # so that hasattr() and inspect skip names whose extra is missing
        raise AttributeError(f"nestcode.{name} cannot be loaded: {error}") from error
    value = home if home.__name__.endswith(f".{name}") else getattr(home, name)
    globals()[name] = value  # the next lookup does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*_HOMES, "__version__"})
