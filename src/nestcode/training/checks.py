"""What is looked at before a run: whether the model fits the data, and which data they are."""

import hashlib

import numpy as np
import torch
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.layers import Encoder
from nestcode.training.config import Training
from nestcode.training.data import Source


def check_model(model: OrderedAutoencoder, training: Training, rows: Tensor) -> None:
    """Raise unless the modules take some rows of the data and give what they must."""
    if not isinstance(model.encoder, Encoder) and (training.penalty or training.sweep or training.growth):
        raise InvalidInput("penalty, sweep and growth act on the built-in layers: leave them out, or your modules")
    was = model.training
    code = torch.zeros(len(rows), model.width, device=rows.device)
    for name, module, given, out in (
        ("encoder", model.encoder, model.standardize(rows), model.width),
        ("decoder", model.decoder, code, model.features),
    ):
        try:
            with torch.no_grad():
                shape = tuple(module.eval()(given).shape)
        except (RuntimeError, TypeError, AttributeError) as error:
            raise InvalidInput(f"the {name} does not take rows of shape {tuple(given.shape)}: {error}") from error
        if shape != (len(rows), out):
            raise InvalidInput(f"the {name} must give {out} numbers a row, got shape {shape} for {len(rows)} rows")
    model.train(was)


def checksum(source: Source) -> str:
    """Of up to 1,024 rows, the same however they are stored: tells other data from the same.

    >>> from nestcode.training.data import as_source
    >>> checksum(as_source(np.ones((3, 2)))) == checksum(as_source(np.zeros((3, 2))))
    False
    """
    rows = source.rows(np.unique(np.linspace(0, len(source) - 1, 1024).astype(np.int64)))
    digest = hashlib.sha256(f"{len(source)} {source.features}".encode())
    digest.update(rows.astype(np.float32).tobytes())
    return digest.hexdigest()[:16]
