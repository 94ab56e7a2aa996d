"""Coders: fit data, encode items to codes, decode any prefix.

    LinearCoder       PCA, then an embedded scalar quantizer: steep spectra, such as images
    ResidualCoder     residual quantization by beam search: flat spectra, such as embeddings
    RotationCoder     random rotation, then the quantizer of a Gaussian: no training, errors are bounded
    CellCoder         coarse quantizer (k-means), then a scalar-quantized residual: fast search
    AdaptiveCoder     backward-adaptive residual quantization: small images
    RefinedCoder      bits of a linear, residual or adaptive coder, decoded by a network (PyTorch)
    ImplicitCoder     residual quantization by codebooks that a network adapts to each item (PyTorch)
    AutoencoderCoder  the paper's networks (PyTorch)
    SupervisedCoder   bits that separate classes (PyTorch)

`fit` chooses among the coders without PyTorch; the table in `auto.py` has candidates and measures. `base.py` has the
protocol that all of them follow. The PyTorch coders load when they are first used. For images of any size see
`nestcode.images`.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestcode.coders.adaptive.coder import AdaptiveCoder
from nestcode.coders.auto import fit
from nestcode.coders.base import Coder
from nestcode.coders.cell.coder import CellCoder
from nestcode.coders.linear.coder import LinearCoder
from nestcode.coders.residual.coder import ResidualCoder
from nestcode.coders.rotation.coder import RotationCoder
from nestcode.container.files import is_stream
from nestcode.errors import DamagedFile, InvalidInput, import_extra
from nestcode.storage import Record, check_path, read_record

if TYPE_CHECKING:
    from nestcode.coders.autoencoder import AutoencoderCoder as AutoencoderCoder
    from nestcode.coders.implicit import ImplicitCoder as ImplicitCoder
    from nestcode.coders.refined import RefinedCoder as RefinedCoder
    from nestcode.coders.supervised import SupervisedCoder as SupervisedCoder

__all__ = [  # without the coders that need PyTorch
    "AdaptiveCoder",
    "CellCoder",
    "Coder",
    "LinearCoder",
    "ResidualCoder",
    "RotationCoder",
    "fit",
    "load_coder",
]

# To add a coder, add its class above and to `nestcode/__init__.pyi`, and an entry to CASES in tests/coders/cases.py.
_NUMPY: dict[str, type[Coder]] = {
    name: globals()[name] for name in __all__ if name.endswith("Coder") and name != "Coder"
}
_TORCH = {"AutoencoderCoder", "ImplicitCoder", "RefinedCoder", "SupervisedCoder"}  # each in the package of its name


def __getattr__(name: str) -> Any:
    if name not in _TORCH:
        raise AttributeError(f"module 'nestcode.coders' has no attribute {name!r}")
    import_extra("torch", extra="torch", purpose=name)
    return getattr(import_module(f"nestcode.coders.{name.removesuffix('Coder').lower()}"), name)


def load_coder(path: str | os.PathLike[str], **modules: Any) -> Coder:
    """Return a coder that `save` wrote.

    >>> import tempfile
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> coder = LinearCoder(width=16).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     coder.save(f"{folder}/eight.coder")
    ...     load_coder(f"{folder}/eight.coder").encode(X) == coder.encode(X)
    True

    Args:
        path: the file.
        modules: `encoder` and `decoder`, if the coder's `Network` has modules of your own.

    """
    check_path(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}: give the path that was saved to")
    if is_stream(Path(path)):
        raise InvalidInput(f"{path} holds a stream, not a coder: read it with decompress or stream_info")
    return coder_from_record(read_record(path), path, **modules)


def coder_from_record(record: Record, source: str | os.PathLike[str], **modules: Any) -> Coder:
    """Return the coder of any kind that a record describes; errors call the record `source`."""
    kind = _kind_of(record, source)
    needed = {"encoder"} if kind == "SupervisedCoder" else {"encoder", "decoder"}
    if modules and not record.settings.get("modules"):
        raise InvalidInput(f"{source} holds a coder without modules of its own: leave out {', '.join(modules)}")
    if record.settings.get("modules") and not needed <= set(modules):
        raise InvalidInput(
            f"{source} holds a coder with modules of its own: give load_coder the {' and '.join(sorted(needed))} too"
        )
    coder: type[Coder] = _NUMPY[kind] if kind in _NUMPY else __getattr__(kind)
    return coder.from_record(record, source, **modules)


def _kind_of(record: Record, source: str | os.PathLike[str]) -> str:
    """Return the class of the coder in a record, whose kind keeps the name it was first written under."""
    if record.kind == "DeepCoder":  # an earlier version had one class for three algorithms
        if "base" in record.settings:
            return "RefinedCoder"
        return "SupervisedCoder" if "classes" in record.settings else "AutoencoderCoder"
    if record.kind == "PictureCoder":  # an ImageCodec
        raise InvalidInput(
            f"{source} holds an image codec, not a coder of items: give a coder of items (ImageCodec.load reads it)"
        )
    if record.kind not in _NUMPY and record.kind not in _TORCH:
        known = ", ".join([*_NUMPY, *sorted(_TORCH)])
        raise DamagedFile(f"{source} holds a {record.kind}, this version knows {known}: upgrade nestcode")
    return record.kind
