"""The blocks of pages that run."""

import re

ON_RAY = ("cluster.md",)  # pages whose blocks tests/scale/on_ray.py runs, as Ray leaves threads behind
# Python blocks, and shell blocks that follow <!-- run -->.
BLOCK = re.compile(r"^```(python)\n(.*?)^```|^<!-- run -->\n```(bash)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def blocks_of(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block that runs."""
    return [(found[1] or found[3], found[2] or found[4]) for found in BLOCK.finditer(text)]


def first_lines_of(text: str) -> list[int]:
    """Return the line of the page on which the text of each block that runs begins."""
    return [text.count("\n", 0, found.start(2) if found[1] else found.start(4)) + 1 for found in BLOCK.finditer(text)]
