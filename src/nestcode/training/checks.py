"""Checks before a run: the shapes of data and model, the labels, and a checksum of the data."""

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.nn.autoencoder import OrderedAutoencoder
from nestcode.nn.images import ImageEncoder, RandomViews
from nestcode.nn.layers import Encoder
from nestcode.nn.modes import evaluation_mode
from nestcode.nn.network import OrderedNetwork
from nestcode.training.config import Training
from nestcode.training.data import Indices, Source


def check_model(model: OrderedNetwork, training: Training, rows: Tensor) -> None:
    """Raise unless the modules take rows of the data and return the right shapes."""
    if not isinstance(model.encoder, Encoder) and (training.penalty or training.sweep or training.growth):
        raise InvalidInput("penalty, sweep and growth act on the built-in layers: leave them out, or your modules")
    if training.growth and not isinstance(model, OrderedAutoencoder):
        raise InvalidInput("the code of a classifier does not grow: leave growth out, and choose its final width")
    types = {parameter.dtype for parameter in model.parameters()}
    if torch.float16 in types:
        raise InvalidInput(
            "parameters must be float32, float64 or bfloat16, as Adam's squared gradients underflow float16, got "
            'float16: call model.float(), and set precision="bfloat16" for products of 16 bits'
        )
    if training.optimizer == "conjugate" and torch.bfloat16 in types:
        raise InvalidInput("line searches compare losses in float32, got parameters of bfloat16: call model.float()")
    code = torch.zeros(len(rows), model.width, device=rows.device, dtype=model.mean.dtype)
    for name, module, given, out in (
        ("encoder", model.encoder, model.standardize(rows), model.width),
        ("decoder", model.decoder, code, model.classes or model.features),
    ):
        try:
            with torch.no_grad(), evaluation_mode(module):
                shape = tuple(module(given).shape)
        except (RuntimeError, TypeError, AttributeError) as error:
            raise InvalidInput(f"the {name} does not take rows of shape {tuple(given.shape)}: {error}") from error
        if shape != (len(rows), out):
            raise InvalidInput(f"the {name} must return {out} values per row, got shape {shape} for {len(rows)} rows")


def check_data(source: Source, model: OrderedNetwork, augment: nn.Module | None) -> None:
    """Raise unless the data has the model's features, and images the layout of the modules that read images."""
    if source.features != model.features:
        raise InvalidInput(
            f"data must have the {model.features} features of the model, got {source.features}: make a model for "
            f"{source.features} features, or give it other data"
        )
    shape = tuple(getattr(source, "shape", ()))
    for module in (*model.modules(), *(() if augment is None else augment.modules())):
        if not isinstance(module, ImageEncoder | RandomViews) or len(shape) < 2:
            continue
        if [side for side in shape if side > 1] != [side for side in module.shape if side > 1]:
            raise InvalidInput(
                f"images must be laid out as {type(module).__name__} reads them, (channels, height, width) = "
                f"{module.shape}, got {shape}: where the channels are last, give images[:].transpose(0, 3, 1, 2)"
            )


def check_labels(model: OrderedNetwork, labels: Any, items: int) -> Indices | None:
    """Return labels as integers, one for each item; None for a model without classes.

    >>> from nestcode.nn import OrderedClassifier
    >>> check_labels(OrderedClassifier(4, width=2, classes=3), [0, 2], items=2)
    array([0, 2])
    """
    if model.classes is None:
        if labels is not None:
            raise InvalidInput("labels are for an OrderedClassifier: make one, or leave the labels out")
        return None
    if labels is None:
        raise InvalidInput("an OrderedClassifier is trained on labels: give one for each item, as in labels=y")
    indices = np.asarray(labels)
    if indices.shape != (items,) or indices.dtype.kind not in "iu":
        raise InvalidInput(
            f"labels must be integers, one for each of {items} items, got {indices.dtype} of shape {indices.shape}"
        )
    if indices.min() < 0 or indices.max() >= model.classes:
        raise InvalidInput(
            f"labels must be from 0 to {model.classes - 1}, got {indices.min()} to {indices.max()}: map them "
            "with np.unique(y, return_inverse=True), or make a model with more classes"
        )
    return indices.astype(np.int64)


def checksum(source: Source, labels: Indices | None = None) -> str:
    """Return a checksum of up to 1,024 rows, however they are stored, and of all labels.

    >>> from nestcode.training.data import as_source
    >>> checksum(as_source(np.ones((3, 2)))) == checksum(as_source(np.zeros((3, 2))))
    False
    """
    rows = source.rows(np.unique(np.linspace(0, len(source) - 1, 1024).astype(np.int64)))
    digest = hashlib.sha256(f"{len(source)} {source.features}".encode())
    digest.update(rows.astype(np.float32).tobytes())
    if labels is not None:
        digest.update(labels.tobytes())
    return digest.hexdigest()[:16]
