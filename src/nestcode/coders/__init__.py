"""Coders: they fit data, encode items to codes and decode any prefix back.

`fit` picks the better of `LinearCoder` and `ResidualCoder`. `CellCoder` is made for search, `AdaptiveCoder` for small
images (for images of any size see `nestcode.images`). All of them need NumPy only. `RefinedCoder`, `AutoencoderCoder`
and `SupervisedCoder` need PyTorch, and load when they are first used.
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
from nestcode.coders.pretrained import PRETRAINED, pretrained_names, pretrained_path
from nestcode.coders.residual.coder import ResidualCoder
from nestcode.errors import DamagedFile, InvalidInput, import_extra
from nestcode.storage import Record, read_record

if TYPE_CHECKING:
    from nestcode.coders.autoencoder import AutoencoderCoder as AutoencoderCoder
    from nestcode.coders.refined import RefinedCoder as RefinedCoder
    from nestcode.coders.supervised import SupervisedCoder as SupervisedCoder

__all__ = [
    "AdaptiveCoder",
    "CellCoder",
    "Coder",
    "LinearCoder",
    "ResidualCoder",
    "fit",
    "load_coder",
]  # what needs no PyTorch

_KINDS: dict[str, type[Coder]] = {
    kind.__name__: kind for kind in (AdaptiveCoder, CellCoder, LinearCoder, ResidualCoder)
}
_TORCH_ROOMS = {"AutoencoderCoder": "autoencoder", "RefinedCoder": "refined", "SupervisedCoder": "supervised"}


def __getattr__(name: str) -> Any:
    if name not in _TORCH_ROOMS:
        raise AttributeError(f"module 'nestcode.coders' has no attribute {name!r}")
    import_extra("torch", extra="torch", purpose=name)
    return getattr(import_module(f"nestcode.coders.{_TORCH_ROOMS[name]}"), name)


def load_coder(path: str | os.PathLike[str], **modules: Any) -> Coder:
    """Load a coder that `save` wrote, or one that comes with Nestcode.

    >>> load_coder("cifar10-small").width       # for images of 3 x 32 x 32 pixels
    256

    >>> import tempfile
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> coder = LinearCoder(width=16).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     coder.save(f"{folder}/eight.coder")
    ...     load_coder(f"{folder}/eight.coder").encode(X) == coder.encode(X)
    True

    Args:
        path: the file, or the name of a coder that ships with Nestcode (`nestcode.coders.pretrained`).
        modules: `encoder` and `decoder`, where a coder's `Network` was given modules of your own.

    """
    if str(path) in PRETRAINED:  # whatever is in the working directory: "./cifar10-small" is a file there
        path = pretrained_path(str(path))
    elif not Path(path).exists() and not Path(path).parent.name:
        shipped = ", ".join(pretrained_names("items"))
        raise FileNotFoundError(f"there is no file {path}: give the path that was saved to, or one of {shipped}")
    return coder_from_record(read_record(path), path, **modules)


def coder_from_record(record: Record, path: str | os.PathLike[str], **modules: Any) -> Coder:
    """Return the coder of any kind that a record holds; errors name `path`, where the record came from."""
    name = _deep_coder(record.settings) if record.kind == "DeepCoder" else record.kind
    kind: type[Coder] | None = __getattr__(name) if name in _TORCH_ROOMS else _KINDS.get(name)
    if record.kind == "PictureCoder":  # an ImageCodec: its kind on disk keeps its first name
        raise InvalidInput(
            f"{path} holds an image codec, not a coder of items: give a coder of items (ImageCodec.load reads it)"
        )
    if kind is None:
        known = ", ".join([*_KINDS, *_TORCH_ROOMS])
        raise DamagedFile(f"{path} holds a {record.kind}, this version knows {known}: upgrade nestcode")
    if modules and not record.settings.get("modules"):
        raise InvalidInput(f"{path} holds a coder without modules of its own: leave out {', '.join(modules)}")
    needed = {"encoder"} if "classes" in record.settings else {"encoder", "decoder"}
    if record.settings.get("modules") and not needed <= set(modules):
        raise InvalidInput(
            f"{path} holds a coder with modules of its own: give load_coder the {' and '.join(sorted(needed))} too"
        )
    return kind.from_record(record, path, **modules)


def _deep_coder(settings: dict[str, Any]) -> str:
    """Return the coder in a file of an earlier version, when one class had the three algorithms."""
    if "base" in settings:
        return "RefinedCoder"
    return "SupervisedCoder" if "classes" in settings else "AutoencoderCoder"
