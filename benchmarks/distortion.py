"""Distortion by length: LinearCoder against image codecs, one sign bit per component, and the Gaussian bound.

MSE of pixel values in [0, 1] on test images. CIFAR-10 with --data DIR, else patches of the sample images. The coder is
fitted three times, on random 80 % of the training images; the spread is the largest MSE minus the smallest.
"""

import io

import numpy as np
from PIL import Image

from _report import arguments, images, save, show
from nestcode import LinearCoder
from nestcode.arrays import Bytes, Doubles

LENGTHS = (64, 128, 256, 512, 1024)


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    name, train, test = images(options)
    lengths = [length for length in LENGTHS if length <= 4 * train.shape[1]]
    coders = []
    for seed in range(1 if options.quick else 3):
        part = np.random.default_rng(seed).permutation(len(train))[: len(train) * 4 // 5]
        coders.append(LinearCoder(lengths[-1], seed=seed).fit(train[np.sort(part)]))
    curves = np.array([error_by_length(coder, test, lengths[-1]) for coder in coders])
    sign, gaussian = sign_bits(train, test, lengths), gaussian_bound(train, lengths)
    rows: list[dict[str, object]] = [
        {
            "bits": length,
            "LinearCoder": float(curves[:, length // 8].mean()),
            "spread": float(np.ptp(curves[:, length // 8])),
            "sign bits": sign[place],
            "Gaussian bound": gaussian[place],
        }
        for place, length in enumerate(lengths)
    ]
    show(f"MSE by length, {name}", rows, f"Decreases at every 8th bit: {bool((np.diff(curves) < 0).all())}.")
    codecs = codec_rows(coders[0], test, options.quick)
    if codecs:
        show(f"Image codecs, {name}", codecs, "ours: LinearCoder at the bits without headers; –: more than its width.")
    save(options.json, rows + codecs, ["nestcode", "numpy", "pillow"])


def error_by_length(coder: LinearCoder, X: Bytes, width: int) -> Doubles:
    """Return the MSE at every 8th length, from 0."""
    codes = coder.encode(X)
    pixels = X.astype(np.float32)
    return np.array([np.mean((pixels - coder.decode(codes.prefix(k))) ** 2) / 255**2 for k in range(0, width + 1, 8)])


def spectrum(train: Bytes) -> tuple[Doubles, Doubles, Doubles]:
    """Return the mean, principal variances and directions, of descending variance."""
    X = train.astype(np.float32) / np.float32(255)
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    return X.mean(axis=0), np.maximum(values[::-1], 0), vectors[:, ::-1]


def sign_bits(train: Bytes, test: Bytes, lengths: list[int]) -> list[float]:
    """Return the MSE of one sign bit per principal component, decoded to the mean of its side."""
    mean, _, vectors = spectrum(train)
    most = min(max(lengths), len(mean))
    coefficients = (train[:20_000].astype(np.float32) / 255 - mean) @ vectors[:, :most]
    up = np.array([column[column > 0].mean() for column in coefficients.T])
    down = np.array([column[column <= 0].mean() for column in coefficients.T])
    X = test.astype(np.float32) / 255 - mean
    tested = X @ vectors[:, :most]
    guess = np.where(tested > 0, up, down)
    total, gains = (X**2).sum(axis=1).mean(), (tested**2 - (tested - guess) ** 2).mean(axis=0)
    return [float((total - gains[:length].sum()) / len(mean)) for length in lengths]


def gaussian_bound(train: Bytes, lengths: list[int]) -> list[float]:
    """Return the rate-distortion bound of Gaussian data with this spectrum, by reverse water-filling."""
    _, variances, _ = spectrum(train)
    errors = []
    for length in lengths:
        low, high = 1e-12, float(variances[0])
        for _ in range(100):
            level = (low * high) ** 0.5
            rate = 0.5 * np.log2(np.maximum(variances / level, 1)).sum()
            low, high = (level, high) if rate > length else (low, level)
        errors.append(float(np.minimum(variances, level).mean()))
    return errors


def codec_rows(coder: LinearCoder, test: Bytes, quick: bool) -> list[dict[str, object]]:
    """Return rows of JPEG and WebP at a few qualities, and of the coder at as many bits."""
    side = round((test.shape[1] / 3) ** 0.5)
    if 3 * side * side != test.shape[1]:
        return []  # not square images
    images = test[: 20 if quick else 1000].reshape(-1, 3, side, side).transpose(0, 2, 3, 1)
    curve = error_by_length(coder, test, coder.width)
    rows: list[dict[str, object]] = []
    for codec, qualities in (("JPEG", (1, 5, 10, 20, 40)), ("WEBP", (0, 5, 20, 40, 60))):
        for quality in qualities:
            sizes, bare, errors = zip(*(compress(image, codec, quality) for image in images), strict=True)
            bits = float(np.mean(bare))
            place = np.arange(len(curve)) * 8
            rows.append(
                {
                    "codec": codec,
                    "quality": quality,
                    "bits": float(np.mean(sizes)),
                    "without headers": bits,
                    "MSE": float(np.mean(errors)),
                    "ours": float(np.interp(bits, place, curve)) if bits <= coder.width else "–",
                }
            )
    return rows


def compress(image: Bytes, codec: str, quality: int) -> tuple[int, int, float]:
    """Return the bits with and without headers, and the MSE."""
    buffer = io.BytesIO()
    effort = {"method": 6} if codec == "WEBP" else {"optimize": True}
    Image.fromarray(image).save(buffer, codec, quality=quality, **effort)
    blob = buffer.getvalue()
    if codec == "JPEG":  # the scan lies between its own header and the end marker
        scan = blob.index(b"\xff\xda")
        bare = len(blob) - 2 - (scan + 2 + int.from_bytes(blob[scan + 2 : scan + 4], "big"))
    else:  # RIFF, chunk and frame headers
        bare = len(blob) - 30
    decoded = np.asarray(Image.open(buffer).convert("RGB"), dtype=np.float32)
    return 8 * len(blob), 8 * bare, float(np.mean((decoded - image) ** 2) / 255**2)


if __name__ == "__main__":
    main()
