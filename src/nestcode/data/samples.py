"""Small data without a download: scikit-learn's digits and sample images, and a pinwheel of points."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import MAX_SAMPLES, check_int
from nestcode.errors import InvalidInput, extra_folder, import_extra

DATASETS = "datasets"  # of scikit-learn: its files are read without it, for importing it and SciPy takes seconds
RADIAL, TANGENTIAL = 0.3, 0.06  # standard deviations of a pinwheel's arms


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return 1,797 handwritten digits of 8 x 8 pixels in [0, 1], (1797, 64), and their labels, (1797,).

    >>> X, labels = digits()
    >>> X.shape, labels[:5].tolist()
    ((1797, 64), [0, 1, 2, 3, 4])
    """
    path = extra_folder("sklearn", extra="sklearn", purpose="nestcode.data.digits") / DATASETS / "data/digits.csv.gz"
    rows = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    return rows[:, :-1].astype(np.float32) / np.float32(16), rows[:, -1].astype(np.int64)


def sample_images() -> dict[str, NDArray[np.uint8]]:
    """Return two color images, uint8 arrays (427, 640, 3).

    >>> {name: image.shape for name, image in sample_images().items()}
    {'china': (427, 640, 3), 'flower': (427, 640, 3)}
    """
    purpose = "nestcode.data.sample_images"
    folder = extra_folder("sklearn", extra="reproduce", purpose=purpose) / DATASETS / "images"
    image = import_extra("PIL.Image", extra="reproduce", purpose=purpose)
    return {name: np.array(image.open(folder / f"{name}.jpg")) for name in ("china", "flower")}


def patches(images: Sequence[NDArray[np.uint8]], size: int, n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return `n` random square patches of `size` pixels, (n, size, size, channels).

    >>> patches(list(sample_images().values()), size=8, n=100, rng=np.random.default_rng(0)).shape
    (100, 8, 8, 3)
    """
    images = [np.asarray(image) for image in images]
    if not images or any(image.ndim != 3 for image in images):
        raise InvalidInput("images must be one or more arrays (height, width, channels)")
    formats = {(str(image.dtype), image.shape[2]) for image in images}
    if len(formats) > 1:
        raise InvalidInput(f"images must agree in dtype and channels, got {sorted(formats)}: convert them first")
    smallest = min(min(image.shape[:2]) for image in images)
    n, size = check_int(n, "n", least=0, most=MAX_SAMPLES), check_int(size, "size", least=1)
    if size > smallest:
        raise InvalidInput(f"size must be between 1 and the smallest side {smallest}, got {size}")
    windows = [np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(0, 1)) for image in images]
    picked = rng.integers(len(images), size=n)
    cut = np.empty((n, size, size, images[0].shape[2]), dtype=images[0].dtype)
    for i, window in enumerate(windows):
        mine = np.flatnonzero(picked == i)
        rows, columns = (rng.integers(side, size=len(mine)) for side in window.shape[:2])
        cut[mine] = window[rows, columns].transpose(0, 2, 3, 1)
    return cut


def pinwheel(n: int, arms: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return `n` points of the plane on `arms` curved arms around 0, (n, 2), and the arm of each, (n,).

    >>> X, arm = pinwheel(1000, arms=5, rng=np.random.default_rng(0))
    >>> X.shape, sorted(set(arm.tolist()))
    ((1000, 2), [0, 1, 2, 3, 4])
    """
    n, arms = check_int(n, "n", least=0, most=MAX_SAMPLES), check_int(arms, "arms", least=1)
    arm = rng.integers(arms, size=n)
    radius, offset = 1 + RADIAL * rng.standard_normal(n), TANGENTIAL * rng.standard_normal(n)
    angle = 2 * np.pi * arm / arms + radius  # arms bend with the radius
    cos, sin = np.cos(angle), np.sin(angle)
    points = np.stack([radius * cos - offset * sin, radius * sin + offset * cos], axis=1)
    return points.astype(np.float32), arm
