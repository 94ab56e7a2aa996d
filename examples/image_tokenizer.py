"""An ordered image tokenizer: the first tokens show an image coarsely, each further one adds detail.

    image ──transformer with latent tokens──▶ tokens ──FSQ──▶ ──NestedDropout over tokens──▶ transformer ──▶ image

Two copies of one model are trained as autoencoders. They differ in one layer: nested dropout, which keeps the first
tokens of each image, a random number of them. Afterwards an image may be sent, stored or compared by any number of
tokens: the codes of `FSQ` are `nestcode.Codes`, and a prefix of them decodes. Two tables: the MSE of test images, and
the accuracy of a 20-nearest-neighbor classifier on their tokens, by the number of tokens kept.

Run it with `python examples/image_tokenizer.py --data DIR` on CIFAR-10 (`nestcode data cifar10 --to DIR`; minutes on
one GPU), or without data on scikit-learn's digits (a minute on a CPU).
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from nestcode.data import cifar10, digits
from nestcode.lengths import Full, LogUniform
from nestcode.metrics import by_length, distortion, plot_by_length
from nestcode.nn import FSQ, NestedDropout

LEVELS = (8, 8, 8, 8, 8)  # of FSQ: 15 bits per token
NEIGHBORS = 20


class Tokenizer(nn.Module):
    """An autoencoder of images, (n, channels, side, side), with tokens in the middle."""

    def __init__(self, shape: tuple[int, int, int], patch: int, tokens: int, dim: int, depth: int, nested: bool):
        super().__init__()
        self.shape, self.patch, self.tokens = shape, patch, tokens
        patches, pixels = (shape[1] // patch) ** 2, shape[0] * patch**2
        self.embed, self.unembed = nn.Linear(pixels, dim), nn.Linear(dim, pixels)
        self.squeeze, self.expand = nn.Linear(dim, len(LEVELS)), nn.Linear(len(LEVELS), dim)
        self.quantize = FSQ(LEVELS, tokens)
        self.drop = NestedDropout(LogUniform() if nested else Full(), dim=1)  # the line that orders the tokens
        # Learned inputs: the positions of patches and latent tokens in the encoder, and in the decoder.
        self.inputs = nn.Parameter(0.02 * torch.randn(2, patches + tokens, dim))
        layer = partial(nn.TransformerEncoderLayer, dim, max(1, dim // 64), 4 * dim, 0.0, "gelu", batch_first=True)
        self.encoder, self.decoder = (
            nn.TransformerEncoder(layer(norm_first=True), depth, nn.LayerNorm(dim), enable_nested_tensor=False)
            for _ in range(2)
        )

    def encode(self, images: Tensor) -> Tensor:
        """Return tokens before quantization, (n, tokens, features)."""
        patches = functional.pixel_unshuffle(images, self.patch).flatten(2).transpose(1, 2)
        latents = images.new_zeros(len(images), self.tokens, self.inputs.shape[2])
        mixed = self.encoder(torch.cat([self.embed(patches), latents], dim=1) + self.inputs[0])
        out: Tensor = self.squeeze(mixed[:, -self.tokens :])
        return out

    def decode(self, tokens: Tensor) -> Tensor:
        """Return images of quantized tokens, (n, tokens, features); dropped ones are 0."""
        side = self.shape[1] // self.patch
        patches = tokens.new_zeros(len(tokens), side**2, self.inputs.shape[2])
        mixed = self.decoder(torch.cat([patches, self.expand(tokens)], dim=1) + self.inputs[1])
        pixels = self.unembed(mixed[:, : side**2]).transpose(1, 2).unflatten(2, (side, side))
        return functional.pixel_shuffle(pixels, self.patch)

    def forward(self, images: Tensor, kept: int | None = None) -> Tensor:
        """Return images from the first `kept` tokens, or in training from a random number of them."""
        return self.decode(self.drop(self.quantize(self.encode(images)), kept))


def train(images: Tensor, *, nested: bool, epochs: int, patch: int, tokens: int, dim: int, depth: int) -> Tokenizer:
    """Return a trained tokenizer."""
    torch.manual_seed(0)
    channels, side, _ = images.shape[1:]
    model = Tokenizer((channels, side, side), patch, tokens, dim, depth, nested).to(images.device)
    batch = min(256, len(images))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (len(images) // batch))
    for _ in range(epochs):
        for rows in torch.randperm(len(images), device=images.device).split(batch)[: len(images) // batch]:
            with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
                loss = functional.mse_loss(model(images[rows]).float(), images[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model.eval()


def classified(tokens: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """Return the most frequent class of each query's nearest neighbors."""
    nearest = torch.cdist(queries.flatten(1), tokens.flatten(1)).topk(NEIGHBORS, largest=False).indices
    return functional.one_hot(labels[nearest]).sum(dim=1).argmax(dim=1)


def read_data(folder: Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images and labels, test images and labels; pixels from -1 to 1."""
    if folder is not None:
        data = cifar10(folder)
        images = [torch.from_numpy(rows).view(-1, 3, 32, 32) / 127.5 - 1 for rows in (data.train, data.test)]
        labels = [torch.from_numpy(part).long() for part in (data.train_labels, data.test_labels)]
    else:
        rows, classes = map(torch.from_numpy, digits())
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(rows)))
        images = [rows[half].float().view(-1, 1, 8, 8) * 2 - 1 for half in (order[:1400], order[1400:])]
        labels = [classes[half].long() for half in (order[:1400], order[1400:])]
    return images[0], labels[0], images[1], labels[1]


def main() -> None:
    """Train both tokenizers and print their MSE and accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--tokens", type=int, help="of an image (32; 8 of digits)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the MSE by tokens")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels, test, test_labels = (part.to(device) for part in read_data(options.data))
    small = options.data is None
    tokens = options.tokens or (8 if small else 32)
    size = {"patch": 2, "dim": 64, "depth": 2} if small else {"patch": 4, "dim": 256, "depth": 4}
    lengths = [length for length in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if length <= tokens]
    errors, accuracy = {}, {}
    for name, nested in (("nested", True), ("ordinary", False)):
        model = train(images, nested=nested, epochs=options.epochs, tokens=tokens, **size)
        with torch.inference_mode():
            known, asked = (
                torch.cat([model.quantize(model.encode(part)) for part in rows.split(1000)])
                for rows in (images[:20_000], test)
            )
            decoded = lambda x, kept, model=model: torch.cat([model(part, kept) for part in x.split(1000)])  # noqa: E731
            errors[name] = by_length(decoded, test, lengths, distortion)
            guess = lambda x, kept, known=known: classified(known[:, :kept], labels[:20_000], x[:, :kept])  # noqa: E731
            accuracy[name] = by_length(guess, asked, lengths, lambda y, found: (y == found).mean(), test_labels)
    table = Table("tokens", "bits", *(f"{kind}, {name}" for kind in ("MSE", "accuracy") for name in errors))
    for length in lengths:
        cells = [f"{curve[length]:.4f}" for curve in errors.values()]
        cells += [f"{curve[length]:.3f}" for curve in accuracy.values()]
        table.add_row(str(length), str(length * model.quantize.width // tokens), *cells)
    Console().print(table)
    if options.figure:
        plot_by_length(errors, options.figure, "MSE of test images", "tokens")


if __name__ == "__main__":
    main()
