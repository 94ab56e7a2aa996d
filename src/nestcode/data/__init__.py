"""Loaders of real data to train, demonstrate and test on.

`samples.py` has small data without a download: scikit-learn's digits and sample images, and a toy data set.
`cifar10.py`, `mnist.py` and `glove.py` read public data sets. `folder.py` reads your own images as squares of one size,
for training; `images.py` reads them at their own sizes, for compression, by `image_file.py`; `png.py`
writes PNG files. `lines.py` reads texts.
"""

from nestcode.data.cifar10 import cifar10, fetch_cifar10
from nestcode.data.folder import ImageFolder
from nestcode.data.glove import glove
from nestcode.data.images import ImageFiles
from nestcode.data.mnist import mnist
from nestcode.data.samples import digits, patches, pinwheel, sample_images

__all__ = [
    "ImageFiles",
    "ImageFolder",
    "cifar10",
    "digits",
    "fetch_cifar10",
    "glove",
    "mnist",
    "patches",
    "pinwheel",
    "sample_images",
]
