# The public names of the package, the one list of them: `__init__.py` reads these lines, type checkers too.
# "PyTorch" marks names that need it. `from nestcode import *` leaves them out.
from nestcode import coders as coders
from nestcode import data as data
from nestcode import errors as errors
from nestcode import images as images
from nestcode import index as index
from nestcode import lengths as lengths
from nestcode import metrics as metrics
from nestcode import nn as nn  # PyTorch
from nestcode import scale as scale
from nestcode import search as search
from nestcode import simulate as simulate
from nestcode import stores as stores
from nestcode import streams as streams
from nestcode import training as training  # PyTorch
from nestcode.coders import AdaptiveCoder as AdaptiveCoder
from nestcode.coders import AutoencoderCoder as AutoencoderCoder  # PyTorch
from nestcode.coders import CellCoder as CellCoder
from nestcode.coders import Coder as Coder
from nestcode.coders import ImplicitCoder as ImplicitCoder  # PyTorch
from nestcode.coders import LinearCoder as LinearCoder
from nestcode.coders import RefinedCoder as RefinedCoder  # PyTorch
from nestcode.coders import ResidualCoder as ResidualCoder
from nestcode.coders import RotationCoder as RotationCoder
from nestcode.coders import SupervisedCoder as SupervisedCoder  # PyTorch
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

__all__: list[str]
__version__: str
