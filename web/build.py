"""Build the decoder for browsers: WebAssembly of the C++ core, and the pretrained codecs, deflated.

    make web

The modules in src/nestcode/serve/static/nest are plain JavaScript and need no build. What this script writes beside
them is committed, so that users need no compiler; `sources.sha256` records what it was built from.
"""

import hashlib
import subprocess
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "src/nestcode/serve/static/nest"
CODECS = [ROOT / f"src/nestcode/images/pretrained/{name}.coder" for name in ("photos", "photos-1")]
HEADERS = (
    "context_mixing", "image_bitplanes", "image_decoder", "image_filter", "image_filter_weights", "image_models",
    "image_reconstruction", "image_start", "range_coder", "vectors",
)  # fmt: skip
SOURCES = [*(ROOT / f"cpp/nestcode/{name}.hpp" for name in HEADERS), ROOT / "web/decoder.cpp", *CODECS, Path(__file__)]
# Without fused multiplications pixels are those of other machines.
FLAGS = (
    "-target wasm32-wasi -mexec-model=reactor -std=c++20 -O3 -msimd128 -ffp-contract=off -fno-exceptions -fno-rtti -s"
)


def digest() -> str:
    """Return a checksum of all sources.

    >>> len(digest())
    64
    """
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in SOURCES}
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()


def main() -> None:
    """Compile the module and pack the codecs."""
    module = OUT / "nest.wasm"
    command = [sys.executable, "-m", "ziglang", "c++", *FLAGS.split(), f"-I{ROOT / 'cpp'}", "-o", str(module)]
    subprocess.run([*command, str(ROOT / "web/decoder.cpp")], check=True)
    module.chmod(0o644)
    for path in CODECS:
        (OUT / f"{path.name}.z").write_bytes(zlib.compress(path.read_bytes(), 9))
    (OUT / "sources.sha256").write_text(digest() + "\n")
    for path in sorted(OUT.iterdir()):
        print(
            f"{path.name:16} {path.stat().st_size:>8,} bytes, {len(zlib.compress(path.read_bytes(), 9)):>8,} deflated"
        )


if __name__ == "__main__":
    main()
