"""Real data to learn, show and test on.

`samples.py` holds what comes with scikit-learn, so that it needs no download, and a toy of points; `cifar10.py` the
paper's own data; `mnist.py` handwritten digits; `glove.py` vectors of words, to search in; `folder.py` reads images of
your own as squares of one size, `pictures.py` as they are.
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
