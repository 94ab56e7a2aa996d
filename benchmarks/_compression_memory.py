"""Peak memory of encoding and decoding a large image, beside the image itself: bytes per sample, each in a new process.

A sample is one value of a pixel. The image is scikit-learn's china, tiled; with --quick a small one, whose figures mean
nothing.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _compression_task import Task
from _report import show

SIZES = {False: (3000, 4000), True: (96, 128)}  # lines and columns, by --quick
JOBS = {
    "ImageCodec.encode at 0.5 bpp": "codec.encode(image, image.size // 48)",
    "compress_images(bpp=0.5)": "nc.compress_images([image], codec, bpp=0.5)",
    "compress_images, whole": "nc.compress_images([image], codec)",
    "decompress_images at 0.5 bpp": "nc.decompress_images(data, codec)",
    "decompress_images at 0.5 bpp, scale 1/4": "nc.decompress_images(data, codec, scale=1 / 4)",
}
# Reads what a job needs, notes the peak so far, runs the job and prints how much higher the peak is then.
PROGRAM = r"""
import pathlib, re, sys
import numpy as np
import nestcode as nc
# Linux keeps the peak of a process here; that of getrusage includes its parent's.
peak = lambda: 1024 * int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
codec = nc.images.ImageCodec.load()
height, width = int(sys.argv[1]), int(sys.argv[2])
tile = nc.data.sample_images()["china"]
image = np.empty((height, width, 3), dtype=np.uint8)
for top in range(0, height, len(tile)):
    for left in range(0, width, tile.shape[1]):
        part = image[top : top + len(tile), left : left + tile.shape[1]]
        part[:] = tile[: part.shape[0], : part.shape[1]]
nc.decompress_images(nc.compress_images([tile[:64, :64]], codec), codec)  # load what is loaded late
data = b"" if sys.argv[4] == "-" else pathlib.Path(sys.argv[4]).read_bytes()
before = peak()
made = eval(sys.argv[3])
print(peak() - before)
"""


def measure(task: Task) -> list[dict[str, Any]]:
    """Run all jobs, print the table and return its rows."""
    height, width = SIZES[task.options.quick]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stream"
        write = f"__import__('pathlib').Path({str(file)!r}).write_bytes(nc.compress_images([image], codec, bpp=0.5))"
        run(height, width, write, "-")
        for name, job in JOBS.items():
            used = run(height, width, job, str(file) if "decompress" in job else "-")
            rows.append({"job": name, "bytes per sample": used / (3 * height * width)})
    note = f"{height} x {width} x 3 samples; peak resident memory beside the image that is encoded."
    show("Memory", rows, note)
    return rows


def run(height: int, width: int, job: str, file: str) -> int:
    """Return how many bytes a job adds to the peak of a new process."""
    command = [sys.executable, "-c", PROGRAM, str(height), str(width), job, file]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
