"""The image codecs and the refiner that ship with Nestcode.

`benchmarks/pretrained.py photos` trained the codecs, and `benchmarks/refiner.py` the refiner. `ImageCodec.load` takes
the name of a codec. A stream made by one of them embeds no codec, because receivers find it here by its fingerprint.
"""

from functools import cache
from pathlib import Path

import numpy as np

from nestcode.storage import Record, read_record

FOLDER = Path(__file__).parent
REFINER = FOLDER / "photos.refiner"
PRETRAINED = {  # the images that each codec was trained on
    "photos": "24 images of Debian's packages mate-backgrounds and plasma-workspace-wallpapers, at four scales",
    "photos-1": "the same images; for streams up to version 3",
}


def pretrained_path(name: str) -> Path:
    """Return the file of a name in `PRETRAINED`.

    >>> pretrained_path("photos").name
    'photos.coder'
    """
    return FOLDER / f"{name}.coder"


def find_pretrained(fingerprint: str) -> str | None:
    """Return the name of the pretrained codec with a fingerprint, or None.

    >>> find_pretrained("0" * 64) is None
    True
    """
    return next((name for name in PRETRAINED if _fingerprint(name) == fingerprint), None)


@cache
def _fingerprint(name: str) -> str:
    return loaded_fingerprint(read_record(pretrained_path(name)))


def loaded_fingerprint(record: Record) -> str:
    """Return the fingerprint that the coder of a record has, without loading it: float16 is loaded as float32.

    >>> find_pretrained(loaded_fingerprint(read_record(pretrained_path("photos"))))
    'photos'
    """
    arrays = {
        key: array.astype(np.float32) if array.dtype == np.float16 else array for key, array in record.arrays.items()
    }
    return Record(record.kind, record.version, record.settings, arrays).fingerprint
