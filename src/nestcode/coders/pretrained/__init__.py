"""The coders and codecs that ship with Nestcode.

`benchmarks/pretrained.py` trains them. Each is one file beside this one: `load_coder` and `ImageCodec.load` take its
name, and a stream made by one of them needs no embedded coder, since receivers find it here by its fingerprint.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from nestcode.storage import Record, read_record


@dataclass(frozen=True)
class Pretrained:
    """What a shipped file codes, and what it was trained on."""

    codes: Literal["items", "images"]  # "items" for `load_coder`, "images" for `ImageCodec.load`
    trained_on: str


PRETRAINED = {
    "cifar10-small": Pretrained("items", "images of 3 x 32 x 32 pixels in [0, 1]: CIFAR-10's 50,000 training images"),
    "photos-small": Pretrained(
        "items",
        "images of 3 x 32 x 32 pixels in [0, 1]: 20,000 patches of 23 images at three scales, and 20,000 of CIFAR-10's "
        "training images",
    ),
    "photos": Pretrained(
        "images", "24 images of Debian's packages mate-backgrounds and plasma-workspace-wallpapers, at four scales"
    ),
    "photos-1": Pretrained("images", "the same images; of streams up to version 3"),
}


def pretrained_names(codes: Literal["items", "images"]) -> list[str]:
    """Return the names of the shipped files for items or for images.

    >>> pretrained_names("images")
    ['photos', 'photos-1']
    """
    return [name for name, shipped in PRETRAINED.items() if shipped.codes == codes]


def pretrained_path(name: str) -> Path:
    """Return the file of a name in `PRETRAINED`.

    >>> pretrained_path("photos").name
    'photos.coder'
    """
    return Path(__file__).parent / f"{name}.coder"


def find_pretrained(fingerprint: str, codes: Literal["items", "images"]) -> str | None:
    """Return the name of the shipped file with a fingerprint, or None.

    >>> find_pretrained("0" * 64, "images") is None
    True
    """
    return next((name for name in pretrained_names(codes) if _fingerprint(name) == fingerprint), None)


@cache
def _fingerprint(name: str) -> str:
    return loaded_fingerprint(read_record(pretrained_path(name)))


def loaded_fingerprint(record: Record) -> str:
    """Return the fingerprint that the coder of a record has, without loading it: float16 is loaded as float32.

    >>> record = read_record(pretrained_path("photos"))
    >>> find_pretrained(loaded_fingerprint(record), "images")
    'photos'
    """
    arrays = {
        key: array.astype(np.float32) if array.dtype == np.float16 else array for key, array in record.arrays.items()
    }
    return Record(record.kind, record.version, record.settings, arrays).fingerprint
