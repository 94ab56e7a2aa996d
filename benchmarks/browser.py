"""Decoding speed of the WebAssembly module in Node beside the native decoder, one thread, CPU time.

The two sample images at 0.25, 0.5 and 1 bpp; megabytes of pixels per second.
"""

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import nestcode as nc
from _report import arguments, save, show

NEST = Path(nc.__file__).parent / "serve/static/nest"
DECODE = """
import { readFileSync } from "node:fs";
const [, folder, path, repeats] = process.argv;
const { ImageStreamDecoder } = await import(`${folder}/decoder.js`);
const data = new Uint8Array(readFileSync(path));
let best = Infinity;
for (let i = 0; i < repeats; ++i) {
  const start = process.cpuUsage();
  const decoder = new ImageStreamDecoder();
  await decoder.feed(data);
  decoder.images();
  decoder.close();
  const { user, system } = process.cpuUsage(start);
  best = Math.min(best, (user + system) / 1e6);
}
console.log(best);
"""


def main() -> None:
    """Measure in turns, print and save."""
    options = arguments(__doc__)
    images = [image[:64, :64] if options.quick else image for image in nc.data.sample_images().values()]
    raw = sum(image.nbytes for image in images) / 1e6
    rounds, repeats = (1, 1) if options.quick else (3, 4)
    rows = []
    for bpp in (0.25, 0.5, 1.0):
        data = nc.compress_images(images, bpp=bpp)
        seconds = {"native": float("inf"), "WebAssembly": float("inf")}
        for _ in range(rounds):
            seconds["native"] = min(seconds["native"], *(native(data) for _ in range(repeats)))
            seconds["WebAssembly"] = min(seconds["WebAssembly"], in_node(data, repeats))
        speeds = {f"{name} MB/s": raw / best for name, best in seconds.items()}
        rows.append({"bpp": bpp, **speeds, "ratio": seconds["native"] / seconds["WebAssembly"]})
    show("Decoding images: MB of pixels per second", rows, "Best of interleaved rounds, CPU time.")
    save(options.json, rows, ["nestcode", "numpy"])


def native(data: bytes) -> float:
    """Return the seconds of one decode in this process."""
    start = time.process_time()
    decoder = nc.ImageStreamDecoder()
    decoder.feed(data)
    decoder.images()
    return time.process_time() - start


def in_node(data: bytes, repeats: int) -> float:
    """Return the seconds of the fastest of several decodes in a new Node process, or infinity without Node."""
    node = shutil.which("node")
    if node is None:
        return float("inf")
    with tempfile.NamedTemporaryFile(suffix=".nest") as file:
        Path(file.name).write_bytes(data)
        command = [node, "--input-type=module", "-e", DECODE, str(NEST), file.name, str(repeats)]
        return float(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


if __name__ == "__main__":
    main()
